// The recurrent translator, without attention or with Bahdanau's or Luong's, and the recurrent language model.
// regard/models/recurrent/translator.py, regard/models/language_model.py; C2, C4, D14, D15.
import { Matrix, fromRows, linear, softmax } from "../arrays/matrix";
import type { ModelConfig } from "../folder/config";
import { Linear, type Parameters } from "./parameters";
import { Recurrent, joined, type CellState, type LayerRun } from "./recurrent";
import { makeScore, type Score } from "./scores";
import type { Decoding, HeadOff, LayerWeights, Layers, TextModel } from "./text_model";

/** A hypothesis: the states of the layers, and with input feeding the last readout. */
interface RecurrentPast {
  states: CellState[];
  feed: Float32Array | null;
}

/** The source as the decoder sees it. */
export interface EncodedSource {
  runs: LayerRun[];
  states: Matrix; // h_j
  keys: Matrix | null;
  final: CellState[];
}

/** What one step of the decoder computed. */
export interface DecoderStep {
  readout: Float32Array;
  past: RecurrentPast;
  query: Float32Array | null;
  weights: Float64Array | null;
  context: Float32Array | null;
}

export class RecurrentTranslator implements TextModel {
  readonly vocabulary: number;
  readonly maxPositions = null;
  readonly source: Matrix; // tables of token vectors
  readonly target: Matrix;
  readonly encoder: Recurrent;
  readonly decoder: Recurrent;
  readonly bahdanau: boolean;
  readonly score: Score | null;
  readonly readout: Linear | null;
  private readonly feeds: boolean;
  private readonly bridge: Linear | null;
  private readonly output: Linear | null;
  private off = false; // whether the context is switched off

  constructor(
    readonly config: ModelConfig,
    readonly parameters: Parameters,
  ) {
    const { cell, layers, bidirectional, attention, style, input_feeding, hidden } = config.model;
    const attends = attention !== "none";
    this.source = parameters.matrix("encoder.embedding.weight");
    this.target = parameters.matrix("decoder.embedding.weight");
    this.encoder = new Recurrent(parameters, "encoder.rnn", cell, layers, bidirectional);
    this.decoder = new Recurrent(parameters, "decoder.rnn", cell, layers, false);
    this.bahdanau = attends && style === "bahdanau";
    this.feeds = input_feeding;
    this.bridge = parameters.has("decoder.bridge.weight") ? parameters.linear("decoder.bridge") : null;
    this.score = attends ? makeScore(parameters, attention, "decoder.cross_attention.score", hidden) : null;
    this.readout = attends ? parameters.linear("decoder.readout") : null;
    this.output = parameters.has("output.weight") ? parameters.linear("output") : null;
    this.vocabulary = (this.output?.weight ?? this.target).rows;
  }

  encode(source: number[]): EncodedSource {
    const runs = this.encoder.run(source.map((token) => this.source.row(token)));
    const depth = this.config.model.layers;
    const outputs = runs.filter(({ layer }) => layer === depth - 1);
    const rows = source.map((_, t) => joined(outputs.map(({ steps }) => steps[t].h)));
    const states = fromRows(rows, rows[0].length);
    const final = Array.from({ length: depth }, (_, layer) => {
      const last = runs.filter((run) => run.layer === layer).map(({ backwards, steps }) => steps[backwards ? 0 : steps.length - 1]);
      return { h: joined(last.map(({ h }) => h)), c: last[0].c ? joined(last.map(({ c }) => c)) : null };
    });
    return { runs, states, keys: this.score ? this.score.keys(states) : null, final };
  }

  begin(encoded: EncodedSource): RecurrentPast {
    const fit = (state: Float32Array) =>
      this.bridge ? this.bridge.apply(new Matrix(1, state.length, state)).data.map(Math.tanh) : state;
    const states = encoded.final.map(({ h, c }) => ({ h: fit(h), c: c && fit(c) }));
    return { states, feed: this.feeds ? new Float32Array(this.config.model.hidden) : null };
  }

  /** One step: the readout from the previous token and the hypothesis. */
  stepOnce(encoded: EncodedSource, past: RecurrentPast, token: number): DecoderStep {
    const y = this.target.row(token);
    const top = (states: CellState[]) => states[states.length - 1].h;
    if (!this.readout) {
      const { output, states } = this.decoder.step(y, past.states);
      return { readout: output, past: { states, feed: null }, query: null, weights: null, context: null };
    }
    if (this.bahdanau) {
      const { query, weights, context } = this.context(encoded, top(past.states));
      const { output, states } = this.decoder.step(joined([y, context]), past.states);
      return { readout: this.read([output, context, y]), past: { states, feed: null }, query, weights, context };
    }
    const { output, states } = this.decoder.step(past.feed ? joined([y, past.feed]) : y, past.states);
    const { query, weights, context } = this.context(encoded, output);
    const readout = this.read([context, output]);
    return { readout, past: { states, feed: this.feeds ? readout : null }, query, weights, context };
  }

