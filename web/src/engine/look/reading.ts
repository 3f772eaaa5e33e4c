// The input of a model that writes text, and the search for its output. regard/look/trace/model_run.py.
import { RequestError } from "../errors";
import type { LoadedModel } from "../folder/model_folder";
import type { TextModel } from "../models/text_model";
import { search, type Found, type Pause, type SearchSettings } from "../search/search";
import { carriedTokens } from "../text/hidden_spans";
import type { Source } from "../text/source_reader";
import { END, START, UNKNOWN, type Tokenizer } from "../text/tokenizer";
import { LIMITS } from "./limits";

const SOURCE_FACTOR = 2; // a translation has at most this many tokens per source token, and some more
const EXTRA_TOKENS = 20;
const WRITER_TOKENS = 100;

/** The input of a model, before it writes. */
export interface Reading {
  model: TextModel;
  tokenizer: Tokenizer; // of the output
  source: Source | null;
  prefix: number[]; // tokens between START and the generated ones: the prompt and the requested prefix
  maxTokens: number; // after the prefix
  positions: number | null; // most tokens in all
}

/** What a request says about the output. */
export interface OutputRequest {
  search?: Partial<SearchSettings> | null;
  target?: string | null;
  prefix?: number[];
  max_tokens?: number | null;
}

export function makeReading(loaded: LoadedModel, text: string, { prefix = [], max_tokens }: OutputRequest): Reading {
  const model = loaded.text!;
  const tokenizer = loaded.targetTokenizer;
  checkKnown("prefix", prefix, tokenizer);
  if (prefix.slice(0, -1).includes(END))
    throw new RequestError("the prefix continues after the end token: remove what follows it");
  const source = loaded.reader ? readSource(loaded, text) : null;
  const fixed = source ? prefix : [...tokenizer.encode(text), ...prefix];
  const room = max_tokens ?? (source ? sourceRoom(loaded, text) : WRITER_TOKENS);
  const positions = source ? model.maxPositions : contextOf(loaded);
  if (positions !== null && fixed.length >= positions)
    throw new RequestError(
      `the prompt or prefix has ${fixed.length} tokens, but the model has only ${positions} positions: shorten it`,
    );
  const maxTokens = positions === null ? room : Math.min(room, positions - fixed.length);
  return { model, tokenizer, source, prefix: fixed, maxTokens, positions };
}

function readSource(loaded: LoadedModel, text: string): Source {
  const source = loaded.reader!.read(text);
  if (!source.words.length || !text.trim()) throw new RequestError("there is nothing to translate: the text has no words");
  return source;
}

function sourceRoom(loaded: LoadedModel, text: string): number {
  const read = loaded.sourceTokenizer.encode(text).length + 1;
  return Math.min(LIMITS.tokens, SOURCE_FACTOR * read + EXTRA_TOKENS);
}

/** The most tokens that a language model reads, without the one that it writes; null: no limit. */
function contextOf({ config, info, text }: LoadedModel): number | null {
  if (config.kind === "rnn-lm") return null;
  const limits = [info.context, text!.maxPositions].filter((limit): limit is number => typeof limit === "number");
  return limits.length ? Math.min(...limits) - 1 : null;
}

/** What was written: the tokens with the prefix, and the search that found them; null for a given target. */
export interface Written {
  ids: number[];
  search: SearchSettings | null;
  found: Found | null;
}

export async function writeText(reading: Reading, request: OutputRequest, pause: Pause): Promise<Written> {
  const { model, source, prefix, tokenizer } = reading;
  if (request.target !== null && request.target !== undefined)
    return { ids: forcedTokens(reading, request.target), search: null, found: null };
  const settings = withDefaults(request.search, source !== null);
  if (prefix.at(-1) === END && prefix.length) return { ids: prefix, search: settings, found: null };
  const rule = source?.carried.size ? carriedTokens(tokenizer, source.carried, source.ids.includes(UNKNOWN)) : null;
  const input = {
    model,
    tokenizerSize: tokenizer.size,
    source: source?.ids ?? null,
    start: [START, ...prefix],
    limit: reading.maxTokens,
    rule,
  };
  const found = await search(settings, input, pause);
  return { ids: [...prefix, ...found.tokens], search: settings, found };
}

function withDefaults(asked: OutputRequest["search"], translates: boolean): SearchSettings {
  const name = asked?.name ?? (translates ? "beam" : "sample");
  if (name === "beam") return { width: 5, length_penalty: 1, ...asked, name };
  if (name === "sample") return { temperature: 1, top_k: 0, top_p: 1, min_p: 0, seed: 0, ...asked, name };
  return { name: "greedy" };
}

function forcedTokens({ source, prefix, tokenizer, positions }: Reading, target: string): number[] {
  const written = [...tokenizer.encode(target), ...(source ? [END] : [])];
  const ids = [...prefix, ...written];
  if (!written.length) throw new RequestError("the target is empty: there are no tokens to force");
  if (positions !== null && ids.length > positions)
    throw new RequestError(`the text has ${ids.length} tokens, but the model has only ${positions} positions: shorten it`);
  return ids;
}

function checkKnown(name: string, tokens: number[], tokenizer: Tokenizer): void {
  const wrong = tokens.find((token) => token < 0 || token >= tokenizer.size);
  if (wrong !== undefined)
    throw new RequestError(`the ${name} contains token ${wrong}, but the model has tokens 0 to ${tokenizer.size - 1}`);
}
