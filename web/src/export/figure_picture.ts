// A figure as SVG or PNG. The picture embeds the state and the traces that it shows, so it can be reopened.
import { inLight } from "../chart/colours";
import { shownData } from "../state/api";
import { stateText } from "../state/url";
import { writePng } from "./png_text";

const SVG = "http://www.w3.org/2000/svg";
// Style properties that a standalone picture must contain itself.
const STYLE_PROPERTIES = [
  "fill",
  "fill-opacity",
  "stroke",
  "stroke-width",
  "stroke-dasharray",
  "opacity",
  "font-family",
  "font-size",
  "font-weight",
  "text-anchor",
  "dominant-baseline",
];
const MARGIN = 16;
const TITLE = 34;

/** A figure as a standalone SVG: its canvases and drawings, or what `picture` draws instead. */
export async function figureSvg(figure: HTMLElement, title: string, picture?: () => SVGSVGElement): Promise<string> {
  for (const animation of figure.getAnimations({ subtree: true })) animation.finish(); // arcs that are still growing
  const data = JSON.stringify({ traces: shownData(), state: stateText() });
  const parts = await inLight(() =>
    picture ? [sized(picture())] : drawnIn(figure.querySelector<HTMLElement>(".figure-body")!),
  );
  const width = Math.ceil(Math.max(...parts.map((part) => part.x + part.width), 9 * title.length) + 2 * MARGIN);
  const height = Math.ceil(Math.max(...parts.map((part) => part.y + part.height)) + 2 * MARGIN + TITLE);
  const sheet = make("svg", { width, height, viewBox: `0 0 ${width} ${height}` });
  const metadata = make("metadata", { id: "regard-data" }, data);
  const font = getComputedStyle(document.body).fontFamily;
  const letters = { fill: "#1f2430", "font-family": font, "font-size": 16, "font-weight": 600 };
  const heading = make("text", { x: MARGIN, y: MARGIN + 14, ...letters }, title);
  sheet.append(make("title", {}, title), metadata, make("rect", { width, height, fill: "#ffffff" }), heading);
  for (const { element, x, y, width, height } of parts) {
    set(element, { x: x + MARGIN, y: y + MARGIN + TITLE, width, height });
    sheet.append(element);
  }
  return new XMLSerializer().serializeToString(sheet);
}

interface Part {
  element: Element;
  x: number;
  y: number;
  width: number;
  height: number;
}

function sized(element: SVGSVGElement): Part {
  return {
    element,
    x: 0,
    y: 0,
    width: Number(element.getAttribute("width")),
    height: Number(element.getAttribute("height")),
  };
}

/** Copies of all canvases and SVG drawings inside an element, with their positions. */
function drawnIn(body: HTMLElement): Part[] {
  const frame = body.getBoundingClientRect();
  return [...body.querySelectorAll<HTMLCanvasElement | SVGSVGElement>("canvas, svg")].map((drawing) => {
    const box = drawing.getBoundingClientRect();
    return {
      element: copyOf(drawing),
      x: box.left - frame.left,
      y: box.top - frame.top,
      width: box.width,
      height: box.height,
    };
  });
}

function copyOf(drawing: HTMLCanvasElement | SVGSVGElement): Element {
  if (drawing instanceof HTMLCanvasElement) {
    const image = make("image", { preserveAspectRatio: "none", href: drawing.toDataURL() });
    image.setAttribute("style", "image-rendering: pixelated");
    return image;
  }
  const copy = drawing.cloneNode(true) as SVGSVGElement;
  const originals = drawing.querySelectorAll("*");
  copy.querySelectorAll("*").forEach((element, i) => {
    const style = getComputedStyle(originals[i]);
    for (const name of STYLE_PROPERTIES) element.setAttribute(name, style.getPropertyValue(name));
    element.removeAttribute("class");
  });
  return copy;
}

function make(name: string, attributes: Record<string, string | number>, text = ""): SVGElement {
  const element = document.createElementNS(SVG, name);
  set(element, attributes);
  element.textContent = text;
  return element;
}

function set(element: Element, attributes: Record<string, string | number>): void {
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
}

/** The picture as PNG with two pixels per CSS pixel; it embeds the same data as the SVG. */
export async function svgToPng(svg: string): Promise<Blob> {
  const parsed = new DOMParser().parseFromString(svg, "image/svg+xml").documentElement;
  const image = new Image();
  const url = URL.createObjectURL(new Blob([svg], { type: "image/svg+xml" }));
  try {
    image.src = url;
    await image.decode();
  } finally {
    URL.revokeObjectURL(url);
  }
  const canvas = document.createElement("canvas");
  canvas.width = 2 * Number(parsed.getAttribute("width"));
  canvas.height = 2 * Number(parsed.getAttribute("height"));
  const pen = canvas.getContext("2d")!;
  pen.imageSmoothingEnabled = false;
  pen.drawImage(image, 0, 0, canvas.width, canvas.height);
  const blob = await new Promise<Blob | null>((done) => canvas.toBlob(done, "image/png"));
  return writePng(new Uint8Array(await blob!.arrayBuffer()), parsed.querySelector("#regard-data")!.textContent ?? "");
}
