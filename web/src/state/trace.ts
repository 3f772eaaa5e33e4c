// Traces (regard-trace/1): types, decoding and checks. docs/use/traces.md describes the format.

export interface Token {
  text: string;
  word: number | null;
  special: boolean;
  pad: boolean;
}

export interface Axis {
  tokens: Token[];
  words: string[];
}

/** An array in row-major order. */
export interface Numbers {
  shape: number[];
  values: Float32Array;
}

/** Attention weights [layers, heads, rows, cols] between two axes. */
export interface AttentionMap {
  query: string;
  key: string;
  layers: number;
  heads: number;
  rows: number;
  cols: number;
  weights: Float32Array;
  mask: Uint8Array | null; // [rows, cols], 1 where a query may attend
  randomFeatures: boolean;
  digits: number; // decimals that are right: float16 has fewer
  thumbnails: { rows: number; cols: number; values: Uint8Array } | null;
  q: Numbers | null;
  k: Numbers | null;
  v: Numbers | null;
}

export interface Candidate {
  token: number;
  text: string;
  logp: number;
  low: number | null;
  high: number | null;
}

export interface Step {
  chosen: number;
  candidates: Candidate[];
  rest: number;
  entropy: number;
  given: boolean;
  draw: number | null;
}

export interface TreeNode {
  parent: number | null;
  token: number;
  text: string;
  logp: number;
  sum: number;
  score: number;
  state: "kept" | "pruned" | "done";
}

export interface Tree {
  width: number;
  length_penalty: number;
  nodes: TreeNode[];
  best: number;
}

export type MapName = "enc_self" | "dec_self" | "cross" | "rnn" | "pointer";

export interface Trace {
  model: {
    name: string;
    kind: string;
    layers: Record<string, number>;
    heads: number;
    widths: Record<string, number>;
    score: string | null;
    scale: number | null;
  };
  axes: Record<string, Axis>;
  maps: Partial<Record<MapName, AttentionMap>>;
  steps: Step[];
  tree: Tree | null;
  source: string | null;
  output: string;
  search: Record<string, string | number | boolean | null>;
  best_head: { layer: number; head: number | null } | null;
  alignment: AttentionMap | null; // the mean of the heads that align best; null in old traces
  sentences: { text: string; start: number; end: number }[]; // of the source of a model that copies: token spans
  notes: string[];
  raw: Json; // the original JSON, for exported files
}

export type Json = { [name: string]: any };

export const MAP_NAMES: readonly MapName[] = ["enc_self", "dec_self", "cross", "rnn", "pointer"];
const TOLERANCE = { values: 1e-5, float16: 2e-3 };

/** Reads and checks a trace; throws an Error that says what is wrong with it. */
export function readTrace(raw: Json): Trace {
  try {
    return readParts(raw);
  } catch (error) {
    // Something is not an object or a list where the format requires one.
    if (error instanceof TypeError) throw new Error("not a trace: a part is missing or has the wrong type");
    throw error;
  }
}

function readParts(raw: Json): Trace {
  if (typeof raw !== "object" || raw === null || raw.format !== "regard-trace/1") {
    throw new Error(`not a trace: a trace is an object whose format is "regard-trace/1"`);
  }
  for (const name of ["model", "axes", "maps"]) {
    if (typeof raw[name] !== "object" || raw[name] === null)
      throw new Error(`not a trace: the entry "${name}" is missing`);
  }
  const axes: Record<string, Axis> = {};
  for (const [name, axis] of Object.entries<Json>(raw.axes)) axes[name] = readAxis(axis);
  const maps: Trace["maps"] = {};
  const lengths = Object.fromEntries(Object.entries(axes).map(([name, axis]) => [name, axis.tokens.length]));
  for (const [name, map] of Object.entries<Json>(raw.maps)) {
    if (!MAP_NAMES.includes(name as MapName))
      throw new Error(`maps.${name}: unknown map; the maps are ${MAP_NAMES.join(", ")}`);
    maps[name as MapName] = readMap(`maps.${name}`, map, lengths);
  }
  return {
    model: { score: null, scale: null, ...raw.model },
    axes,
    maps,
    steps: (raw.steps ?? []).map(readStep),
    tree: raw.tree ?? null,
    source: raw.source ?? null,
    output: raw.output ?? "",
    search: raw.search ?? {},
    best_head: raw.best_head ? { head: null, ...raw.best_head } : null,
    alignment: raw.alignment ? readMap("alignment", raw.alignment, lengths) : null,
    sentences: raw.sentences ?? [],
    notes: raw.notes ?? [],
    raw,
  };
}

function readAxis(axis: Json): Axis {
  const tokens = axis.tokens.map((token: Json) => ({ word: null, special: false, pad: false, ...token }));
  return { tokens, words: axis.words ?? [] };
}

