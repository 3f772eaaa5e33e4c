// Attention maps in the format of a trace. regard/look/trace/attention_map.py.
import { bytesArray, maskArray, traceArray } from "../arrays/array_json";
import type { Matrix } from "../arrays/matrix";
import type { LayerWeights } from "../models/text_model";
import type { Json } from "../../state/trace";

const MAX_JSON_NUMBERS = 4096;
const THUMBNAIL_CELLS = 32;

/** A map from its layers; rows belong to the axis `query`, columns to `key`. */
export function makeMap(kind: string, layers: LayerWeights[], vectors: boolean): Json {
  const [query, key] = kind === "enc_self" ? ["source", "source"] : kind === "dec_self" ? ["target", "read"] : ["target", "source"];
  const { heads, groups, m, n } = layers[0];
  const weights = stacked(layers.map((layer) => layer.weights));
  const map: Json = { query, key, weights: traceArray([layers.length, heads, m, n], weights) };
  if (kind === "dec_self") map.mask = maskArray([m, n], causal(m, n));
  if (weights.length > MAX_JSON_NUMBERS) map.thumbnails = thumbnails(weights, layers.length * heads, m, n, [layers.length, heads]);
  if (vectors) {
    map.q = headVectors(layers.map(({ q }) => q), heads);
    map.k = headVectors(layers.map(({ k }) => k), groups);
    map.v = headVectors(layers.map(({ v }) => v), groups);
  }
  return map;
}

function stacked(parts: Float32Array[]): Float32Array {
  const all = new Float32Array(parts.length * parts[0].length);
  parts.forEach((part, i) => all.set(part, i * part.length));
  return all;
}

function causal(m: number, n: number): Uint8Array {
  return Uint8Array.from({ length: m * n }, (_, i) => Number((i % n) - Math.floor(i / n) <= n - m));
}

/** Vectors (tokens, heads · width) of each layer as an array [layers, heads, tokens, width]. */
function headVectors(layers: Matrix[], heads: number): Json {
  const { rows, cols } = layers[0];
  const width = cols / heads;
  const all = new Float32Array(layers.length * rows * cols);
  let at = 0;
  for (const layer of layers)
    for (let h = 0; h < heads; h++)
      for (let i = 0; i < rows; i++, at += width) all.set(layer.row(i).subarray(h * width, (h + 1) * width), at);
  return traceArray([layers.length, heads, rows, width], all);
}

/** Small copies of large maps: the largest weight of each region, from 0 to 255. */
function thumbnails(weights: Float32Array, maps: number, m: number, n: number, shape: number[]): Json {
  const [rows, cols] = [Math.min(m, THUMBNAIL_CELLS), Math.min(n, THUMBNAIL_CELLS)];
  const largest = new Float32Array(maps * rows * cols);
  const rowOf = regions(m, rows);
  const colOf = regions(n, cols);
  for (let map = 0; map < maps; map++)
    for (let i = 0; i < m; i++)
      for (let j = 0; j < n; j++) {
        const at = (map * rows + rowOf[i]) * cols + colOf[j];
        largest[at] = Math.max(largest[at], weights[(map * m + i) * n + j]);
      }
  return bytesArray([...shape, rows, cols], Uint8Array.from(largest, (weight) => halfEven(Math.min(1, weight) * 255)));
}

/** The region that each of `length` cells belongs to. */
function regions(length: number, count: number): Int32Array {
  const region = new Int32Array(length);
  for (let r = 0; r < count; r++) region.fill(r, Math.floor((r * length) / count));
  return region;
}

/** Rounds; halves go to the even number, as in Python. */
function halfEven(value: number): number {
  const low = Math.floor(value);
  return value - low === 0.5 ? low + (low % 2) : Math.round(value);
}
