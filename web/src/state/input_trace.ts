// Traces of images, videos, series and recordings (regard-input/1): types, decoding and checks.
import { bytes, decodeArray, readMap, type AttentionMap, type Json } from "./trace";

export const INPUT_FORMAT = "regard-input/1";

/** A rectangle of the grid, in cells. */
export interface Box {
  frame: number;
  left: number;
  top: number;
  width: number;
  height: number;
}

/** A query or a key. */
export interface Place {
  text: string;
  box: Box | null; // null: it has no place in the input, such as the class token or a word
}

export interface Ruler {
  title: string;
  start: number;
  step: number;
  labels: string[];
}

export interface InputMap {
  title: string;
  attention: AttentionMap;
  row: number | null; // of the grid: the variable of a series that it belongs to
}

export interface Continuation {
  values: Grid2;
  truth: Grid2 | null;
  first: number;
  least: number;
  most: number;
}

interface Grid2 {
  rows: number;
  cols: number;
  values: ArrayLike<number>;
}

export type Form = "pixels" | "lines" | "bands";

export interface InputTrace {
  model: { name: string; kind: string };
  form: Form;
  frames: number;
  rows: number;
  cols: number;
  channels: number;
  values: ArrayLike<number>; // [frames, rows, cols, channels]
  axes: Record<string, Place[]>;
  maps: InputMap[];
  columnRuler: Ruler;
  rowRuler: Ruler;
  source: string;
  output: string;
  scores: { text: string; probability: number }[];
  continuation: Continuation | null;
  notes: string[];
  raw: Json; // the original JSON, for exported files
}

/** Reads and checks a trace; throws an Error that says what is wrong with it. */
export function readInputTrace(raw: Json): InputTrace {
  try {
    return readParts(raw);
  } catch (error) {
    if (error instanceof TypeError) throw new Error("not a trace: a part is missing or has the wrong type");
    throw error;
  }
}

function readParts(raw: Json): InputTrace {
  if (raw.format !== INPUT_FORMAT) throw new Error(`the format is ${raw.format}; this page reads ${INPUT_FORMAT}`);
  if (!["pixels", "lines", "bands"].includes(raw.form)) throw new Error(`unknown form ${raw.form}`);
  const axes: Record<string, Place[]> = {};
  for (const [name, places] of Object.entries<Json>(raw.axes)) axes[name] = places.map(readPlace);
  const lengths = Object.fromEntries(Object.entries(axes).map(([name, places]) => [name, places.length]));
  // Bytes stay bytes: a video has many.
  const isBytes = typeof raw.values.uint8 === "string";
  const { shape, values } = isBytes
    ? { shape: raw.values.shape as number[], values: bytes(raw.values.uint8) }
    : decodeArray(raw.values, "values");
  const [frames, rows, cols, channels] = shape;
  if (values.length !== frames * rows * cols * channels) throw new Error("values: the numbers do not match the shape");
  return {
    model: raw.model as InputTrace["model"],
    form: raw.form,
    frames,
    rows,
    cols,
    channels,
    values,
    axes,
    maps: raw.maps.map((map: Json, i: number) => ({
      title: String(map.title),
      attention: readMap(`maps[${i}]`, map.attention, lengths),
      row: map.row ?? null,
    })),
    columnRuler: readRuler(raw.columns),
    rowRuler: readRuler(raw.rows),
    source: raw.source ?? "",
    output: raw.output ?? "",
    scores: raw.scores ?? [],
    continuation: raw.continuation ? readContinuation(raw.continuation) : null,
    notes: raw.notes ?? [],
    raw,
  };
}

function readPlace({ text, box }: Json): Place {
  if (!box) return { text, box: null };
  const [frame, left, top, width, height] = box as number[];
  return { text, box: { frame, left, top, width, height } };
}

function readRuler(ruler: Json): Ruler {
  return { title: ruler.title, start: ruler.start ?? 0, step: ruler.step ?? 1, labels: ruler.labels ?? [] };
}

function readContinuation(raw: Json): Continuation {
  const grid = (packed: Json, where: string): Grid2 => {
    const { shape, values } = decodeArray(packed, where);
    return { rows: shape[0], cols: shape[1], values };
  };
  return {
    values: grid(raw.values, "continuation.values"),
    truth: raw.truth ? grid(raw.truth, "continuation.truth") : null,
    first: raw.first ?? 0,
    least: raw.least ?? 0,
    most: raw.most ?? 0,
  };
}

/** The name of a column: its label, or its number in the units of the ruler. */
export function columnName({ columnRuler: ruler }: InputTrace, column: number): string {
  const label = ruler.labels[column];
  if (label !== undefined) return label;
  const digits = ruler.step < 1 ? Math.ceil(-Math.log10(ruler.step)) : 0;
  return `${ruler.title} ${(ruler.start + column * ruler.step).toFixed(digits)}`;
}
