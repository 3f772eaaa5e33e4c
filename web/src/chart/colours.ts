// The colour scheme (light or dark) and the colour scales, shared with the Python plots (regard/look/pictures/drawing/colours.json).
import { computed, effect, signal } from "@preact/signals";
import table from "../../../regard/look/pictures/drawing/colours.json";

export type Scheme = "light" | "dark";
export type Scale = "weights" | "signed";
type Colour = readonly [number, number, number];

const prefersDark = matchMedia("(prefers-color-scheme: dark)");
const system = signal<Scheme>(prefersDark.matches ? "dark" : "light");
prefersDark.addEventListener("change", () => (system.value = prefersDark.matches ? "dark" : "light"));

/** The scheme that the user chose; null: as the system. It is a personal preference, so it is not in the URL. */
const chosen = signal<Scheme | null>(storedScheme());
const printing = signal(false);
export const scheme = computed<Scheme>(() => (printing.value ? "light" : (chosen.value ?? system.value)));

/** Runs a function while the page uses the light colour scheme, as exported pictures do. */
export async function inLight<T>(work: () => T): Promise<T> {
  printing.value = true;
  const frame = () => new Promise((resolve) => requestAnimationFrame(resolve));
  await frame();
  await frame(); // the page has been redrawn by then
  try {
    return work();
  } finally {
    printing.value = false;
  }
}

export function switchScheme(): void {
  chosen.value = scheme.value === "dark" ? "light" : "dark";
  try {
    localStorage.setItem("regard-scheme", chosen.value);
  } catch {
    // A file or a frame may have no storage; then the choice lasts until the page is closed.
  }
}

function storedScheme(): Scheme | null {
  try {
    const stored = localStorage.getItem("regard-scheme");
    return stored === "light" || stored === "dark" ? stored : null;
  } catch {
    return null;
  }
}

effect(() => {
  document.documentElement.dataset.scheme = scheme.value;
});

const WEIGHTS: readonly Colour[] = table.map(fromHex);
// For signed numbers: from orange over the background to the blue of the weights.
const BELOW: Colour = [180, 83, 9];
const ABOVE: Colour = fromHex("#2062b4");
const PAPER: Record<Scheme, Colour> = { light: [250, 251, 252], dark: [23, 27, 36] };

function fromHex(text: string): Colour {
  const number = parseInt(text.slice(1), 16);
  return [number >> 16, (number >> 8) & 255, number & 255];
}

function mix(a: Colour, b: Colour, share: number): Colour {
  return [0, 1, 2].map((c) => Math.round(a[c] + (b[c] - a[c]) * share)) as unknown as Colour;
}

const LIGHTER: Record<"below" | "above", Colour> = { below: [251, 146, 60], above: [96, 176, 250] };

/** The colour of a weight from 0 to 1. The dark scheme reverses the table, so that large weights are bright. */
export function weightColour(value: number, on: Scheme): Colour {
  const index = Math.round(Math.min(1, Math.max(0, value)) * 255);
  return WEIGHTS[on === "light" ? index : 255 - Math.round(index * 0.92)];
}

/** The colour of a number from -1 to 1. */
export function signedColour(value: number, on: Scheme): Colour {
  const size = Math.min(1, Math.abs(value));
  const full = on === "light" ? (value < 0 ? BELOW : ABOVE) : value < 0 ? LIGHTER.below : LIGHTER.above;
  return mix(PAPER[on], full, size);
}

/** The colour of a value on a scale that ends at `most`. */
export function colourOf(value: number, scale: Scale, most: number, on: Scheme): Colour {
  const part = most > 0 ? value / most : 0;
  return scale === "weights" ? weightColour(part, on) : signedColour(part, on);
}

export function css([r, g, b]: Colour): string {
  return `rgb(${r},${g},${b})`;
}

/** Black or white, whichever has more contrast with a colour (WCAG 2 relative luminance). */
export function inkOn(colour: Colour): string {
  const [r, g, b] = colour.map((c) => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.179 ? "#000" : "#fff";
}

/** The colours of curves: LINES of colours.py and ink for the light scheme, lighter ones for the dark scheme. */
export const LINES: Record<Scheme, readonly string[]> = {
  light: ["#266abc", "#d9730d", "#0b8a6a", "#b83280", "#1f2430"],
  dark: ["#6fb3f7", "#f5a04f", "#45cba6", "#ee7fbd", "#e8ebf2"],
};
