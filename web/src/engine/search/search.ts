// The loop of a search, and the searches of one text: greedy and sampling. regard/decoding/searches; E8, E10.
import { logSoftmax } from "../arrays/matrix";
import type { TextModel } from "../models/text_model";
import { END, PAD, START } from "../text/tokenizer";
import { draw, type Draw, type SampleSettings } from "./sample";
import { BeamSearch, type BeamNode, type BeamSettings } from "./beam";

/** The settings of a search as a request has them. */
export type SearchSettings = { name: "greedy" } | ({ name: "beam" } & BeamSettings) | ({ name: "sample" } & SampleSettings);

/** Write each of `once` exactly once and none of `barred`; regard/decoding/searches/logit_rules.py, EachOnce. */
export interface EachOnce {
  once: number[];
  barred: number[];
}

export interface SearchInput {
  model: TextModel;
  tokenizerSize: number;
  source: number[] | null;
  start: number[]; // what the decoder reads before it writes, at least one token
  limit: number; // the most tokens to write
  rule: EachOnce | null;
}

/** What a search found, and how. */
export interface Found {
  tokens: number[];
  draws: Draw[]; // of sampling
  nodes: BeamNode[]; // of beam search
}

/** Lets other work of the thread run between two steps; throws if the request was cancelled. */
export type Pause = () => Promise<void>;

export async function search(settings: SearchSettings, input: SearchInput, pause: Pause): Promise<Found> {
  if (settings.name === "beam") return new BeamSearch(settings, input).run(pause);
  const { model, source, start, limit, rule } = input;
  const decoding = model.start(source);
  let past = decoding.begin;
  let logps: Float32Array = new Float32Array();
  const feed = (token: number) => {
    const { pasts, logits } = decoding.step([past], [token]);
    past = pasts[0];
    logps = barSpecial(logSoftmax(logits.row(0)));
  };
  start.forEach(feed);
  const found: Found = { tokens: [], draws: [], nodes: [] };
  while (found.tokens.length < limit) {
    await pause();
    const ruled = rule ? applyRule(rule, logps, [...start, ...found.tokens]) : logps;
    const drawn = settings.name === "sample" ? draw(settings, ruled, found.tokens.length) : null;
    const token = drawn ? drawn.token : argmax(ruled);
    found.tokens.push(token);
    if (drawn) found.draws.push(drawn);
    if (token === END || found.tokens.length === limit) break;
    feed(token);
  }
  return found;
}

/** Sets the log-probabilities of tokens that are never chosen to -Infinity. */
export function barSpecial(logps: Float32Array): Float32Array {
  logps[PAD] = logps[START] = -Infinity;
  return logps;
}

/** The log-probabilities after a rule; where every token is barred, END is allowed again. */
export function applyRule({ once, barred }: EachOnce, logps: Float32Array, text: number[]): Float32Array {
  const changed = logps.slice();
  const used = once.map((token) => text.includes(token));
  const missing = used.includes(false);
  const ends = missing && argmax(logps) === END; // only what is missing may follow
  for (const token of barred) changed[token] = -Infinity;
  const allowed = once.map((token, i) => (used[i] ? -Infinity : changed[token]));
  if (ends) changed.fill(-Infinity);
  if (missing) changed[END] = -Infinity;
  once.forEach((token, i) => (changed[token] = allowed[i]));
  if (changed.every((logp) => logp === -Infinity)) changed[END] = logps[END];
  return changed;
}

export function argmax(values: ArrayLike<number>): number {
  let best = 0;
  for (let i = 1; i < values.length; i++) if (values[i] > values[best]) best = i;
  return best;
}

/** The places of the k highest values, best first; among equals the lower place. */
export function top(values: ArrayLike<number>, k: number): number[] {
  const best: number[] = [];
  for (let i = 0; i < values.length; i++) {
    if (best.length === k && !(values[i] > values[best[k - 1]])) continue;
    let at = best.length;
    while (at > 0 && values[i] > values[best[at - 1]]) at--;
    best.splice(at, 0, i);
    if (best.length > k) best.pop();
  }
  return best;
}

