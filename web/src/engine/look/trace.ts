// The trace of a model on a text, as JSON in the format regard-trace/1. regard/look/trace/tracing.py; H4.

import { stackSettings, stacks, type ModelConfig } from "../folder/config";
import { RequestError } from "../errors";
import type { LoadedModel } from "../folder/model_folder";
import type { HeadOff, Layers } from "../models/text_model";
import type { Pause } from "../search/search";
import { END, PAD, START, type Tokenizer, type Word } from "../text/tokenizer";
import type { Json } from "../../state/trace";
import { alignmentWeights, bestHead } from "./alignment";
import { checkCharacters, checkTokens } from "./limits";
import { makeMap } from "./maps";
import { outputText } from "./output_text";
import { makeReading, writeText, type OutputRequest, type Reading, type Written } from "./reading";
import { makeSteps, makeTree } from "./steps";

export interface TraceRequest extends OutputRequest {
  model: string;
  text: string;
  top?: number;
  off?: HeadOff[];
  vectors?: boolean;
}

const MAPS = ["enc_self", "dec_self", "cross", "rnn"];
const NO_ATTENTION = (kind: string) => `A model of kind '${kind}' has no attention, so there are steps but no maps.`;
const NO_STEPS = "This model generates no text, so there are no steps.";

export async function traceText(loaded: LoadedModel, request: TraceRequest, pause: Pause): Promise<Json> {
  checkCharacters(request.text, request.target);
  checkTokens(
    loaded.sourceTokenizer.encode(request.text).length,
    loaded.targetTokenizer.encode(request.target ?? "").length,
  );
  const off = request.off ?? [];
  checkHeads(loaded, off);
  const switched = loaded.text ?? loaded.encoder!;
  switched.switchOff(off);
  try {
    const trace = loaded.text ? await traceWriter(loaded, request, pause) : traceEncoder(loaded, request);
    const switchedOff = off.map(({ map, layer, head }) => `Head ${head} of layer ${layer} of ${map} is switched off.`);
    const { notes, ...rest } = trace;
    return notes.length + switchedOff.length ? { ...rest, notes: [...notes, ...switchedOff] } : rest;
  } finally {
    switched.switchOff([]);
  }
}

async function traceWriter(loaded: LoadedModel, request: TraceRequest, pause: Pause): Promise<Json> {
  const reading = makeReading(loaded, request.text, request);
  const written = await writeText(reading, request, pause);
  const { ids } = written;
  const { hidden, layers } = reading.model.readWhole(reading.source?.ids ?? null, [START, ...ids.slice(0, -1)]);
  const output = outputText(loaded, reading, ids, layers);
  const maps = makeMaps(layers, request.vectors ?? false);
  const trace: Json = {
    format: "regard-trace/1",
    model: describeModel(loaded.config, request.model),
    axes: makeAxes(loaded, reading, ids, output.words),
    maps,
    steps: await makeSteps(reading, written, hidden, request.top ?? 10, pause),
    output: output.text,
    search: searchSettings(written),
    notes: Object.keys(maps).length ? [] : [NO_ATTENTION(loaded.config.kind)],
  };
  if (reading.source) trace.source = request.text;
  if (written.found?.nodes.length) trace.tree = makeTree(reading, written);
  if ("cross" in maps || "rnn" in maps) {
    trace.best_head = bestHead(loaded);
    trace.alignment = alignmentWeights(loaded, layers, ids);
  }
  return trace;
}

function traceEncoder(loaded: LoadedModel, request: TraceRequest): Json {
  const { search, target, max_tokens, prefix } = request;
  if ([search, target, max_tokens].some((option) => option !== null && option !== undefined) || prefix?.length)
    throw new RequestError("this model generates no text: leave out search, target, prefix and max_tokens");
  const ids = encoderTokens(loaded, request.text);
  return {
    format: "regard-trace/1",
    model: describeModel(loaded.config, request.model),
    axes: { source: makeAxis(loaded.sourceTokenizer, ids) },
    maps: makeMaps(loaded.encoder!.readWhole(ids), request.vectors ?? false),
    source: request.text,
    search: {},
    notes: [NO_STEPS],
  };
}