  start(source: number[] | null): Decoding {
    const encoded = this.encode(source!);
    const step: Decoding["step"] = (pasts, tokens) => {
      const steps = tokens.map((token, i) => this.stepOnce(encoded, pasts[i] as RecurrentPast, token));
      const hidden = fromRows(
        steps.map(({ readout }) => readout),
        this.config.model.hidden,
      );
      return { pasts: steps.map(({ past }) => past), logits: this.project(hidden) };
    };
    return { begin: this.begin(encoded), step };
  }

  readWhole(source: number[] | null, read: number[]): { hidden: Matrix; layers: Layers } {
    const encoded = this.encode(source!);
    let past = this.begin(encoded);
    const steps = read.map((token) => {
      const step = this.stepOnce(encoded, past, token);
      past = step.past;
      return step;
    });
    const readouts = steps.map(({ readout }) => readout);
    const layers: Layers = new Map();
    if (this.score) layers.set("decoder.cross", this.weightsOf(encoded, steps));
    return { hidden: fromRows(readouts, this.config.model.hidden), layers };
  }

  project(hidden: Matrix): Matrix {
    return this.output ? this.output.apply(hidden) : linear(hidden, this.target, null);
  }

  switchOff(off: HeadOff[]): void {
    this.off = off.some(({ map }) => map === "rnn");
  }

  private read(parts: Float32Array[]): Float32Array {
    const x = joined(parts);
    return this.readout!.apply(new Matrix(1, x.length, x)).data.map(Math.tanh);
  }

  private context(encoded: EncodedSource, state: Float32Array) {
    const query = this.score!.query(state);
    const weights = softmax(this.score!.compare(query, encoded.keys!));
    const context = new Float64Array(encoded.states.cols);
    if (!this.off)
      weights.forEach((weight, j) => encoded.states.row(j).forEach((value, c) => (context[c] += weight * value)));
    return { query, weights, context: Float32Array.from(context) };
  }

  private weightsOf(encoded: EncodedSource, steps: DecoderStep[]): LayerWeights {
    const [m, n] = [steps.length, encoded.states.rows];
    const weights = new Float32Array(m * n);
    steps.forEach((step, i) => weights.set(step.weights!, i * n));
    const queries = steps.map(({ query }) => query!);
    const q = fromRows(queries, queries[0].length);
    return { heads: 1, groups: 1, m, n, weights, q, k: encoded.keys!, v: encoded.states };
  }
}

export class RecurrentLanguageModel implements TextModel {
  readonly vocabulary: number;
  readonly maxPositions = null;
  readonly table: Matrix;
  readonly layers: Recurrent;
  private readonly output: Linear | null;

  constructor(config: ModelConfig, parameters: Parameters) {
    this.table = parameters.matrix("embedding.weight");
    this.layers = new Recurrent(parameters, "rnn", config.model.cell, config.model.layers, false);
    this.output = parameters.has("output.weight") ? parameters.linear("output") : null;
    this.vocabulary = (this.output?.weight ?? this.table).rows;
  }

  start(): Decoding {
    const begin = this.layers.layers.map(([cell]) => cell.zero());
    const step: Decoding["step"] = (pasts, tokens) => {
      const steps = tokens.map((token, i) => this.layers.step(this.table.row(token), pasts[i] as CellState[]));
      const outputs = steps.map(({ output }) => output);
      return { pasts: steps.map(({ states }) => states), logits: this.project(fromRows(outputs, outputs[0].length)) };
    };
    return { begin, step };
  }

  readWhole(_: number[] | null, read: number[]): { hidden: Matrix; layers: Layers } {
    const runs = this.layers.run(read.map((token) => this.table.row(token)));
    const states = runs[runs.length - 1].steps.map(({ h }) => h);
    return { hidden: fromRows(states, states[0].length), layers: new Map() };
  }

  project(hidden: Matrix): Matrix {
    return this.output ? this.output.apply(hidden) : linear(hidden, this.table, null);
  }

  switchOff(): void {}
}
