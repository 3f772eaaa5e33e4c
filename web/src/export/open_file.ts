// Opens a file that this page or `Trace.save` wrote: a picture, a page or a trace.
import { addTrace, type Bundle } from "../state/api";
import { restore } from "../state/url";
import { readPng } from "./png_text";

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
