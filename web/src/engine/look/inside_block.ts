// One block of a Transformer for one token, box by box. regard/look/inside/transformer_block.py; D8 to D13, E1 to E4.
import { Matrix, add, softmax } from "../arrays/matrix";
import type { Attention } from "../models/attention";
import type { Norm } from "../models/norm";
import type { Block } from "../models/stack";
import { RequestError } from "../errors";
import type { Json } from "../../state/trace";
import { Sheet, ruleOf, type Put } from "./worksheet";

/** The token and the head whose numbers are shown. */
export interface Selection {
  token: number;
  head: number;
  tokens: string[]; // the input tokens of the block
  source: string[]; // the tokens that cross-attention attends to
}

const NOT_EXACT =
  "this block uses random features or a window, and only exact attention to a whole text can be written out; " +
  "the maps of a trace show its weights";
const ACTIVATIONS = ["relu", "gelu", "gelu-tanh", "swiglu"];

/** Writes how a block computes its output for one token from its input (n, p); the last box is the output. */
export function writeBlock(sheet: Sheet, block: Block, x: Put, selection: Selection, causal: boolean, memory: Put | null): void {
  let normed = x;
  if (block.pre) {
    const values = block.selfNorm.apply(x.values);
    normed = { box: sheet.norm("self.norm", x.box, block.selfNorm, values, selection.tokens), values };
  }
  const row = x.values.slice(selection.token, selection.token + 1);
  const rule = { ...ruleOf("pick", x.box), row: selection.token };
  let h: Put = { box: sheet.put("token", "this token", row.data, "x_t", rule), values: row };
  const out = writeAttention(sheet, "self", block.self, normed, normed, selection, causal);
  h = writeSum(sheet, "self", h, out, block.pre ? null : block.selfNorm);
  if (block.cross && memory) {
    normed = before(sheet, "cross", h, block.pre ? block.crossNorm : null);
    const attended = writeAttention(sheet, "cross", block.cross, normed, memory, selection, false);
    h = writeSum(sheet, "cross", h, attended, block.pre ? null : block.crossNorm);
  }
  normed = before(sheet, "feed", h, block.pre ? block.feedNorm : null);
  writeSum(sheet, "feed", h, writeFeedForward(sheet, block, normed), block.pre ? null : block.feedNorm);
}

/** The attention of one head for one token, then W^O of all heads; the query is (n, p), or (1, p) for cross. */
function writeAttention(
  sheet: Sheet, part: string, layer: Attention, query: Put, key: Put, selection: Selection, causal: boolean,
): Put {
  if (layer.settings.window !== null) throw new RequestError(NOT_EXACT);
  if (layer.qNorm) throw new RequestError("the browser does not write out normalized queries; the maps of a trace show the weights");
  const { heads, groups, keyWidth, valueWidth } = layer.settings;
  const isSelf = part === "self";
  const t = isSelf ? selection.token : 0;
  const names = isSelf ? selection.tokens : selection.source;
  const group = Math.floor((selection.head * groups) / heads);
  const every = { q: layer.project("q", query.values), k: layer.project("k", key.values), v: layer.project("v", key.values) };
  const rule: Json = { ...projectionRule(sheet, layer, "q", selection.head, query.box), ...(isSelf ? { row: t } : {}) };
  const qValues = cut(every.q, selection.head, keyWidth).row(t);
  let q = sheet.put(`${part}.q`, "query", qValues, `q = x_t W_Q${rule.bias ? " + b_Q" : ""}`, rule);
  const boxes = (["k", "v"] as const).map((letter) => {
    const rule = projectionRule(sheet, layer, letter, group, key.box);
    const upper = letter.toUpperCase();
    const how = `${letter}_j = x_j W_${upper}${rule.bias ? ` + b_${upper}` : ""}`;
    const values = cut(every[letter], group, letter === "k" ? keyWidth : valueWidth);
    return sheet.put(`${part}.${letter}`, letter === "k" ? "keys" : "values", values, how, rule, names);
  });
  let [k] = boxes;
  if (layer.rotary) {
    const positions = names.map((_, i) => i);
    layer.rotary.rotate(every.q, positions, keyWidth);
    layer.rotary.rotate(every.k, positions, keyWidth);
    const { frequencies, layout, turning } = layer.rotary;
    const how = "rotate each pair by position · frequency";
    const rotation = (box: string, at: number[]) =>
      ({ op: "rotate", of: [box], positions: at, frequencies: Array.from(frequencies), layout, turning });
    q = sheet.put(`${part}.q_rotated`, "rotated query", cut(every.q, selection.head, keyWidth).row(t), how, rotation(q, [t]));
    k = sheet.put(`${part}.k_rotated`, "rotated keys", cut(every.k, group, keyWidth), how, rotation(k, positions), names);
  }
  const { box, weights } = writeWeights(sheet, part, layer, { ...every, t }, [q, k], selection.head, names, causal);
  const sums = new Matrix(heads, valueWidth);
  for (let h = 0; h < heads; h++) {
    const values = cut(every.v, Math.floor((h * groups) / heads), valueWidth);
    const row = new Float64Array(valueWidth);
    weights[h].forEach((weight, j) => values.row(j).forEach((value, d) => (row[d] += weight * value)));
    sums.row(h).set(row);
  }
  const sum = sheet.put(`${part}.sum`, "weighted sum", sums.row(selection.head), "Σ_j α_j v_j", ruleOf("weigh", box, boxes[1]));
  return writeOutput(sheet, part, layer, sum, sums, selection.head);
}

