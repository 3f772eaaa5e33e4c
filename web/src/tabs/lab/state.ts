// The state of the Lab: a preset from the lectures and the changes made to it. All of it is in the URL.
import { computed, signal } from "@preact/signals";
import { field, reset, type Field } from "../../state/url";
import { compute, type LabInput, type Rows, type Score } from "./attention";
import { PRESETS } from "./presets";

export type MatrixName = "q" | "k" | "v" | "w" | "wq" | "wk";
export type StageName = "raw" | "scaled" | "masked" | "weights" | "out";
export const STAGES: readonly StageName[] = ["raw", "scaled", "masked", "weights", "out"];

export const presetId = field("preset", "d6");
export const score = field<Score | "">("score", "");
export const mask = field("mask", "");
const temperatureField = field("temperature", 1);
export const step = field("step", STAGES.length);
export const cell = field("cell", "");
const MIN_TEMPERATURE = 0.01;
const MAX_TEMPERATURE = 1000;
const MAX_ENTRY = 1e6; // absolute value: products of larger numbers would overflow the softmax
const edited: Record<MatrixName, Field<string>> = {
  q: field("q", ""),
  k: field("k", ""),
  v: field("v", ""),
  w: field("w", ""),
  wq: field("wq", ""),
  wk: field("wk", ""),
};

export const preset = computed(() => PRESETS.find(({ id }) => id === presetId.value) ?? PRESETS[0]);
export const scoreNow = computed<Score>(() => score.value || preset.value.score);
export const maskNow = computed(() => mask.value || preset.value.mask);
/** The temperature of the address if the softmax can be computed with it, otherwise 1. */
export const temperature = {
  get value() {
    const { value } = temperatureField;
    return value >= MIN_TEMPERATURE && value <= MAX_TEMPERATURE ? value : 1;
  },
  set value(next: number) {
    temperatureField.value = next;
  },
};
/** Whether the mask is set cell by cell. */
export const customMask = computed(() => maskNow.value !== "none" && maskNow.value !== "causal");

/** Invalid inputs by cell ("k.0.1"); the last valid number is used until they are corrected. */
export const invalidInputs = signal<ReadonlyMap<string, string>>(new Map());

/** Whether a number may be an entry of a matrix. */
export function validEntry(value: number): boolean {
  return Math.abs(value) <= MAX_ENTRY;
}

/** Reads a matrix from the URL, written as 2_-1_0*-2_1_4. */
function unpack(text: string): Rows | null {
  const rows = text.split("*").map((row) => row.split("_").map(Number));
  const valid =
    rows.length <= 12 &&
    rows.every((row) => row.length === rows[0].length && row.length <= 12 && row.every(validEntry));
  return text && valid ? rows : null;
}

function pack(rows: Rows): string {
  return rows.map((row) => row.join("_")).join("*");
}

/** The default parameters of a score: the identity, or ones. */
function defaultParameter(name: "w" | "wq" | "wk", queryWidth: number, keyWidth: number): Rows {
  const eye = (rows: number, cols: number) =>
    Array.from({ length: rows }, (_, i) => Array.from({ length: cols }, (_, j) => (i === j ? 1 : 0)));
  if (name === "wq") return eye(keyWidth, queryWidth);
  if (name === "wk") return eye(keyWidth, keyWidth);
  return scoreNow.value === "additive" ? [Array.from({ length: keyWidth }, () => 1)] : eye(queryWidth, keyWidth);
}

export const matrices = computed<Record<MatrixName, Rows>>(() => {
  const current = (name: "q" | "k" | "v") => unpack(edited[name].value) ?? preset.value[name];
  const [q, k, v] = [current("q"), current("k"), current("v")];
  const parameter = (name: "w" | "wq" | "wk") => {
    const initial = defaultParameter(name, q[0].length, k[0].length);
    const typed = unpack(edited[name].value);
    return typed && typed.length === initial.length && typed[0].length === initial[0].length ? typed : initial;
  };
  return { q, k, v, w: parameter("w"), wq: parameter("wq"), wk: parameter("wk") };
});

export function setMatrix(name: MatrixName, rows: Rows): void {
  const initial =
    name === "q" || name === "k" || name === "v"
      ? preset.peek()[name]
      : defaultParameter(name, matrices.peek().q[0].length, matrices.peek().k[0].length);
  edited[name].value = pack(rows) === pack(initial) ? "" : pack(rows);
}

/** Loads a preset and discards all changes. */
export function choosePreset(id: string): void {
  invalidInputs.value = new Map();
  reset(["q", "k", "v", "w", "wq", "wk", "score", "mask", "temperature", "cell", "step"]);
  presetId.value = id;
}

/** The mask (m, n) for its text form. A causal mask is aligned to the lower right: the last query sees every key. */
export function maskOf(text: string, m: number, n: number): boolean[][] | null {
  if (text === "none") return null;
  const rows = text.split("-");
  const open = (i: number, j: number) => (text === "causal" ? j <= i + (n - m) : rows[i]?.[j] !== "0");
  return Array.from({ length: m }, (_, i) => Array.from({ length: n }, (_, j) => open(i, j)));
}

export const input = computed<LabInput>(() => {
  const { q, k, v, w, wq, wk } = matrices.value;
  return {
    q,
    k,
    v,
    w,
    wq,
    wk,
    score: scoreNow.value,
    mask: maskOf(maskNow.value, q.length, k.length),
    temperature: temperature.value,
  };
});

export const result = computed(() => compute(input.value));

/** Masks or unmasks a cell. */
export function toggleMask(i: number, j: number): void {
  const { q, k } = input.peek();
  const rows = input.peek().mask ?? q.map(() => k.map(() => true));
  mask.value = rows
    .map((row, r) => row.map((open, c) => ((r === i && c === j) !== open ? "1" : "0")).join(""))
    .join("-");
}

/** Resizes the matrices to m queries and n keys of width d_k and values of width d_v; new entries are 0. */
export function resize(m: number, n: number, queryWidth: number, valueWidth: number): void {
  const fit = (rows: Rows, height: number, width: number) =>
    Array.from({ length: height }, (_, i) => Array.from({ length: width }, (_, j) => rows[i]?.[j] ?? 0));
  const { q, k, v } = matrices.peek();
  setMatrix("q", fit(q, m, queryWidth));
  setMatrix("k", fit(k, n, queryWidth));
  setMatrix("v", fit(v, n, valueWidth));
  cell.value = "";
}

/** Names of the rows of Q, K and V. */
export const names = computed(() => {
  const { q, k } = matrices.value;
  const { queries, keys } = preset.value;
  const label = (letter: string, words: string[] | undefined, length: number) =>
    Array.from({ length }, (_, i) => words?.[i] ?? `${letter}${i + 1}`);
  return {
    queries: label("q", queries, q.length),
    keys: label("k", keys, k.length),
    values: label("v", keys, k.length),
  };
});
