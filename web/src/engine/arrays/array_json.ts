// Arrays in the JSON of traces: small ones as decimals, large ones in base64. regard/look/trace/file_format.py does the same.
import type { Json } from "../../state/trace";

const MAX_JSON_NUMBERS = 4096;

/** An array as a trace stores it. */
export function traceArray(shape: number[], values: Float32Array): Json {
  if (values.length <= MAX_JSON_NUMBERS) return { shape, values: Array.from(values, shortest) };
  return floatArray(shape, values);
}

/** A mask as a trace stores it. */
export function maskArray(shape: number[], values: Uint8Array): Json {
  if (values.length <= MAX_JSON_NUMBERS) return { shape, values: Array.from(values) };
  return bytesArray(shape, values);
}

export function bytesArray(shape: number[], values: Uint8Array): Json {
  return { shape, uint8: base64(values) };
}

/** An array with all its digits, in base64. */
export function floatArray(shape: number[], values: Float32Array): Json {
  return { shape, float32: base64(new Uint8Array(values.buffer, values.byteOffset, values.byteLength)) };
}

/** The shortest decimal that is the same number in 32 bits. */
export function shortest(value: number): number {
  for (let digits = 6; digits < 9; digits++) {
    const short = Number(value.toPrecision(digits));
    if (Math.fround(short) === value) return short;
  }
  return Number(value.toPrecision(9));
}

export function base64(bytes: Uint8Array): string {
  const CHUNK = 0x8000; // arguments of one call
  let text = "";
  for (let i = 0; i < bytes.length; i += CHUNK) text += String.fromCharCode(...bytes.subarray(i, i + CHUNK));
  return btoa(text);
}

export function fromBase64(text: string): Uint8Array<ArrayBuffer> {
  const decoded = atob(text);
  const bytes = new Uint8Array(decoded.length);
  for (let i = 0; i < decoded.length; i++) bytes[i] = decoded.charCodeAt(i);
  return bytes;
}

/** The number of 16 bits. */
export function fromHalf(half: number): number {
  const sign = half & 0x8000 ? -1 : 1;
  const exponent = (half >>> 10) & 0x1f;
  const fraction = half & 0x3ff;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return exponent ? sign * 2 ** (exponent - 15) * (1 + fraction / 1024) : sign * 2 ** -14 * (fraction / 1024);
}
