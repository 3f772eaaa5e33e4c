// Opens a file that this page or `Trace.save` wrote: a picture, a page or a trace.
import { addTrace, type Bundle } from "../state/api";
import { INPUT_FORMAT } from "../state/input_trace";
import { restore } from "../state/url";
import { readPng } from "./png_text";

/** Opens a file and shows its view. */
export async function openFile(file: File): Promise<void> {
  const content = new Uint8Array(await file.arrayBuffer());
  const bundle = await readBundle(content);
  if (bundle.scenes) throw new Error("this file contains a lecture. Open it directly in a browser.");
  const names = bundle.traces.map((_, i) => (bundle.traces.length === 1 ? file.name : `${file.name} ${i + 1}`));
  bundle.traces.forEach((raw, i) => addTrace(raw, names[i]));
  const state = new URLSearchParams(bundle.state);
  state.delete("with");
  if (names[0]) state.set("trace", names[0]);
  if (names[1]) state.set("with", names[1]);
  restore(state.toString());
}

async function readBundle(content: Uint8Array): Promise<Bundle> {
  try {
    const text = await textOf(content);
    const data = JSON.parse(text.trimStart().startsWith("<") ? embeddedData(text) : text);
    if (Array.isArray(data.traces) && typeof data.state === "string") return data;
    if ("format" in data) return { traces: [data], state: data.format === INPUT_FORMAT ? "tab=input" : "tab=heads" };
  } catch {
    // Not a file of ours, whatever the reason.
  }
  throw new Error("not a trace, and not a PNG, SVG or HTML file saved from this page.");
}

/** The text of a file, decompressed if necessary; for a PNG the embedded text. */
async function textOf(content: Uint8Array): Promise<string> {
  if (content[0] === 0x89) return readPng(content) ?? "";
  if (content[0] !== 0x1f || content[1] !== 0x8b) return new TextDecoder().decode(content);
  return new Response(new Blob([content as BlobPart]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
}

/** The data embedded in an SVG or HTML file. */
function embeddedData(text: string): string {
  const type = text.trimStart().startsWith("<svg") ? "image/svg+xml" : "text/html";
  return new DOMParser().parseFromString(text, type).querySelector("#regard-data")?.textContent ?? "";
}
