// model.safetensors: a header in JSON, then the numbers. Matrices may be stored in 8 bits with one scale for each row.
import { fromHalf } from "../arrays/array_json";
import type { Tensor } from "../arrays/matrix";
import { RequestError } from "../errors";

interface Entry {
  dtype: string;
  shape: number[];
  data_offsets: [number, number];
}

const SCALE = ".scale";

/** The weights of a model by name, as 32-bit numbers. */
export function readSafetensors(file: ArrayBuffer): Map<string, Tensor> {
  const length = Number(new DataView(file).getBigUint64(0, true));
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(file, 8, length))) as Record<string, Entry>;
  const bytes = (entry: Entry) => file.slice(8 + length + entry.data_offsets[0], 8 + length + entry.data_offsets[1]);
  const weights = new Map<string, Tensor>();
  for (const [name, entry] of Object.entries(header)) {
    if (name === "__metadata__" || name.endsWith(SCALE)) continue;
    const scale = header[name + SCALE];
    const data = numbers(name, entry, bytes(entry), scale ? new Float32Array(bytes(scale)) : null);
    weights.set(name, { shape: entry.shape, data });
  }
  return weights;
}

function numbers(name: string, { dtype, shape }: Entry, content: ArrayBuffer, scale: Float32Array | null): Float32Array {
  if (dtype === "F32") return new Float32Array(content);
  if (dtype === "F16") return Float32Array.from(new Uint16Array(content), fromHalf);
  if (dtype === "BF16") {
    const halves = new Uint16Array(content);
    return new Float32Array(Uint32Array.from(halves, (half) => half << 16).buffer);
  }
  if (dtype === "I8" && scale) {
    const stored = new Int8Array(content);
    const width = shape[1];
    const weights = new Float32Array(stored.length);
    for (let row = 0; row < shape[0]; row++)
      for (let i = row * width; i < (row + 1) * width; i++) weights[i] = stored[i] * scale[row];
    return weights;
  }
  throw new RequestError(`the weight ${name} is stored as ${dtype}, which the browser cannot read`);
}
