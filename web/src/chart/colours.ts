// The colours of weights, shared with the plots of Python (regard/look/pictures/colours.json), and light or dark.
import { computed, effect, signal } from "@preact/signals";
import table from "../../../regard/look/pictures/colours.json";

export type Scheme = "light" | "dark";
export type Scale = "weights" | "signed";
type Colour = readonly [number, number, number];

const wish = matchMedia("(prefers-color-scheme: dark)");
const system = signal<Scheme>(wish.matches ? "dark" : "light");
wish.addEventListener("change", () => (system.value = wish.matches ? "dark" : "light"));

/** What the reader chose with the switch; null: what the system says. A choice of this reader, so no part of the URL. */
const chosen = signal<Scheme | null>(remembered());
const printing = signal(false);
export const scheme = computed<Scheme>(() => (printing.value ? "light" : (chosen.value ?? system.value)));

/** Runs something while the page is drawn in light colours, as pictures on paper are. */
export async function inLight<T>(work: () => T): Promise<T> {
  printing.value = true;
  const frame = () => new Promise((resolve) => requestAnimationFrame(resolve));
  await frame();
  await frame(); // everything is drawn anew by then, and laid out
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
    // A file or a frame may have no storage; the choice then lasts until the page is closed.
  }
}

function remembered(): Scheme | null {
  try {
    const kept = localStorage.getItem("regard-scheme");
    return kept === "light" || kept === "dark" ? kept : null;
  } catch {
    return null;
  }
}

effect(() => {
  document.documentElement.dataset.scheme = scheme.value;
});

const WEIGHTS: readonly Colour[] = table.map(fromHex);
// For numbers below and above zero: orange, through the paper, to the blue of the weights.
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

/** The colour of a weight from 0 to 1. On dark paper the table runs the other way: much is bright there. */
export function weightColour(value: number, on: Scheme): Colour {
  const place = Math.round(Math.min(1, Math.max(0, value)) * 255);
  return WEIGHTS[on === "light" ? place : 255 - Math.round(place * 0.92)];
}

/** The colour of a number from -1 to 1. */
export function signedColour(value: number, on: Scheme): Colour {
  const size = Math.min(1, Math.abs(value));
  const full = on === "light" ? (value < 0 ? BELOW : ABOVE) : value < 0 ? LIGHTER.below : LIGHTER.above;
  return mix(PAPER[on], full, size);
}

/** The colour of a value on a scale whose end is `most`. */
export function colourOf(value: number, scale: Scale, most: number, on: Scheme): Colour {
  const part = most > 0 ? value / most : 0;
  return scale === "weights" ? weightColour(part, on) : signedColour(part, on);
}

export function css([r, g, b]: Colour): string {
  return `rgb(${r},${g},${b})`;
}

/** Black or white, whichever has more contrast on a colour (WCAG 2 relative luminance). */
export function inkOn(colour: Colour): string {
  const [r, g, b] = colour.map((c) => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.179 ? "#000" : "#fff";
}

/** Curves of one picture: the LINES of colours.py on light paper, lighter ones on dark. */
export const LINES: Record<Scheme, readonly string[]> = {
  light: ["#266abc", "#d9730d", "#0b8a6a", "#b83280"],
  dark: ["#6fb3f7", "#f5a04f", "#45cba6", "#ee7fbd"],
};
