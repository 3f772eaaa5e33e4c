// Paints numbers on a canvas, one pixel per cell.
import { colourOf, type Scale, type Scheme } from "./colours";

/** Paints a matrix, one pixel per number; CSS scales it up without smoothing. */
export function paint(
  canvas: HTMLCanvasElement,
  values: ArrayLike<number>,
  cols: number,
  scale: Scale,
  most: number,
  on: Scheme,
): void {
  const rows = cols ? values.length / cols : 0;
  canvas.width = cols;
  canvas.height = rows;
  if (!values.length) return;
  const pixels = new ImageData(cols, rows);
  for (let i = 0; i < values.length; i++) {
    const [r, g, b] = colourOf(values[i], scale, most, on);
    pixels.data.set([r, g, b, 255], 4 * i);
  }
  canvas.getContext("2d")!.putImageData(pixels, 0, 0);
}

/** The largest absolute value; 1 if all values are 0. */
export function largest(values: ArrayLike<number>): number {
  let maximum = 0;
  for (let i = 0; i < values.length; i++) maximum = Math.max(maximum, Math.abs(values[i]));
  return maximum || 1;
}
