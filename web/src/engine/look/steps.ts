// The probabilities of each token, and the tree of a beam search. regard/look/trace/search_steps.py; E8, E10.
import type { Matrix } from "../arrays/matrix";
import { top, type Pause } from "../search/search";
import type { Draw } from "../search/sample";
import type { Json } from "../../state/trace";
import type { Reading, Written } from "./reading";

/** The step of each token, from the decoder's vectors (m, p). */
export async function makeSteps(reading: Reading, written: Written, hidden: Matrix, count: number, pause: Pause): Promise<Json[]> {
  const steps: Json[] = [];
  for (const [i, chosen] of written.ids.entries()) {
    await pause();
    const logps = logProbabilities(reading.model.project(hidden.slice(i, i + 1)).data);
    const given = written.search === null || i < reading.prefix.length;
    const draw = given ? undefined : written.found?.draws[i - reading.prefix.length];
    steps.push(makeStep(reading, logps, chosen, count, given, draw));
  }
  return steps;
}

/** The logarithm of the softmax, in 64 bits. */
export function logProbabilities(logits: Float32Array): Float64Array {
  let highest = -Infinity;
  for (const logit of logits) highest = Math.max(highest, logit);
  let total = 0;
  for (const logit of logits) total += Math.exp(logit - highest);
  const shift = highest + Math.log(total);
  return Float64Array.from(logits, (logit) => logit - shift);
}

function makeStep({ tokenizer }: Reading, logps: Float64Array, chosen: number, count: number, given: boolean, draw?: Draw): Json {
  const tokens = top(logps, Math.min(count, logps.length));
  if (!tokens.includes(chosen)) tokens.push(chosen);
  const texts = tokenizer.pieces(tokens);
  const candidates = tokens.map((token, i) => {
    const candidate: Json = { token, text: texts[i], logp: logps[token] };
    if (draw) Object.assign(candidate, { low: token ? draw.ends[token - 1] : 0, high: draw.ends[token] });
    return candidate;
  });
  let rest = 1;
  for (const token of tokens) rest -= Math.exp(logps[token]);
  let entropy = 0;
  for (const logp of logps) entropy -= logp > -Infinity ? Math.exp(logp) * logp : 0;
  const step: Json = { chosen, candidates, rest: Math.max(0, rest), entropy: Math.max(0, entropy) };
  if (given) step.given = true;
  if (draw) step.draw = draw.number;
  return step;
}

export function makeTree({ tokenizer, prefix }: Reading, { ids, search, found }: Written): Json {
  const nodes = found!.nodes;
  const texts = tokenizer.pieces(nodes.map(({ token }) => token));
  const children = new Map(nodes.map(({ parent, token }, i) => [`${parent} ${token}`, i]));
  let best: number | null = null;
  for (const token of ids.slice(prefix.length)) best = children.get(`${best} ${token}`)!;
  const { width, length_penalty } = search as { width: number; length_penalty: number };
  const listed = nodes.map(({ parent, ...node }, i) => ({ parent, text: texts[i], ...node }));
  return { width, length_penalty, nodes: listed, best };
}