/** The tokens of a text that an encoder reads. */
export function encoderTokens(loaded: LoadedModel, text: string): number[] {
  const ids = [...loaded.sourceTokenizer.encode(text), END];
  const limit = loaded.encoder?.maxPositions ?? null;
  if (limit !== null && ids.length > limit)
    throw new RequestError(`the text has ${ids.length} tokens, but the model has only ${limit} positions: shorten it`);
  return ids;
}

function makeMaps(layers: Layers, vectors: boolean): Json {
  const maps: Json = {};
  for (const kind of MAPS) {
    const named = [...layers].filter(([name]) => mapOf(name) === kind).map(([, layer]) => layer);
    if (named.length) maps[kind] = makeMap(kind, named, vectors);
  }
  return maps;
}

/** The map that a layer belongs to. */
export function mapOf(layer: string): string {
  if (layer.endsWith("cross")) return /\d/.test(layer) ? "cross" : "rnn";
  return layer.startsWith("decoder") ? "dec_self" : "enc_self";
}

function makeAxes(loaded: LoadedModel, { tokenizer, source }: Reading, ids: number[], words: Word[] | null): Json {
  // The input of the decoder is its output, shifted by one.
  const read = words && words.map(({ text, start, end }) => ({ text, start: start + 1, end: end + 1 }));
  const axes: Json = source ? { source: makeAxis(loaded.sourceTokenizer, source.ids, source.words) } : {};
  axes.target = makeAxis(tokenizer, ids, words);
  axes.read = makeAxis(tokenizer, [START, ...ids.slice(0, -1)], read);
  return axes;
}

/** The tokens and the words that they form; fields with their default value are left out. */
export function makeAxis(tokenizer: Tokenizer, ids: number[], words: Word[] | null = null): Json {
  const all = words ?? tokenizer.words(ids);
  const owner = new Map(all.flatMap(({ start, end }, word) => range(start, end).map((i): [number, number] => [i, word])));
  const tokens = tokenizer.pieces(ids).map((text, i) => {
    const token: Json = { text };
    if (owner.has(i)) token.word = owner.get(i);
    if ([PAD, START, END].includes(ids[i])) token.special = true;
    if (ids[i] === PAD) token.pad = true;
    return token;
  });
  return { tokens, words: all.map(({ text }) => text) };
}

export function range(start: number, end: number): number[] {
  return Array.from({ length: Math.max(0, end - start) }, (_, i) => start + i);
}

/** The description of a model. */
export function describeModel(config: ModelConfig, name: string): Json {
  const { kind, model } = config;
  const layers = stacks(config);
  if ("dim" in model) {
    const { keyWidth, heads, dim, score } = stackSettings(model);
    const scale = { dot: 1, scaled: 1 / Math.sqrt(keyWidth) }[score] ?? null;
    const widths = { model: dim, head: keyWidth, hidden: model.hidden };
    return { name, kind, layers, heads, widths, score, ...(scale === null ? {} : { scale }) };
  }
  const widths = { embedding: model.embedding, hidden: model.hidden };
  const score: string = model.attention ?? "none";
  if (score === "none") return { name, kind, layers, heads: 0, widths };
  const scale = { dot: 1, bilinear: 1, scaled: 1 / Math.sqrt(model.hidden) }[score] ?? null;
  return { name, kind, layers, heads: 1, widths, score, ...(scale === null ? {} : { scale }) };
}

/** The name of the search and its settings, as Python's searches have them. */
function searchSettings({ search }: Written): Json {
  if (!search) return { name: "forced" };
  if (search.name === "beam") return { ...search, patience: 1 };
  if (search.name === "greedy") return search;
  const { temperature, top_k, top_p, min_p, seed } = search;
  return { name: "sample", temperature, top_k: top_k || null, top_p: top_p === 1 ? null : top_p, min_p: min_p || null, seed };
}

function checkHeads({ config }: LoadedModel, off: HeadOff[]): void {
  const layers = stacks(config);
  const heads = "dim" in config.model ? config.model.heads : 1;
  const counts: Record<string, number> = { enc_self: layers.encoder, dec_self: layers.decoder, cross: layers.decoder, rnn: 1 };
  for (const { map, layer, head } of off) {
    if (!(layer < counts[map])) throw new RequestError(`${map} has layers 0 to ${counts[map] - 1}, not ${layer}`);
    if (!(head < heads)) throw new RequestError(`${map} has heads 0 to ${heads - 1} in each layer, not ${head}`);
  }
}

