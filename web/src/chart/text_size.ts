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
