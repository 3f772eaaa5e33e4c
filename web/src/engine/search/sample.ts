// Sampling: draw the next token from the model's distribution, or from its more probable part.
// regard/decoding/searches/sample.py; C2, E10.
//
// A draw depends only on the seed and the step, and is the same number as in Python. So is the token, unless the draw
// is closer to the boundary of two tokens than the rounding of their probabilities (about 1e-6).
import { softmax } from "../arrays/matrix";
import { top } from "./search";

export interface SampleSettings {
  temperature: number;
  top_k: number; // 0: all
  top_p: number; // 1: all
  min_p: number; // 0: all
  seed: number;
}

/** A random number from 0 up to 1, the token that it falls to, and the interval of each token. */
export interface Draw {
  token: number;
  number: number;
  ends: Float64Array; // the cumulative probabilities
}

const DIGITS = 53n; // of the mantissa
const MASK = (1n << 64n) - 1n;

export function draw(settings: SampleSettings, logps: Float32Array, step: number): Draw {
  const number = uniform(settings.seed, step);
  const shares = probabilities(settings, logps);
  const ends = new Float64Array(shares.length);
  let total = 0;
  shares.forEach((share, token) => (ends[token] = total += share));
  const wanted = number * total;
  const token = shares.findIndex((share, i) => share > 0 && ends[i] > wanted);
  return { token: Math.max(token, 0), number, ends: ends.map((end) => end / total) };
}

/** The distribution to draw from. */
function probabilities({ temperature, top_k, top_p, min_p }: SampleSettings, logps: Float32Array): Float64Array {
  const highest = logps.reduce((a, b) => Math.max(a, b), -Infinity);
  let x = Float64Array.from(logps, (logp) => (logp - highest) / temperature);
  if (top_k && top_k < x.length) x = only(x, top(x, top_k));
  if (top_p < 1) x = only(x, nucleus(softmax(x), top_p));
  if (min_p > 0) {
    const least = x.reduce((a, b) => Math.max(a, b), -Infinity) + Math.log(min_p);
    x = x.map((value) => (value < least ? -Infinity : value));
  }
  return softmax(x);
}

/** The fewest, most probable tokens whose probabilities sum to p; Holtzman et al. 2020. */
function nucleus(shares: Float64Array, p: number): number[] {
  const order = Array.from(shares.keys()).sort((a, b) => shares[b] - shares[a] || a - b);
  const kept: number[] = [];
  for (let sum = 0; kept.length < order.length && sum < p; sum += shares[kept.at(-1)!]) kept.push(order[kept.length]);
  return kept;
}

function only(x: Float64Array, kept: number[]): Float64Array<ArrayBuffer> {
  const rest = new Float64Array(x.length).fill(-Infinity);
  for (const token of kept) rest[token] = x[token];
  return rest;
}

/** A number in [0, 1) from a hash of the seed and the step: there is no generator state. */
function uniform(seed: number, step: number): number {
  let bits = 0n;
  for (const part of [seed, 0, 0, step]) bits = scramble((bits + BigInt(part)) & MASK); // the first text, its first sample
  return Number(bits >> (64n - DIGITS)) * 2 ** -Number(DIGITS);
}

/** The output of splitmix64 for the state x; Steele, Lea & Flood 2014. */
function scramble(x: bigint): bigint {
  x = (x + 0x9e3779b97f4a7c15n) & MASK;
  x = ((x ^ (x >> 30n)) * 0xbf58476d1ce4e5b9n) & MASK;
  x = ((x ^ (x >> 27n)) * 0x94d049bb133111ebn) & MASK;
  return x ^ (x >> 31n);
}
