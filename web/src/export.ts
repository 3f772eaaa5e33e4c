// What leaves the page and comes back: pictures (SVG, PNG) and the whole page as one file.
//
// Each brings along the state and the traces that it shows, so each can be opened again to the same view.
import { addTrace, bundle, sceneFile, sceneIndex, shown, type Bundle } from "./api";
import { inLight } from "./colours";
import { readPng, writePng } from "./png";
import { restore, stateText, tab } from "./state";
import type { Json } from "./trace";

const SVG = "http://www.w3.org/2000/svg";
// What style sheets say of drawn things; a picture that stands alone must say it itself.
const LOOKS = [
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

/** What the open view consists of. */
async function bundleNow(): Promise<Bundle> {
  const traces = shown.value.map((trace) => trace.raw);
  if (tab.value !== "lecture") return { traces, state: stateText() };
  const index = await sceneIndex();
  const files: Record<string, Json> = {};
  for (const { trace } of index) if (trace) files[trace] ??= await sceneFile(trace);
  return { traces: [], scenes: { index, files }, state: stateText() };
}

/** A figure of the page as an SVG that stands alone: what is drawn in it, or what `picture` draws instead. */
export async function figureSvg(figure: HTMLElement, title: string, picture?: () => SVGSVGElement): Promise<string> {
  const data = JSON.stringify({ traces: shown.value.map((trace) => trace.raw), state: stateText() });
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

/** Copies of all canvases and drawings inside an element, with their places. */
function drawnIn(body: HTMLElement): Part[] {
  const frame = body.getBoundingClientRect();
  return [...body.querySelectorAll<HTMLCanvasElement | SVGSVGElement>("canvas, svg")].map((one) => {
    const box = one.getBoundingClientRect();
    return {
      element: copied(one),
      x: box.left - frame.left,
      y: box.top - frame.top,
      width: box.width,
      height: box.height,
    };
  });
}

function copied(one: HTMLCanvasElement | SVGSVGElement): Element {
  if (one instanceof HTMLCanvasElement) {
    const image = make("image", { preserveAspectRatio: "none", href: one.toDataURL() });
    image.setAttribute("style", "image-rendering: pixelated");
    return image;
  }
  const copy = one.cloneNode(true) as SVGSVGElement;
  const originals = one.querySelectorAll("*");
  copy.querySelectorAll("*").forEach((element, i) => {
    const looks = getComputedStyle(originals[i]);
    for (const name of LOOKS) element.setAttribute(name, looks.getPropertyValue(name));
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

/** The same picture in pixels, two a CSS pixel; what the SVG brings along is in it too. */
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

/** The whole page as one file that needs no server; regard/look/page/single_file.py writes the same from Python. */
export async function wholePage(): Promise<Blob> {
  const [script, style] = bundle
    ? parts()
    : await Promise.all(["app.js", "app.css"].map(async (name) => (await fetch(name)).text()));
  // A text inside <script> ends at the first </script, wherever it comes from.
  const data = JSON.stringify(await bundleNow()).replaceAll("<", "\\u003c");
  const policy = `default-src 'none'; img-src data: blob:; style-src '${await sha256(style)}'; script-src '${await sha256(script)}'`;
  const page = `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="${policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>regard: look inside attention</title>
<link rel="icon" href="data:,">
<style>${style}</style>
</head>
<body>
<div id="page"></div>
<script type="application/json" id="regard-data">${data}</script>
<script>${script}</script>
</body>
</html>
`;
  return new Blob([page], { type: "text/html" });
}

function parts(): [string, string] {
  return [
    document.querySelector("script:not([type])")!.textContent ?? "",
    document.querySelector("style")!.textContent ?? "",
  ];
}

async function sha256(content: string): Promise<string> {
  if (!crypto.subtle)
    throw new Error("browsers hash files only over https or on the server's own machine; save it there");
  const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(content));
  return `sha256-${btoa(String.fromCharCode(...new Uint8Array(digest)))}`;
}

export function download(content: Blob | string, name: string, type = "image/svg+xml"): void {
  const url = URL.createObjectURL(typeof content === "string" ? new Blob([content], { type }) : content);
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

/** Opens what this page or `Trace.save` wrote, a picture, a page or a trace, and shows it. */
export async function openFile(file: File): Promise<void> {
  const content = new Uint8Array(await file.arrayBuffer());
  const found = await readBundle(content);
  if (found.scenes) throw new Error("this is a lecture: open the file itself in a browser.");
  const names = found.traces.map((_, i) => (found.traces.length === 1 ? file.name : `${file.name} ${i + 1}`));
  found.traces.forEach((raw, i) => addTrace(raw, names[i]));
  const state = new URLSearchParams(found.state);
  state.delete("with");
  if (names[0]) state.set("trace", names[0]);
  if (names[1]) state.set("with", names[1]);
  restore(state.toString());
}

async function readBundle(content: Uint8Array): Promise<Bundle> {
  try {
    const written = await textOf(content);
    const found = written.trimStart().startsWith("<") ? JSON.parse(markedText(written)) : JSON.parse(written);
    if (Array.isArray(found.traces) && typeof found.state === "string") return found;
    if ("format" in found) return { traces: [found], state: "tab=heads" };
  } catch {
    // What is wrong with it does not matter: it is none of ours.
  }
  throw new Error("holds nothing that this page wrote; traces, and its PNG, SVG and HTML files can be opened.");
}

/** The text of a file, unpacked; of a PNG the one inside it. */
async function textOf(content: Uint8Array): Promise<string> {
  if (content[0] === 0x89) return readPng(content) ?? "";
  if (content[0] !== 0x1f || content[1] !== 0x8b) return new TextDecoder().decode(content);
  return new Response(new Blob([content as BlobPart]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
}

/** What stands in the element of an SVG or HTML file that holds the data. */
function markedText(written: string): string {
  const type = written.trimStart().startsWith("<svg") ? "image/svg+xml" : "text/html";
  return new DOMParser().parseFromString(written, type).querySelector("#regard-data")?.textContent ?? "";
}
