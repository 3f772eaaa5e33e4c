// A stack of Transformer blocks and the input before it. regard/models/stack.py, regard/layers/block.py; E3, E4, E5.
import { Matrix, add, asMatrix, fromRows } from "../arrays/matrix";
import type { StackSettings } from "../folder/config";
import { RequestError } from "../errors";
import { Attention, type KeyValueCache, type Recorded } from "./attention";
import { FeedForward } from "./feed_forward";
import { Norm } from "./norm";
import type { Parameters } from "./parameters";
import { sinusoidal } from "./positions";

/** The vectors of tokens with their positions: the input of the first block. */
export class TokenInput {
  readonly table: Matrix;
  readonly tableName: string;
  readonly positions: Matrix | null; // the table of learned positions
  readonly norm: Norm | null;
  readonly factor: number;

  constructor(
    parameters: Parameters,
    readonly name: string,
    readonly settings: StackSettings,
    shared = name,
  ) {
    this.tableName = `${parameters.has(`${name}.embedding.weight`) ? name : shared}.embedding.weight`;
    this.table = parameters.matrix(this.tableName);
    const learned = settings.position === "learned";
    this.positions = learned ? asMatrix(parameters.tensor(`${name}.position.table`)) : null;
    this.norm = parameters.has(`${name}.norm.weight`)
      ? Norm.read(parameters, `${name}.norm`, settings.norm, settings.eps)
      : null;
    this.factor = settings.scale_embedding ? Math.sqrt(this.table.cols) : 1;
  }

  apply(tokens: number[], positions: number[]): Matrix {
    const rows = tokens.map((token, i) => this.withPosition(this.embed(token), positions[i]));
    const x = fromRows(rows, this.settings.dim);
    return this.norm ? this.norm.apply(x) : x;
  }

  /** The row of a token in the table, times the factor. */
  embed(token: number): Float32Array {
    return this.table.row(token).map((value) => value * this.factor);
  }

  private withPosition(x: Float32Array, position: number): Float32Array {
    if (this.positions) {
      const { rows, cols } = this.positions;
      if (position >= rows) throw new RequestError(`the text is longer than the ${rows} positions of this model: shorten it`);
      const row = this.positions.row(position);
      return cols === x.length ? x.map((value, c) => value + row[c]) : Float32Array.from([...x, ...row]);
    }
    if (this.settings.position !== "sinusoidal") return x;
    const wave = sinusoidal(position, this.settings);
    return x.map((value, c) => value + Math.fround(wave[c]));
  }
}

export class Block {
  readonly self: Attention;
  readonly cross: Attention | null;
  readonly feed: FeedForward;
  readonly selfNorm: Norm;
  readonly crossNorm: Norm | null;
  readonly feedNorm: Norm;
  readonly pre: boolean;

  constructor(parameters: Parameters, name: string, settings: StackSettings) {
    const norm = (part: string) => Norm.read(parameters, `${name}.${part}_norm`, settings.norm, settings.eps);
    const crosses = parameters.has(`${name}.cross_norm.weight`);
    this.self = new Attention(`${name}.self_attention`, parameters, settings, true);
    this.cross = crosses ? new Attention(`${name}.cross_attention`, parameters, settings, false) : null;
    this.feed = new FeedForward(parameters, `${name}.feed_forward`, settings.activation);
    this.selfNorm = norm("self");
    this.crossNorm = crosses ? norm("cross") : null;
    this.feedNorm = norm("feed");
    this.pre = settings.order === "pre";
  }

  /** x, and the sublayer of x, with the norm before or after. */
  sublayer(x: Matrix, norm: Norm, layer: (x: Matrix) => Matrix): Matrix {
    return this.pre ? add(x, layer(norm.apply(x))) : norm.apply(add(x, layer(x)));
  }
}

/** The tokens that a stack reads: their places in the caches, and which tokens each of them attends to. */
export interface Reading {
  positions: number[];
  keys: Int32Array[];
  first: number[]; // the position of the first of these keys
}

/** What the layers of a stack computed, by "self" and "cross", one entry for each block. */
export type StackRecord = Record<"self" | "cross", Recorded[]>;

export class Stack {
  readonly blocks: Block[];
  readonly norm: Norm | null;

  constructor(parameters: Parameters, name: string, layers: number, settings: StackSettings) {
    this.blocks = Array.from({ length: layers }, (_, i) => new Block(parameters, `${name}.blocks.${i}`, settings));
    this.norm = settings.order === "pre" ? Norm.read(parameters, `${name}.norm`, settings.norm, settings.eps) : null;
  }

  newCaches(): KeyValueCache[] {
    return this.blocks.map((block) => block.self.newCache());
  }

  /** The keys and values of the source for each block. */
  projectSource(states: Matrix): KeyValueCache[] {
    return this.blocks.map((block) => {
      const cache = block.cross!.newCache();
      block.cross!.remember(cache, states, []);
      return cache;
    });
  }

  /** Runs the blocks up to number `end` on x (m, p); the last norm comes after all of them. */
  run(
    x: Matrix,
    reading: Reading,
    caches: KeyValueCache[],
    source: KeyValueCache[] | null,
    record?: StackRecord,
    end = this.blocks.length,
  ): Matrix {
    const zeros = new Int32Array(x.rows);
    for (const [number, block] of this.blocks.slice(0, end).entries()) {
      x = block.sublayer(x, block.selfNorm, (x) => {
        block.self.remember(caches[number], x, reading.positions);
        const { positions, keys, first } = reading;
        return block.self.attend(x, positions, caches[number], keys, first, record && ((r) => record.self.push(r)));
      });
      if (block.cross && source) {
        const memory = source[number];
        const every = Int32Array.from({ length: memory.length }, (_, j) => j);
        const keys = Array.from({ length: x.rows }, () => every);
        x = block.sublayer(x, block.crossNorm!, (x) =>
          block.cross!.attend(x, zeros, memory, keys, zeros, record && ((r) => record.cross.push(r))),
        );
      }
      x = block.sublayer(x, block.feedNorm, (x) => block.feed.apply(x));
    }
    return this.norm && end === this.blocks.length ? this.norm.apply(x) : x;
  }
}

/** A whole text of m tokens in one pass; causal: no token attends to a later one. */
export function wholeText(m: number, causal: boolean, window: number | null): Reading {
  const positions = Array.from({ length: m }, (_, i) => i);
  const reach = window ?? m; // a token attends to itself and its `window` - 1 neighbours on each side
  const first = positions.map((i) => Math.max(0, i - reach + 1));
  const keys = positions.map((i) => {
    const end = causal ? i + 1 : Math.min(m, i + reach);
    return Int32Array.from({ length: end - first[i] }, (_, j) => first[i] + j);
  });
  return { positions, keys, first };
}