/** The scores, scaled, biased by the distance and masked, and the weights of all heads. */
function writeWeights(
  sheet: Sheet, part: string, layer: Attention, every: { q: Matrix; k: Matrix; t: number }, boxes: string[], head: number,
  names: string[], causal: boolean,
): { box: string; weights: Float64Array[] } {
  const { heads, groups, keyWidth } = layer.settings;
  const { t } = every;
  const raw = Array.from({ length: heads }, (_, h) => {
    const query = cut(every.q, h, keyWidth).row(t);
    const keys = cut(every.k, Math.floor((h * groups) / heads), keyWidth);
    return Float64Array.from(names, (_, j) => query.reduce((sum, value, d) => sum + value * keys.row(j)[d], 0));
  });
  let box = sheet.put(`${part}.scores`, "scores", raw[head], "s_j = q · k_j", ruleOf("dot", ...boxes), names);
  let scores = raw.map((row) => row.map((score) => score * layer.scale));
  box = sheet.put(`${part}.scaled`, "scaled scores", scores[head], "s_j / √d_k", { ...ruleOf("scale", box), by: layer.scale }, names);
  if (layer.slopes) {
    const distances = names.map((_, j) => j - t);
    const bias = Array.from(layer.slopes, (slope) => Float64Array.from(distances, (distance) => -slope * Math.abs(distance)));
    scores = scores.map((row, h) => row.map((score, j) => score + bias[h][j]));
    const rule = { op: "distance", slope: layer.slopes[head], distances };
    const biasBox = sheet.put(`${part}.bias`, "position bias", bias[head], "-slope · |t - j|", rule, names);
    const title = "scores with position bias";
    box = sheet.put(`${part}.biased`, title, scores[head], "s_j + b_j", ruleOf("add", box, biasBox), names);
  }
  if (causal) {
    const allowed = names.map((_, j) => j <= t);
    scores = scores.map((row) => row.map((score, j) => (allowed[j] ? score : -Infinity)));
    const shown = scores[head].map((score) => (score === -Infinity ? NaN : score));
    box = sheet.put(`${part}.masked`, "masked scores", shown, "s_j for j ≤ t, else -∞", { ...ruleOf("mask", box), allowed }, names);
  }
  const weights = scores.map(softmax);
  box = sheet.put(`${part}.weights`, "weights", weights[head], "α = softmax(s)", ruleOf("softmax", box), names);
  return { box, weights };
}

/** How q, k or v of a head is projected: the parameters and their rows. */
function projectionRule(sheet: Sheet, layer: Attention, letter: "q" | "k" | "v", head: number, box: string): Json {
  const width = letter === "v" ? layer.settings.valueWidth : layer.settings.keyWidth;
  if (layer.settings.form === "slice") {
    const weight = `${layer.name}.input.${letter}_weight`;
    const slice = layer.parameters.tensor(weight).shape[1];
    return {
      op: "slice", of: [box], columns: [head * slice, (head + 1) * slice], weight: sheet.name(weight), index: head,
      bias: sheet.name(`${layer.name}.input.${letter}_bias`), rows: [head * width, (head + 1) * width],
    };
  }
  const start = layer.rowsOf(letter)[0] + head * width;
  const [weight, bias] = [sheet.name(`${layer.name}.input.weight`), sheet.name(`${layer.name}.input.bias`)];
  return { op: "linear", of: [box], weight, bias, rows: [start, start + width] };
}

function writeOutput(sheet: Sheet, part: string, layer: Attention, sum: string, sums: Matrix, head: number): Put {
  const how = "one row per head, each computed like this one";
  const all = sheet.put(`${part}.heads`, "all heads", sums, how, { ...ruleOf("heads", sum), head });
  const values = new Matrix(1, sums.data.length, sums.data);
  const box = sheet.put(`${part}.concat`, "concatenation", values.data, "[head_1; …; head_H]", ruleOf("concat", all));
  if (!layer.output) return { box, values };
  const out = layer.output.apply(values);
  return { box: sheet.linear(`${part}.out`, "output projection", box, layer.output, out.data, "y W_O"), values: out };
}

function writeFeedForward(sheet: Sheet, { feed }: Block, x: Put): Put {
  if (!ACTIVATIONS.includes(feed.activation))
    throw new RequestError(`a feed-forward network with '${feed.activation}' cannot be written out`);
  const up = feed.up.apply(x.values);
  let box = sheet.linear("feed.up", "feed-forward: first layer", x.box, feed.up, up.data, "x W_1");
  const hidden = feed.activate(up);
  const how = feed.activation === "swiglu" ? "silu(first half) · second half" : `${feed.activation}(x)`;
  const rule = { ...ruleOf("activation", box), kind: feed.activation };
  box = sheet.put("feed.hidden", "feed-forward: activation", hidden.data, how, rule);
  const values = feed.down.apply(hidden);
  return { box: sheet.linear("feed.down", "feed-forward: second layer", box, feed.down, values.data, "x W_2"), values };
}

function before(sheet: Sheet, part: string, h: Put, norm: Norm | null): Put {
  if (!norm) return h;
  const values = norm.apply(h.values);
  return { box: sheet.norm(`${part}.norm`, h.box, norm, values.data), values };
}

function writeSum(sheet: Sheet, part: string, h: Put, out: Put, norm: Norm | null): Put {
  const values = add(h.values, out.values);
  const box = sheet.put(`${part}.add`, "add", values.data, "x + Sublayer(x)", ruleOf("add", h.box, out.box));
  if (!norm) return { box, values };
  const normed = norm.apply(values);
  return { box: sheet.norm(`${part}.normed`, box, norm, normed.data), values: normed };
}

/** The vectors of one head, (m, width). */
function cut(x: Matrix, head: number, width: number): Matrix {
  const out = new Matrix(x.rows, width);
  for (let i = 0; i < x.rows; i++) out.row(i).set(x.row(i).subarray(head * width, (head + 1) * width));
  return out;
}
