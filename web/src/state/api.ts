// The data behind the page: it comes from the server, or from the single HTML file that contains the page.
import { signal } from "@preact/signals";
import { INPUT_FORMAT, readInputTrace, type InputTrace } from "./input_trace";
import { decodeArray, readTrace, type Json, type Numbers, type Trace } from "./trace";
import { SiteServer, type Site } from "./site";
import { parse, tab } from "./url";

export type { Json };

export interface ModelAbout {
  kind: string;
  layers: Record<string, number>;
  heads: number;
  width: number;
  parameters: number;
  positions?: string;
  position_parameter?: string | null;
  trained_length?: number | null; // the longest text in training, in tokens
}

/** What a model reads; an image model may also read videos. */
export type InputKind = "text" | "image" | "series" | "sound";

export interface ModelEntry {
  name: string;
  kind: string; // what regard.load returns, such as "translator"
  architecture: string; // the kind of its network, such as "rnn-lm"
  reads: InputKind;
  state: "waiting" | "loading" | "ready" | "failed";
  error: string | null;
  default: boolean;
  about: ModelAbout | null;
}

export interface Served {
  models: ModelEntry[];
  traces: { name: string }[];
  limits: { characters: number; tokens: number; file_bytes: number };
  votes?: boolean; // whether phones of a class can reach the server
}

export interface Scene {
  id: string;
  tag: string;
  title: string;
  question: string;
  choices: string[];
  right: number; // the right choice
  reasons: string[]; // why a choice is wrong; empty for the right one
  answer: string;
  state: string; // of the tab, one step before the answer
  answer_state: string; // what the answer changes in it
  before: string[] | null; // the parts that are shown before the answer, if not all
  show: string[]; // the parts of the tab that belong to the scene, by their test ids
  trace: string | null;
  notes?: string;
  curves?: MeasuredCurves;
}

/** BLEU of several models by the length of the source, with 95% intervals. */
export interface MeasuredCurves {
  title: string;
  note: string;
  lengths: string[]; // the ranges of lengths
  words: number[]; // the middle of each range
  systems: { name: string; bleu: number[]; low: number[]; high: number[] }[];
}

/** The data embedded in a single-file page; exported pictures embed the same. */
export interface Bundle {
  traces: Json[];
  site?: Site;
  scenes?: { index: Scene[]; files: Record<string, Json> };
  state: string;
}

export interface OpenedTrace {
  name: string;
  trace: Trace;
}

export interface TraceRequest {
  model: string;
  text: string;
  search?: Json;
  target?: string | null;
  prefix?: number[];
  top?: number;
  off?: { map: string; layer: number; head: number }[];
  vectors?: boolean;
  max_tokens?: number | null;
}

const element = document.getElementById("regard-data");

/** The data embedded in this file; null if a server provides the data. */
export const bundle: Bundle | null = element ? (JSON.parse(element.textContent ?? "") as Bundle) : null;

/** What this page runs on if it has no server: a site with models that the browser runs. */
export const site: Site | null = window.regardSite ?? bundle?.site ?? null;
const siteServer = site && new SiteServer(site);

/** Whether a model can be asked: by a server, or in the browser. */
export const hasModels = bundle === null || site !== null;

/** The models and traces of the server; null until it has answered, and always in a single file. */
export const served = signal<Served | null>(null);

/** Whether the server asks for its API key, and whether a wrong one was sent. */
export const keyWanted = signal<"" | "missing" | "wrong">("");

/** Why the server does not answer; empty if it does. */
export const serverError = signal("");

/** Recorded traces, which need no model: embedded in this file, given on the command line, or opened by the user. */
export const opened = signal<OpenedTrace[]>([]);

/** Recorded traces of images, series and recordings. */
export const openedInputs = signal<{ name: string; trace: InputTrace }[]>([]);

/** The models that read text; the others have a tab of their own. */
export function textModels(): ModelEntry[] {
  return (served.value?.models ?? []).filter(({ reads }) => reads === "text");
}

/** The trace of the current lecture scene; the tab inside the scene shows it instead of running a model. */
export const sceneTrace = signal<Trace | null>(null);

/** The traces that the open tab shows; exported files embed them. */
export const shown = signal<Trace[]>([]);

/** The trace of an input that the open tab shows. */
export const shownInput = signal<InputTrace | null>(null);

/** The traces on the page as JSON. */
export function shownData(): Json[] {
  return [...shown.value, ...(shownInput.value ? [shownInput.value] : [])].map(({ raw }) => raw);
}

/** The API key that was entered. It is stored for this browser tab only and never appears in a link. */
function key(): string {
  return sessionStorage.getItem("regard-key") ?? "";
}

/** Stores an API key and connects again. */
export function setKey(entered: string): void {
  sessionStorage.setItem("regard-key", entered);
  keyWanted.value = "";
  serverError.value = "";
  void start();
}

