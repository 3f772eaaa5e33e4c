// The state of the tab for images, series and recordings: the model, the input, and which attention is shown.
import { signal } from "@preact/signals";
import { clamp, takeGrid, type Choice, type Grid } from "../../maths/grid";
import {
  askExamples,
  askInput,
  openedInputs,
  served,
  type Example,
  type InputKind,
  type ModelEntry,
} from "../../state/api";
import type { InputMap, InputTrace, Place } from "../../state/input_trace";
import { useAnswer, type Answer } from "../../state/requests";
import { trace as traceName } from "../../state/runs";
import { field, reset } from "../../state/url";
import { quoted } from "../../text/python";

export const reader = field("net", "");
export const example = field("example", "");
export const at = field("at", -1); // the row of a series that is forecast first; -1: as the server chooses
export const stack = field("map", ""); // the title of a map
export const variable = field("row", 0); // of a series
export const layer = field("layer", "all");
export const head = field("head", "mean");
export const query = field("query", ""); // a number, "mean", or empty for the first token or the mean

/** A file that was chosen or dropped. It stays in the browser's memory, so a link cannot contain it. */
export const file = signal<{ file: File; number: number } | null>(null);
let files = 0;

/** Shows a new input; `keep` are fields that do not change. */
export function clearInput(): void {
  file.value = null;
  reset([example.name, at.name, query.name]);
}

export function openFile(chosen: File): void {
  clearInput();
  traceName.value = "";
  file.value = { file: chosen, number: ++files };
}

/** The models that read no text. */
export function inputModels(): ModelEntry[] {
  return (served.value?.models ?? []).filter(({ reads }) => reads !== "text");
}

/** What is shown: a recorded trace, or a model with an input. */
export type Source = { kind: "trace"; name: string; trace: InputTrace } | { kind: "model"; entry: ModelEntry } | null;

export function source(): Source {
  const recorded = openedInputs.value.find(({ name }) => name === traceName.value);
  if (recorded) return { kind: "trace", ...recorded };
  const models = inputModels();
  const entry = models.find(({ name }) => name === reader.value) ?? models.find((model) => model.default) ?? models[0];
  if (entry) return { kind: "model", entry };
  return openedInputs.value.length > 0 ? { kind: "trace", ...openedInputs.value[0] } : null;
}

const TITLES: Record<InputKind, string> = { text: "Input", image: "Image", series: "Series", sound: "Sound" };
const FORMS = { pixels: "image", lines: "series", bands: "sound" } as const;

/** The kinds of input that the models and the opened traces have. */
function kinds(): InputKind[] {
  const all = [
    ...inputModels().map(({ reads }) => reads),
    ...openedInputs.value.map(({ trace }) => FORMS[trace.form]),
  ];
  return [...new Set(all)];
}

/** The title of the tab: the kind of input if there is only one. */
export function inputTitle(): string {
  const known = kinds();
  return known.length === 1 ? TITLES[known[0]] : TITLES.text;
}

/** The title of the view. */
export function titleOf(trace: InputTrace | null, entry: ModelEntry | null): string {
  if (trace) return trace.frames > 1 ? "Video" : TITLES[FORMS[trace.form]];
  return entry ? TITLES[entry.reads] : inputTitle();
}

export function hasInputs(): boolean {
  return kinds().length > 0;
}

/** The examples of a model; an empty name sends no request. */
export function useExamples(model: string): Answer<Example[]> {
  return useAnswer(model && `examples ${model}`, () => askExamples(model));
}

/** The trace of the chosen file, or of the chosen or first example. */
export function useInput(entry: ModelEntry | null, examples: Example[] | null): Answer<InputTrace> {
  const chosen = file.value;
  const name = example.value || examples?.[0]?.name || "";
  const row = entry?.reads === "series" && at.value >= 0 ? { at: at.value } : {};
  const request = { model: entry?.name ?? "", ...(chosen ? {} : { example: name }), ...row };
  const key = entry && (chosen || name) ? `input ${JSON.stringify(request)} ${chosen?.number ?? ""}` : "";
  return useAnswer(key, (stop) => askInput(request, chosen?.file ?? null, stop));
}

/** The maps of the shown variable. */
export function mapsOf(trace: InputTrace): InputMap[] {
  const row = clamp(variable.value, trace.rows);
  return trace.maps.filter((map) => map.row === null || map.row === row);
}

/** Which attention is shown: the map, the choice of layer and head, its weights, the queries and the keys. */
export interface View {
  trace: InputTrace;
  map: InputMap;
  choice: Choice;
  grid: Grid;
  queries: Place[];
  keys: Place[];
  query: number | "mean"; // that was picked, or the default
}

export function viewOf(trace: InputTrace): View | null {
  const maps = mapsOf(trace);
  const map = maps.find(({ title }) => title === stack.value) ?? maps[0];
  if (!map) return null;
  const { attention } = map;
  const choice: Choice = {
    layer: layer.value === "all" ? "all" : clamp(Number(layer.value), attention.layers),
    head: head.value === "mean" || head.value === "max" ? head.value : clamp(Number(head.value), attention.heads),
  };
  const [queries, keys] = [trace.axes[attention.query], trace.axes[attention.key]];
  return { trace, map, choice, grid: takeGrid(attention, choice), queries, keys, query: readQuery(queries) };
}

function readQuery(queries: Place[]): number | "mean" {
  const picked = Number(query.value);
  if (query.value !== "" && Number.isInteger(picked) && picked >= 0 && picked < queries.length) return picked;
  return query.value === "mean" || queries[0].box ? "mean" : 0;
}

/** The weights of the keys for a query, or their mean over all queries. */
export function weightsFor({ values, rows, cols }: Grid, query: number | "mean"): Float32Array {
  if (query !== "mean") return values.slice(query * cols, (query + 1) * cols);
  const mean = new Float32Array(cols);
  for (let i = 0; i < values.length; i++) mean[i % cols] += values[i] / rows;
  return mean;
}

export function nameOf(queries: Place[], query: number | "mean"): string {
  return query === "mean" ? "the mean of all queries" : queries[query].text;
}

const EXAMPLE_FILES: Record<InputKind, string> = { text: "", image: "picture.png", series: "series.csv", sound: "sound.wav" };

export function inputCode(): string {
  const from = source();
  if (from?.kind !== "model") {
    return [
      "from regard.look import InputTrace",
      "",
      'trace = InputTrace.load("trace.json")',
      "weights = trace.maps[0].attention.weights  # [layers, heads, queries, keys]",
      "",
    ].join("\n");
  }
  const { entry } = from;
  const input = file.value ? quoted(file.value.file.name) : quoted(EXAMPLE_FILES[entry.reads]);
  const row = entry.reads === "series" && at.value >= 0 ? `, at=${at.value}` : "";
  const given = example.value && !file.value ? `model.examples()[${quoted(example.value)}]` : input;
  return [
    "import regard",
    "",
    `model = regard.load(${quoted(entry.name)})`,
    `trace = model.trace(${given}${row})`,
    "print(trace.output, trace.scores[:3])",
    "weights = trace.maps[0].attention.weights  # [layers, heads, queries, keys]",
    "",
  ].join("\n");
}
