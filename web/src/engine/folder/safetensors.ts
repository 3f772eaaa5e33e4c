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
const MINIMUM = ".minimum";
const GROUP = 32; // neighbours in a row that share a scale and a minimum

/** The weights of a model by name, as 32-bit numbers. */
export function readSafetensors(file: ArrayBuffer): Map<string, Tensor> {
  const length = Number(new DataView(file).getBigUint64(0, true));
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(file, 8, length))) as Record<string, Entry>;
  const bytes = (entry: Entry) => file.slice(8 + length + entry.data_offsets[0], 8 + length + entry.data_offsets[1]);
  const weights = new Map<string, Tensor>();
  for (const [name, entry] of Object.entries(header)) {
    if (name === "__metadata__" || name.endsWith(SCALE) || name.endsWith(MINIMUM)) continue;
    const scale = header[name + SCALE];
    const minimum = header[name + MINIMUM];
    if (scale && minimum) {
      weights.set(name, fromGroups(entry, scale, bytes(entry), bytes(scale), bytes(minimum)));
      continue;
    }
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

// Integers in groups: 32 neighbours in a row share a scale and a minimum (models/folder/integer_groups.py). Two of 4 bits
// lie in one byte, the first one below.
function fromGroups(
  { shape }: Entry,
  scale: Entry,
  content: ArrayBuffer,
  scales: ArrayBuffer,
  minima: ArrayBuffer,
): { shape: number[]; data: Float32Array } {
  const stored = new Uint8Array(content);
  const [rates, lowest] = [scales, minima].map((part) => Float32Array.from(new Uint16Array(part), fromHalf));
  const [rows, width] = shape;
  const groups = scale.shape[1];
  const packed = Math.ceil(width / GROUP) !== groups; // of 4 bits
  const columns = packed ? 2 * width : width;
  const data = new Float32Array(rows * columns);
  for (let row = 0; row < rows; row++)
    for (let i = 0; i < columns; i++) {
      const byte = stored[row * width + (packed ? i >> 1 : i)];
      const integer = packed ? (i % 2 ? byte >> 4 : byte & 15) : byte;
      const group = row * groups + Math.floor(i / GROUP);
      data[row * columns + i] = lowest[group] + Math.fround(rates[group] * integer);
    }
  return { shape: [rows, columns], data };
}