/** Sends a request to the server, a Blob as it is and an object as JSON; throws an Error with the server's message if it refuses. */
export async function ask<T>(path: string, body?: object, stop?: AbortSignal): Promise<T> {
  if (siteServer) return (await siteServer.ask(path, (body as Json) ?? null, stop)) as T;
  if (bundle) throw new Error("This page is a saved file and has no model. Run `regard explore` to use one.");
  let answer: Response;
  try {
    const headers: Record<string, string> = key() ? { Authorization: `Bearer ${key()}` } : {};
    if (body) headers["Content-Type"] = body instanceof Blob ? "application/octet-stream" : "application/json";
    answer = await fetch(path, {
      method: body ? "POST" : "GET",
      headers,
      body: body instanceof Blob ? body : body && JSON.stringify(body),
      signal: stop,
    });
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new Error("The server does not answer. Is `regard explore` still running?");
  }
  const content = await answer.json().catch((error) => {
    if (stop?.aborted) throw error; // a request that was given up in the middle of its answer has none
    return { error: `The server answered with status ${answer.status} and no message.` };
  });
  if (answer.status === 401) keyWanted.value = key() ? "wrong" : "missing";
  if (!answer.ok) throw new Error(content.error ?? `The server answered with status ${answer.status}.`);
  return content as T;
}

export async function askTrace(request: TraceRequest, stop?: AbortSignal): Promise<Trace> {
  const trace = readTrace(await ask<Json>("api/trace", request, stop));
  await refresh(request.model);
  return trace;
}

/** Asks for the models again after the first request to one: it has loaded the model, which now has a description. */
async function refresh(model: string): Promise<void> {
  const entry = served.value?.models.find(({ name }) => name === model);
  if (entry?.state !== "ready") served.value = await ask<Served>("api/models");
}

/** The trace of an image, a series or a recording: of a file, or of an example by its name. */
export async function askInput(
  request: { model: string; example?: string; at?: number },
  file: File | null,
  stop?: AbortSignal,
): Promise<InputTrace> {
  const query = new URLSearchParams({ model: request.model });
  if (file) query.set("name", file.name.slice(-200));
  else query.set("example", request.example ?? "");
  if (request.at !== undefined) query.set("at", String(request.at));
  const trace = readInputTrace(await ask<Json>(`api/input?${query}`, file ?? new Blob(), stop));
  await refresh(request.model);
  return trace;
}

export interface Example {
  name: string;
  thumbnail?: Json;
}

export async function askExamples(model: string): Promise<Example[]> {
  const { examples } = await ask<{ examples: Example[] }>(`api/examples?${new URLSearchParams({ model })}`);
  await refresh(model);
  return examples;
}

export function askInside(request: Json, stop?: AbortSignal): Promise<Json> {
  return ask<Json>("api/inside", request, stop);
}

export async function askParameter(model: string, name: string): Promise<Numbers> {
  const query = new URLSearchParams({ model, name });
  return decodeArray(await ask<Json>(`api/parameters?${query}`), name);
}

export async function sceneIndex(): Promise<Scene[]> {
  if (bundle) return bundle.scenes?.index ?? [];
  return ask<Scene[]>("scenes/index.json");
}

/** The recorded trace of a scene as JSON. */
export async function sceneFile(name: string): Promise<Json> {
  if (!bundle) return ask<Json>(`scenes/${encodeURIComponent(name)}`);
  const file = bundle.scenes?.files[name];
  if (!file) throw new Error(`This file does not contain ${name}.`);
  return file;
}

/** Makes a trace available to the tabs. */
export function addTrace(raw: Json, name?: string): void {
  if (raw.format === INPUT_FORMAT) {
    const input = readInputTrace(raw);
    const title = name ?? `${input.model.name}: ${input.source}`;
    openedInputs.value = [...openedInputs.value.filter(({ name }) => name !== title), { name: title, trace: input }];
    return;
  }
  const trace = readTrace(raw);
  const title = name ?? `${trace.model.name}: ${(trace.output || trace.source || "trace").slice(0, 40)}`;
  opened.value = [...opened.value.filter(({ name }) => name !== title), { name: title, trace }];
}

/** Loads the list of models and traces, and polls it while models are loading. */
export async function start(): Promise<void> {
  if (bundle) {
    bundle.traces.forEach((raw, i) => addTrace(raw, bundle.traces.length > 1 ? `trace ${i + 1}` : "trace"));
    if (!site) return;
  }
  try {
    const first = await ask<Served>("api/models");
    const chosen = first.models.find((model) => model.default);
    if (chosen && chosen.reads !== "text" && !parse(location.hash).has("tab")) tab.value = "input";
    served.value = first;
    for (const { name } of first.traces) addTrace(await ask<Json>(`api/traces/${encodeURIComponent(name)}`), name);
    const onlyInputs = !chosen && openedInputs.value.length > 0 && opened.value.length === 0;
    if (onlyInputs && !parse(location.hash).has("tab")) tab.value = "input";
    while (served.value.models.some((model) => model.state === "loading")) {
      await new Promise((resolve) => setTimeout(resolve, 400));
      served.value = await ask<Served>("api/models");
    }
  } catch (error) {
    serverError.value = (error as Error).message;
  }
}
