// A text embedded in a PNG file: an iTXt chunk with the keyword "regard" (PNG specification, section 11.3.3.4).

const KEYWORD = "regard";
const SIGNATURE = 8; // bytes before the first chunk

/** Inserts a text into a PNG, after its first chunk (the header). */
export function writePng(png: Uint8Array, text: string): Blob {
  const header = SIGNATURE + 12 + new DataView(png.buffer, png.byteOffset).getUint32(SIGNATURE);
  const encoder = new TextEncoder();
  // Keyword, then: not compressed, no language, no translated keyword.
  const content = encoder.encode(`iTXt${KEYWORD}\0\0\0\0\0${text}`);
  const chunk = new Uint8Array(content.length + 8);
  const view = new DataView(chunk.buffer);
  view.setUint32(0, content.length - 4); // without the four letters of the chunk type
  chunk.set(content, 4);
  view.setUint32(chunk.length - 4, crc32(content));
  return new Blob([png.slice(0, header), chunk, png.slice(header)] as BlobPart[], { type: "image/png" });
}

/** The text that writePng inserted, or null. */
export function readPng(png: Uint8Array): string | null {
  const view = new DataView(png.buffer, png.byteOffset, png.byteLength);
  for (let at = SIGNATURE; at + 12 <= png.length;) {
    const length = view.getUint32(at);
    const content = new TextDecoder().decode(png.subarray(at + 4, at + 8 + Math.min(length, 16)));
    if (content.startsWith(`iTXt${KEYWORD}\0`)) {
      return new TextDecoder().decode(png.subarray(at + 8 + KEYWORD.length + 5, at + 8 + length));
    }
    at += length + 12;
  }
  return null;
}

function crc32(content: Uint8Array): number {
  let crc = 0xffffffff;
  for (const byte of content) {
    crc ^= byte;
    for (let bit = 0; bit < 8; bit++) crc = crc & 1 ? (crc >>> 1) ^ 0xedb88320 : crc >>> 1;
  }
  return (crc ^ 0xffffffff) >>> 0;
}
