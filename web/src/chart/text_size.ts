// The size of labels and the width of texts.

let family = ""; // font of the page, read once the style sheet is loaded
const pen = document.createElement("canvas").getContext("2d")!;

/** The width of a text in the font of the page, in pixels. */
export function textWidth(text: string, size: number): number {
  family ||= getComputedStyle(document.body).fontFamily;
  pen.font = `${size}px ${family}`;
  return pen.measureText(text).width;
}

/** The font size of labels in pixels. */
export function labelSize(presenting: boolean): number {
  return presenting ? 19 : 14;
}

/** A text that is at most this wide: what does not fit is replaced by "…". */
export function shortened(text: string, room: number, size: number): string {
  if (textWidth(text, size) <= room + 1) return text;
  let start = text.slice(0, Math.ceil((4 * room) / size)); // a longer start cannot fit
  while (start && textWidth(`${start}…`, size) > room) start = start.slice(0, -1);
  return `${start}…`;
}
