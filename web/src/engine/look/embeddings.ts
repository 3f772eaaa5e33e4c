// The embedding table of a model: its words in the plane, the nearest words of a word, and the similarity of sentences.
// regard/look/embeddings.py; A1, A2, A3.
import { floatArray } from "../arrays/array_json";
import type { Matrix } from "../arrays/matrix";
import { RequestError } from "../errors";
import type { LoadedModel } from "../folder/model_folder";
import { RecurrentLanguageModel, RecurrentTranslator } from "../models/recurrent_models";
import { Transformer } from "../models/transformer";
import { top } from "../search/search";
import { SPACE, SPECIAL_TOKENS } from "../text/tokenizer";
import { isAlpha } from "../text/unicode";
import type { Json } from "../../state/trace";
import { checkCharacters, checkTokens } from "./limits";
import { encoderTokens, range } from "./trace";

const NEAREST = 10;
const ITERATIONS = 500;

interface Words {
  texts: string[];
  vectors: Float32Array[];
}

/** The first words of a model in the plane, with one word and its nearest words. */
export function embeddings(loaded: LoadedModel, { word = null, count = 150 }: Json): Json {
  checkCharacters(word);
  const words = wordTable(loaded);
  const fitted = Math.min(count, words.texts.length);
  const near = word === null ? null : nearest(words, word);
  const chosen = near ? [word, ...near.map(([text]) => text)] : [];
  const rows = [...new Set([...range(0, fitted), ...chosen.map((text) => words.texts.indexOf(text))])];
  const { points, explained } = plane(rows.map((row) => words.vectors[row]), fitted);
  return {
    words: rows.map((row) => words.texts[row]),
    fitted,
    all: words.texts.length,
    width: words.vectors[0].length,
    points,
    explained,
    nearest: near,
  };
}

/** The cosine similarity of each pair of texts. */
export function similarity(loaded: LoadedModel, { model, texts }: Json): Json {
  if (!loaded.encoder || loaded.config.kind !== "encoder")
    throw new RequestError(`${model} is not a sentence encoder, so it has no sentence vectors: choose one that is`);
  checkCharacters(...texts);
  const vectors = texts.map((text: string) => {
    const ids = encoderTokens(loaded, text);
    checkTokens(ids.length - 1);
    return loaded.encoder!.sentenceVector(ids);
  });
  const n = vectors.length;
  const cosines = Float32Array.from({ length: n * n }, (_, i) => cosine(vectors[Math.floor(i / n)], vectors[i % n]));
  return { cosines: floatArray([n, n], cosines) };
}

function tableOf({ text, encoder }: LoadedModel): Matrix {
  if (text instanceof Transformer) return (text.encoder?.input ?? text.input).table;
  if (text instanceof RecurrentTranslator) return text.source;
  if (text instanceof RecurrentLanguageModel) return text.table;
  return encoder!.encoder.input.table;
}

/** The words of a model with their vectors; a subword is a word if it starts one and has two letters or more. */
function wordTable(loaded: LoadedModel): Words {
  const tokenizer = loaded.sourceTokenizer;
  const table = tableOf(loaded);
  const ids = range(SPECIAL_TOKENS.length, tokenizer.size);
  const pieces = tokenizer.pieces(ids);
  const characters = tokenizer.kind === "characters";
  const isWord = (piece: string) => piece.startsWith(SPACE) && [...piece].length > 2 && isAlpha(piece.slice(1));
  const kept = ids.filter((_, i) => characters || isWord(pieces[i]));
  const texts = kept.map((id) => pieces[id - SPECIAL_TOKENS.length].slice(characters ? 0 : 1));
  return { texts, vectors: kept.map((id) => table.row(id)) };
}

/** The words whose vectors have the highest cosine similarity with that of a word. */
function nearest({ texts, vectors }: Words, word: string): [string, number][] {
  const row = texts.indexOf(word);
  if (row < 0) throw new RequestError(`'${word}' is not one token of this model, so it has no vector.`);
  const cosines = vectors.map((vector, i) => (i === row ? -Infinity : cosine(vector, vectors[row])));
  return top(cosines, Math.min(NEAREST, texts.length - 1)).map((i) => [texts[i], cosines[i]]);
}

function cosine(a: ArrayLike<number>, b: ArrayLike<number>): number {
  return inner(a, b) / Math.max(Math.sqrt(inner(a, a)) * Math.sqrt(inner(b, b)), 1e-12);
}

function inner(a: ArrayLike<number>, b: ArrayLike<number>): number {
  let sum = 0;
  for (let i = 0; i < a.length; i++) sum += a[i] * b[i];
  return sum;
}

/** Projects vectors onto the two directions in which the first `fitted` differ most; Pearson 1901. */
function plane(vectors: Float32Array[], fitted: number): { points: number[][]; explained: number } {
  const width = vectors[0].length;
  const mean = Float64Array.from({ length: width }, (_, c) => {
    let sum = 0;
    for (let i = 0; i < fitted; i++) sum += vectors[i][c];
    return sum / fitted;
  });
  const centred = vectors.map((vector) => Float64Array.from(vector, (value, c) => value - mean[c]));
  const rows = centred.slice(0, fitted);
  const total = rows.reduce((sum, row) => sum + inner(row, row), 0);
  const axes: Float64Array[] = [];
  let variance = 0;
  for (let k = 0; k < 2; k++) {
    const { axis, size } = longestDirection(rows, axes);
    axes.push(axis);
    variance += size;
  }
  return { points: centred.map((row) => axes.map((axis) => inner(row, axis))), explained: variance / total };
}

/** The direction of the largest variance, orthogonal to others, by power iteration; its longest entry is positive. */
function longestDirection(rows: Float64Array[], others: Float64Array[]): { axis: Float64Array; size: number } {
  let axis: Float64Array = Float64Array.from({ length: rows[0].length }, (_, c) => Math.sin(c + 1));
  let size = 0;
  for (let i = 0; i < ITERATIONS; i++) {
    const next = new Float64Array(axis.length);
    for (const row of rows) {
      const length = inner(row, axis);
      for (let c = 0; c < next.length; c++) next[c] += length * row[c];
    }
    for (const other of others) {
      const share = inner(next, other);
      for (let c = 0; c < next.length; c++) next[c] -= share * other[c];
    }
    const norm = Math.sqrt(inner(next, next)) || 1;
    for (let c = 0; c < next.length; c++) next[c] /= norm;
    const change = 1 - Math.abs(inner(next, axis));
    axis = next;
    size = norm;
    if (i > 10 && change < 1e-15) break;
  }
  const longest = axis.reduce((best, value) => (Math.abs(value) > Math.abs(best) ? value : best), 0);
  return { axis: longest < 0 ? axis.map((value) => -value) : axis, size };
}
