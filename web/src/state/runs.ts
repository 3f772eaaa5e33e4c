// The trace that a tab shows: a recorded one, or one that a model computes for a text.
import { useEffect } from "preact/hooks";
import {
  askTrace,
  bundle,
  opened,
  openedInputs,
  sceneTrace,
  textModels,
  serverError,
  shown,
  type ModelEntry,
  type TraceRequest,
} from "./api";
import firstTexts from "../../../regard/look/page/first_texts.json";
import { useAnswer } from "./requests";
import type { Trace } from "./trace";
import { field } from "./url";

export const text = field<string>("text", "", { shared: true });
export const model = field<string>("model", "", { shared: true });
export const trace = field<string>("trace", "", { shared: true }); // the name of an opened trace
const second = field<string>("with", "", { shared: true }); // the name of a second trace, opened together with the first

/** The text of each kind of model until another one is typed. */
const EXAMPLES: Record<string, string> = firstTexts;

/** The sentence of a translator until another one is typed; a trace of it is recorded. */
export const FIRST_SENTENCE = firstTexts.translator;

/** A trace, or why there is none yet. While a new trace is computed, the previous one stays. */
export interface Run {
  trace: Trace | null;
  busy: boolean;
  waiting: string; // the message to show while the model works
  error: string;
}

/** Where the current trace comes from: a recorded trace or a model. */
export type Origin =
  { kind: "trace"; name: string; trace: Trace } | { kind: "model"; entry: ModelEntry } | { kind: "none" };

/** The trace or model that the user picked, otherwise the preferred model of the tab, or the page's default. */
export function origin(preferred = ""): Origin {
  if (sceneTrace.value) return { kind: "trace", name: "scene", trace: sceneTrace.value };
  const models = textModels();
  const picked = opened.value.find(({ name }) => name === trace.value);
  if (picked) return { kind: "trace", ...picked };
  const entry =
    models.find(({ name }) => name === model.value) ??
    (opened.value.length === 0 ? models.find(({ name }) => name === preferred) : undefined) ??
    models.find((entry) => entry.default) ??
    // The default model reads no text: another one shows what this tab is for.
    (opened.value.length === 0 ? models.find(({ name }) => name === "fr-en") : undefined);
  if (entry) return { kind: "model", entry };
  return opened.value.length > 0 ? { kind: "trace", ...opened.value[0] } : { kind: "none" };
}

/** The trace opened together with the first one: of another model, or of the same model with heads switched off. */
export function companion(): Trace | null {
  const named = opened.value.find(({ name }) => name === second.value);
  return (named ?? (bundle ? opened.value[1] : undefined))?.trace ?? null;
}

/** The input of a model: the text that was typed, or an example for this kind of model. */
export function textFor(entry: ModelEntry): string {
  return text.value || (EXAMPLES[entry.kind] ?? EXAMPLES.embedder);
}

/** The message to show while a model loads or runs. */
export function waitingFor(entry: ModelEntry): string {
  return entry.state === "ready" ? `Running ${entry.name} …` : `Loading the model ${entry.name} …`;
}

/** The trace of a request; null sends none. */
export function useRun(request: TraceRequest | null): Run {
  const key = request === null ? "" : `trace ${JSON.stringify(request)}`;
  const { value, busy, error } = useAnswer(key, (stop) => askTrace(request!, stop));
  return { trace: value, busy, waiting: "", error };
}

/** The run of a tab: the recorded trace, or the model's trace of the text with the options of the tab. */
export function useOrigin(options: Partial<TraceRequest> = {}): Run & { origin: Origin } {
  const from = origin();
  const run = useRun(from.kind === "model" ? { model: from.entry.name, text: textFor(from.entry), ...options } : null);
  if (from.kind === "trace") return { trace: from.trace, busy: false, waiting: "", error: "", origin: from };
  if (from.kind === "model") return { ...run, waiting: run.busy ? waitingFor(from.entry) : "", origin: from };
  if (bundle && openedInputs.value.length > 0) {
    const error = "This page is a saved file with the trace of an image, a series or a recording, and none of a text.";
    return { trace: null, busy: false, waiting: "", error, origin: from };
  }
  return {
    trace: null,
    busy: true,
    waiting: serverError.value ? "" : "Loading the list of models …",
    error: "",
    origin: from,
  };
}

/** Registers the traces that are on the page, for exports. */
export function useShown(traces: (Trace | null)[]): void {
  useEffect(() => {
    shown.value = traces.filter((trace) => trace !== null);
  }, traces);
}