function readStep(step: Json): Step {
  const candidates = step.candidates.map((candidate: Json) => ({ low: null, high: null, ...candidate }));
  return { given: false, draw: null, ...step, candidates } as Step;
}

/** Reads and checks a map; `lengths` are those of the axes. */
export function readMap(name: string, map: Json, lengths: Record<string, number>): AttentionMap {
  const weights = decodeArray(map.weights, `${name}.weights`);
  const [layers, heads, rows, cols] = weights.shape;
  for (const [axis, length] of [
    [map.query, rows],
    [map.key, cols],
  ] as [string, number][]) {
    if (lengths[axis] !== length)
      throw new Error(`${name}: the map has size ${length} along the axis ${axis}, which has ${lengths[axis] ?? 0} entries`);
  }
  const mask = map.mask ? Uint8Array.from(decodeArray(map.mask, `${name}.mask`).values) : null;
  const read: AttentionMap = {
    query: map.query,
    key: map.key,
    layers,
    heads,
    rows,
    cols,
    weights: weights.values,
    mask,
    randomFeatures: map.random_features ?? false,
    digits: "float16" in map.weights ? 3 : 4,
    thumbnails: map.thumbnails ? readThumbnails(map.thumbnails) : null,
    q: map.q ? decodeArray(map.q, `${name}.q`) : null,
    k: map.k ? decodeArray(map.k, `${name}.k`) : null,
    v: map.v ? decodeArray(map.v, `${name}.v`) : null,
  };
  if (!read.randomFeatures) checkRows(name, read, "float16" in map.weights ? TOLERANCE.float16 : TOLERANCE.values);
  return read;
}

function readThumbnails(packed: Json): AttentionMap["thumbnails"] {
  const values = "uint8" in packed ? bytes(packed.uint8) : Uint8Array.from(packed.values as number[]);
  return { rows: packed.shape[2], cols: packed.shape[3], values };
}

function checkRows(name: string, map: AttentionMap, tolerance: number): void {
  const { rows, cols, weights, mask } = map;
  for (let row = 0; row * cols < weights.length; row++) {
    const query = row % rows;
    let sum = 0;
    let open = mask === null;
    for (let j = 0; j < cols; j++) {
      sum += weights[row * cols + j];
      open ||= mask![query * cols + j] === 1;
    }
    if (!(Math.abs(sum - (open ? 1 : 0)) <= tolerance)) {
      throw new Error(`${name}: row ${query} sums to ${sum.toFixed(6)} instead of ${open ? 1 : 0}`);
    }
  }
}

/** Decodes an array: a list of numbers, or float32, float16 or uint8 in base64. */
export function decodeArray(packed: Json, where: string): Numbers {
  const shape = packed?.shape;
  if (!Array.isArray(shape)) throw new Error(`${where} must be an array with a shape`);
  let values: Float32Array;
  if (Array.isArray(packed.values)) values = Float32Array.from(packed.values as number[]);
  else if (typeof packed.float32 === "string") values = fromSingle(bytes(packed.float32));
  else if (typeof packed.float16 === "string") values = fromHalf(bytes(packed.float16));
  else if (typeof packed.uint8 === "string") values = Float32Array.from(bytes(packed.uint8));
  else throw new Error(`${where} must have values, float32, float16 or uint8`);
  const wanted = shape.reduce((product: number, side: number) => product * side, 1);
  if (values.length !== wanted)
    throw new Error(`${where}: ${values.length} numbers do not match the shape ${shape.join(" x ")}`);
  return { shape, values };
}

/** Decodes base64. */
export function bytes(base64: string): Uint8Array {
  const text = atob(base64);
  const decoded = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) decoded[i] = text.charCodeAt(i);
  return decoded;
}

function fromSingle(packed: Uint8Array): Float32Array {
  const view = new DataView(packed.buffer);
  return Float32Array.from({ length: packed.length / 4 }, (_, i) => view.getFloat32(4 * i, true));
}

function fromHalf(packed: Uint8Array): Float32Array {
  const view = new DataView(packed.buffer);
  const decoded = new Float32Array(packed.length / 2);
  for (let i = 0; i < decoded.length; i++) {
    const half = view.getUint16(2 * i, true);
    const exponent = (half >> 10) & 31;
    const fraction = half & 1023;
    // Subnormal below 2^-14; an attention map contains neither infinities nor NaN.
    const size = exponent === 0 ? fraction * 2 ** -24 : (1 + fraction / 1024) * 2 ** (exponent - 15);
    decoded[i] = half & 0x8000 ? -size : size;
  }
  return decoded;
}

/** The weights [rows, cols] of a head, as a view. */
export function headWeights(map: AttentionMap, layer: number, head: number): Float32Array {
  const size = map.rows * map.cols;
  const start = (layer * map.heads + head) * size;
  return map.weights.subarray(start, start + size);
}
