// How large labels are, and how wide a text is drawn.

let family = ""; // of the page's letters, once its style is there
const pen = document.createElement("canvas").getContext("2d")!;

/** How wide a text is drawn in the font of the page. */
export function textWidth(text: string, size: number): number {
  family ||= getComputedStyle(document.body).fontFamily;
  pen.font = `${size}px ${family}`;
  return pen.measureText(text).width;
}

export function labelSize(presenting: boolean): number {
  return presenting ? 19 : 14;
}
