// What the tabs look at: a trace that is there, or one that a model makes of a text.
import { useEffect } from "preact/hooks";
import {
  askTrace,
  bundle,
  opened,
  sceneTrace,
  served,
  serverError,
  shown,
  type ModelEntry,
  type TraceRequest,
} from "./api";
import { useAnswer } from "./requests";
import type { Trace } from "./trace";
import { field } from "./url";

export const text = field<string>("text", "", { shared: true });
export const model = field<string>("model", "", { shared: true });
export const trace = field<string>("trace", "", { shared: true }); // an opened one, by its name
const second = field<string>("with", "", { shared: true }); // another one that was opened with it

const EXAMPLES = {
  translator: "Jane visite l'Afrique en septembre",
  writer: "ROMEO:",
  embedder: "The cat sleeps in the garden.",
};

/** A trace, or why there is none yet. While the next one is on its way the last one stays. */
export interface Run {
  trace: Trace | null;
  busy: boolean;
  waiting: string; // what to tell meanwhile
  error: string;
}

/** Where traces come from now: one that is there, or a model by its name. */
export type Origin =
  { kind: "trace"; name: string; trace: Trace } | { kind: "model"; entry: ModelEntry } | { kind: "none" };

/** What the reader picked, else what the page was opened with. */
export function origin(): Origin {
  if (sceneTrace.value) return { kind: "trace", name: "scene", trace: sceneTrace.value };
  const models = served.value?.models ?? [];
  const picked = opened.value.find((one) => one.name === trace.value);
  if (picked) return { kind: "trace", ...picked };
  const entry = models.find((one) => one.name === model.value) ?? models.find((one) => one.default);
  if (entry) return { kind: "model", entry };
  return opened.value.length > 0 ? { kind: "trace", ...opened.value[0] } : { kind: "none" };
}

/** The trace that was opened along with the first: of another model, or of the same one with heads switched off. */
export function companion(): Trace | null {
  const named = opened.value.find((one) => one.name === second.value);
  return (named ?? (bundle ? opened.value[1] : undefined))?.trace ?? null;
}

/** The text that a model is asked about: what was typed, or an example for its kind. */
export function textFor(entry: ModelEntry): string {
  return text.value || EXAMPLES[entry.kind];
}

/** What to tell while a model works: the first text also loads it. */
export function waitingFor(entry: ModelEntry): string {
  return entry.state === "ready" ? `${entry.name} is at work …` : `The model ${entry.name} is being loaded …`;
}

/** The trace of a request; null asks nothing. */
export function useRun(request: TraceRequest | null): Run {
  const key = request === null ? "" : `trace ${JSON.stringify(request)}`;
  const { found, busy, error } = useAnswer(key, (stop) => askTrace(request!, stop));
  return { trace: found, busy, waiting: "", error };
}

/** The run of a tab: the opened trace as it is, or what the model makes of the text with the tab's own wishes. */
export function useOrigin(wishes: Partial<TraceRequest> = {}): Run & { origin: Origin } {
  const from = origin();
  const run = useRun(from.kind === "model" ? { model: from.entry.name, text: textFor(from.entry), ...wishes } : null);
  if (from.kind === "trace") return { trace: from.trace, busy: false, waiting: "", error: "", origin: from };
  if (from.kind === "model") return { ...run, waiting: run.busy ? waitingFor(from.entry) : "", origin: from };
  return {
    trace: null,
    busy: true,
    waiting: serverError.value ? "" : "Asking for the models …",
    error: "",
    origin: from,
  };
}

/** Tells the exports what is on the page. */
export function useShown(traces: (Trace | null)[]): void {
  useEffect(() => {
    shown.value = traces.filter((one) => one !== null);
  }, traces);
}
