// Where the data comes from: the server that shows the page, or the file that the page was written into.
import { signal } from "@preact/signals";
import { readTrace, type Json, type Trace } from "./trace";

export type { Json };

export interface ModelAbout {
  kind: string;
  layers: Record<string, number>;
  heads: number;
  width: number;
  parameters: number;
  positions?: string;
  position_parameter?: string | null;
}

export interface ModelEntry {
  name: string;
  kind: "translator" | "writer" | "embedder";
  state: "waiting" | "loading" | "ready" | "failed";
  error: string | null;
  default: boolean;
  about: ModelAbout | null;
}

export interface Served {
  models: ModelEntry[];
  traces: { name: string }[];
  limits: { characters: number; tokens: number };
}

export interface Scene {
  id: string;
  tag: string;
  title: string;
  question: string;
  choices?: string[];
  answer: string;
  state: string;
  trace: string | null;
  notes?: string;
}

/** What a single-file page brings along instead of a server; exported pictures hold the same. */
export interface Bundle {
  traces: Json[];
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

/** What this file brings along; null where a server answers. */
export const bundle: Bundle | null = element ? (JSON.parse(element.textContent ?? "") as Bundle) : null;

/** What the server has; null until it answered, and in a single file. */
export const served = signal<Served | null>(null);

/** Whether the server wants its key, and why if one was given. */
export const keyWanted = signal<"" | "missing" | "wrong">("");

/** Why the server does not answer, or "". */
export const serverError = signal("");

/** Traces that need no model: of this file, of the command line, or opened by hand. */
export const opened = signal<OpenedTrace[]>([]);

/** The trace of the lecture's scene; the tab inside the scene shows it and asks no model. */
export const sceneTrace = signal<Trace | null>(null);

/** The traces that the open tab shows; exported files bring them along. */
export const shown = signal<Trace[]>([]);

/** The key that was typed in; only this tab of the browser remembers it, and no link has it. */
function key(): string {
  return sessionStorage.getItem("regard-key") ?? "";
}

/** Takes a key and asks again. */
export function giveKey(given: string): void {
  sessionStorage.setItem("regard-key", given);
  keyWanted.value = "";
  serverError.value = "";
  void start();
}

/** Asks the server; its refusal is an Error with its words. */
export async function ask<T>(path: string, body?: object, stop?: AbortSignal): Promise<T> {
  if (bundle) throw new Error("This page is a file and has no model. Start `regard explore` to ask one.");
  let answer: Response;
  try {
    const headers: Record<string, string> = key() ? { Authorization: `Bearer ${key()}` } : {};
    if (body) headers["Content-Type"] = "application/json";
    answer = await fetch(path, {
      method: body ? "POST" : "GET",
      headers,
      body: body && JSON.stringify(body),
      signal: stop,
    });
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new Error("The server does not answer. Is `regard explore` still running?");
  }
  const content = await answer.json().catch(() => ({ error: `The server answered ${answer.status} without a word.` }));
  if (answer.status === 401) keyWanted.value = key() ? "wrong" : "missing";
  if (!answer.ok) throw new Error(content.error ?? `The server answered ${answer.status}.`);
  return content as T;
}

export async function askTrace(request: TraceRequest, stop?: AbortSignal): Promise<Trace> {
  const found = readTrace(await ask<Json>("api/trace", request, stop));
  // The first text also loads a model; what it is like is known from then on.
  const known = served.value?.models.find((one) => one.name === request.model);
  if (known?.state !== "ready") served.value = await ask<Served>("api/models");
  return found;
}

export function askInside(request: Json, stop?: AbortSignal): Promise<Json> {
  return ask<Json>("api/inside", request, stop);
}

export async function askParameter(model: string, name: string): Promise<{ shape: number[]; values: Float32Array }> {
  const query = new URLSearchParams({ model, name });
  const found = await ask<{ shape: number[]; float32: string }>(`api/parameters?${query}`);
  const text = atob(found.float32);
  const view = new DataView(Uint8Array.from(text, (c) => c.charCodeAt(0)).buffer);
  const values = Float32Array.from({ length: text.length / 4 }, (_, i) => view.getFloat32(4 * i, true));
  return { shape: found.shape, values };
}

export async function sceneIndex(): Promise<Scene[]> {
  if (bundle) return bundle.scenes?.index ?? [];
  return ask<Scene[]>("scenes/index.json");
}

/** The recorded trace of a scene as JSON. */
export async function sceneFile(name: string): Promise<Json> {
  if (!bundle) return ask<Json>(`scenes/${encodeURIComponent(name)}`);
  const file = bundle.scenes?.files[name];
  if (!file) throw new Error(`This file does not hold ${name}.`);
  return file;
}

/** Makes a trace available to the tabs. */
export function addTrace(raw: Json, name?: string): void {
  const trace = readTrace(raw);
  const title = name ?? `${trace.model.name}: ${(trace.output || trace.source || "trace").slice(0, 40)}`;
  opened.value = [...opened.value.filter((one) => one.name !== title), { name: title, trace }];
}

/** Fetches what there is to look at, and again while models load. */
export async function start(): Promise<void> {
  if (bundle) {
    bundle.traces.forEach((raw, i) => addTrace(raw, bundle.traces.length > 1 ? `trace ${i + 1}` : "trace"));
    return;
  }
  try {
    const first = await ask<Served>("api/models");
    served.value = first;
    for (const { name } of first.traces) addTrace(await ask<Json>(`api/traces/${encodeURIComponent(name)}`), name);
    while (served.value.models.some((model) => model.state === "loading")) {
      await new Promise((resolve) => setTimeout(resolve, 400));
      served.value = await ask<Served>("api/models");
    }
  } catch (error) {
    serverError.value = (error as Error).message;
  }
}
