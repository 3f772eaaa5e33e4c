// One step of a recurrent translator with attention, box by box. regard/look/inside/recurrent_step.py; D5, D14, D15.
import { Matrix, add, columns, linear, softmax } from "../arrays/matrix";
import type { RecurrentTranslator } from "../models/recurrent_models";
import type { Json } from "../../state/trace";
import { Sheet, ruleOf } from "./worksheet";

const GIVEN = { op: "given" };
const SCORE = "decoder.cross_attention.score";

/** Writes how the decoder computes its readout for one token; the last box is the readout. */
export function writeStep(sheet: Sheet, model: RecurrentTranslator, source: number[], read: number[], token: number, names: string[]): void {
  const encoded = model.encode(source);
  let past = model.begin(encoded);
  for (const earlier of read.slice(0, token)) past = model.stepOnce(encoded, past, earlier).past;
  const feeds = past.feed !== null;
  const before = past.states.at(-1)!.h;
  const step = model.stepOnce(encoded, past, read[token]);
  const after = step.past.states.at(-1)!.h;
  const y = model.target.row(read[token]);
  const h = sheet.put("h", "source states", encoded.states, "h_j, output of the encoder", GIVEN, names);
  const rule = { op: "rows", weight: sheet.name("decoder.embedding.weight"), rows: [read[token]], scale: 1 };
  const tokenBox = sheet.put("y", "previous token", new Matrix(1, y.length, y), "y_(i-1)", rule);
  let joined: [string, ArrayLike<number>][];
  let how: string;
  if (model.bahdanau) {
    const s = sheet.put("state", "state", before, "s_(i-1)", GIVEN);
    const context = writeContext(sheet, model, { box: s, values: before }, { box: h, values: encoded.states }, names);
    const state = sheet.put("output.state", "new state", after, "s_i = f(s_(i-1), y_(i-1), c_i)", GIVEN);
    joined = [[state, after], [context, step.context!], [tokenBox, y]];
    how = "[s_i; c_i; y_(i-1)]";
  } else {
    const formula = feeds ? "s_i = f(s_(i-1), y_(i-1), previous readout)" : "s_i = f(s_(i-1), y_(i-1))";
    const s = sheet.put("state", "state", after, formula, GIVEN);
    const context = writeContext(sheet, model, { box: s, values: after }, { box: h, values: encoded.states }, names);
    joined = [[context, step.context!], [s, after]];
    how = "[c_i; s_i]";
  }
  const x = Float32Array.from(joined.flatMap(([, values]) => Array.from(values)));
  let box = sheet.put("output.concat", "concatenation", x, how, ruleOf("concat", ...joined.map(([name]) => name)));
  const readout = model.readout!.apply(new Matrix(1, x.length, x));
  box = sheet.linear("output.linear", "linear layer", box, model.readout!, readout.data, "x W");
  sheet.put("output.readout", "readout", step.readout, "tanh(x)", { ...ruleOf("activation", box), kind: "tanh" });
}

interface Vector {
  box: string;
  values: Float32Array;
}

interface States {
  box: string;
  values: Matrix;
}

/** Writes the context from a decoder state and the source states. */
function writeContext(sheet: Sheet, model: RecurrentTranslator, s: Vector, h: States, names: string[]): string {
  const additive = ["additive", "concat"].includes(model.score!.kind);
  const scores = additive ? writeAdditive(sheet, model, s, h, names) : writeProduct(sheet, model, s, h, names);
  const weights = softmax(scores.values);
  const alpha = sheet.put("cross.weights", "weights", weights, "α_ij = softmax(e_ij)", ruleOf("softmax", scores.box), names);
  const sum = new Float64Array(h.values.cols);
  weights.forEach((weight, j) => h.values.row(j).forEach((value, c) => (sum[c] += weight * value)));
  return sheet.put("cross.sum", "context", sum, "c_i = Σ_j α_ij h_j", ruleOf("weigh", alpha, h.box));
}

/** The additive score, w · tanh(W_q s + W_k h_j). */
function writeAdditive(sheet: Sheet, model: RecurrentTranslator, s: Vector, h: States, names: string[]) {
  const stacked = model.score!.kind === "concat";
  const width = s.values.length;
  const [queryName, keyName] = stacked ? Array(2).fill(`${SCORE}.stacked.weight`) : [`${SCORE}.query.weight`, `${SCORE}.key.weight`];
  const whole = model.parameters.matrix(keyName);
  const cuts = stacked ? [[0, width], [width, whole.cols]] : null;
  const weights = cuts ? cuts.map(([start, end]) => columns(whole, start, end)) : [model.parameters.matrix(queryName), whole];
  const rule = (of: string, name: string, side: number): Json => ({
    op: "linear", of: [of], weight: sheet.name(name), bias: null, rows: null, ...(cuts ? { columns: cuts[side] } : {}),
  });
  const q = linear(new Matrix(1, width, s.values), weights[0], null);
  const k = linear(h.values, weights[1], null);
  const left = sheet.put("cross.q", "query", q.data, "W_q s", rule(s.box, queryName, 0));
  const right = sheet.put("cross.k", "keys", k, "W_k h_j", rule(h.box, keyName, 1), names);
  const repeated = new Matrix(k.rows, k.cols, k.data.map((_, i) => q.data[i % k.cols]));
  const both = add(repeated, k);
  let box = sheet.put("cross.add", "sum", both, "W_q s + W_k h_j", ruleOf("add", left, right), names);
  const curved = new Matrix(both.rows, both.cols, both.data.map(Math.tanh));
  box = sheet.put("cross.tanh", "tanh", curved, "tanh(W_q s + W_k h_j)", { ...ruleOf("activation", box), kind: "tanh" }, names);
  const w = model.parameters.tensor(`${SCORE}.weight`).data;
  const values = linear(curved, new Matrix(1, w.length, w), null).data;
  const last = { ...ruleOf("dot", box), weight: sheet.name(`${SCORE}.weight`) };
  return { box: sheet.put("cross.scores", "scores", values, "e_ij = w · tanh(…)", last, names), values };
}

/** The dot-product score, s · h_j, s · W h_j, or scaled. */
function writeProduct(sheet: Sheet, model: RecurrentTranslator, s: Vector, h: States, names: string[]) {
  let keys = h;
  if (model.score!.kind === "bilinear") {
    const values = model.score!.keys(h.values);
    const rule = { op: "linear", of: [h.box], weight: sheet.name(`${SCORE}.weight`), bias: null, rows: null };
    keys = { box: sheet.put("cross.k", "keys", values, "W h_j", rule, names), values };
  }
  let values = linear(keys.values, new Matrix(1, s.values.length, s.values), null).data;
  let box = sheet.put("cross.scores", "scores", values, "s · k_j", ruleOf("dot", s.box, keys.box), names);
  const { scale } = model.score!;
  if (scale !== 1) {
    values = values.map((score) => score * scale);
    box = sheet.put("cross.scaled", "scaled scores", values, "s · k_j / √d", { ...ruleOf("scale", box), by: scale }, names);
  }
  return { box, values };
}
