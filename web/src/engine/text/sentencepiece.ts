// Segment a text with a sentencepiece model: unigram (Kudo 2018) or BPE (Sennrich et al. 2016).
//
// The file is a protocol buffer. Texts are normalized before; characters without a piece become bytes.
import { RequestError } from "../errors";

const NORMAL = 1;
const USER_DEFINED = 4;
const UNKNOWN_PENALTY = 10;

interface Piece {
  text: string;
  score: number;
  kind: number;
}

/** A sentencepiece model. */
export class SentencePiece {
  readonly pieces: Piece[] = [];
  readonly byteTokens: number[] = []; // of the 256 bytes
  readonly trimsSpaces: boolean; // and puts a space before a text
  private readonly isBpe: boolean;
  private readonly numbers = new Map<string, number>(); // of pieces that texts consist of
  private readonly byteOf = new Map<number, number>();
  private readonly longest: number;
  private readonly unknownScore: number;

  constructor(content: Uint8Array) {
    let trainer = new Map<number, number>();
    let normalizer = new Map<number, number>();
    for (const { field, bytes } of messages(content)) {
      if (field === 1) this.pieces.push(readPiece(bytes));
      if (field === 2) trainer = settings(bytes);
      if (field === 3) normalizer = settings(bytes);
    }
    this.isBpe = trainer.get(3) === 2;
    this.trimsSpaces = (normalizer.get(4) ?? 1) === 1;
    this.pieces.forEach(({ text, kind }, token) => {
      if (kind === NORMAL || kind === USER_DEFINED) this.numbers.set(text, token);
      const byte = /^<0x([0-9A-F]{2})>$/.exec(text);
      if (byte) this.byteTokens[parseInt(byte[1], 16)] = token;
    });
    this.byteTokens.forEach((token, byte) => this.byteOf.set(token, byte));
    if (this.byteTokens.length !== 256) throw new RequestError("the tokenizer has no tokens for bytes");
    this.longest = Math.max(...this.pieces.map(({ text }) => text.length));
    const scores = this.pieces.filter(({ kind }) => kind === NORMAL).map(({ score }) => score);
    this.unknownScore = Math.fround(Math.min(...scores) - UNKNOWN_PENALTY);
  }

  encode(text: string): number[] {
    const spaced = this.trimsSpaces ? text.split(" ").filter(Boolean).join(" ") : text;
    if (!spaced) return [];
    const normalized = (this.trimsSpaces ? ` ${spaced}` : spaced).replaceAll(" ", "▁");
    const segments = this.isBpe ? this.mergePairs(normalized) : this.bestSegments(normalized);
    return segments.flatMap((segment) => {
      const token = this.numbers.get(segment);
      return token === undefined ? utf8(segment).map((byte) => this.byteTokens[byte]) : [token];
    });
  }

  decode(tokens: number[]): string {
    let text = "";
    let bytes: number[] = [];
    const flush = () => {
      text += fromUtf8(bytes);
      bytes = [];
    };
    for (const token of tokens) {
      const byte = this.byteOf.get(token);
      if (byte !== undefined) {
        bytes.push(byte);
        continue;
      }
      flush();
      let piece = this.pieces[token].text;
      if (this.trimsSpaces && text === "" && piece.startsWith("▁")) piece = piece.slice(1);
      text += piece.replaceAll("▁", " ");
    }
    flush();
    return text;
  }

  /** The segmentation of the highest probability, by Viterbi's algorithm; unknown characters are segments. */
  private bestSegments(text: string): string[] {
    const best = new Float32Array(text.length + 1);
    const from = new Int32Array(text.length + 1).fill(-1);
    const offer = (start: number, end: number, score: number) => {
      const total = Math.fround(score + best[start]);
      if (from[end] >= 0 && total <= best[end]) return;
      best[end] = total;
      from[end] = start;
    };
    for (let start = 0; start < text.length;) {
      const step = text.codePointAt(start)! > 0xffff ? 2 : 1;
      const limit = Math.min(text.length, start + this.longest);
      for (let end = start + 1; end <= limit; end++) {
        const token = this.numbers.get(text.slice(start, end));
        if (token !== undefined) offer(start, end, this.scoreOf(token));
      }
      if (!this.numbers.has(text.slice(start, start + step))) offer(start, start + step, this.unknownScore);
      start += step;
    }
    const segments: string[] = [];
    for (let end = text.length; end > 0; end = from[end]) segments.unshift(text.slice(from[end], end));
    return segments;
  }

  /** The score of a piece; line breaks and tabs are always pieces of their own. */
  private scoreOf(token: number): number {
    return this.pieces[token].kind === USER_DEFINED ? -0.1 : this.pieces[token].score;
  }

  /** Merge the pair of the highest score, the first among equals, until no pair is a piece. */
  private mergePairs(text: string): string[] {
    const parts = [...text];
    const frozen = (part: string) => this.pieces[this.numbers.get(part) ?? 0].kind === USER_DEFINED;
    for (;;) {
      let highest = -Infinity;
      let at = -1;
      for (let i = 0; i + 1 < parts.length; i++) {
        const token = this.numbers.get(parts[i] + parts[i + 1]);
        if (token === undefined || frozen(parts[i]) || frozen(parts[i + 1])) continue;
        if (this.pieces[token].score > highest) [highest, at] = [this.pieces[token].score, i];
      }
      if (at < 0) return parts;
      parts.splice(at, 2, parts[at] + parts[at + 1]);
    }
  }
}

function utf8(text: string): number[] {
  return [...new TextEncoder().encode(text)];
}

/** Decodes bytes; each byte that belongs to no character becomes U+FFFD. */
function fromUtf8(bytes: number[]): string {
  const strict = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
  let text = "";
  for (let i = 0; i < bytes.length;) {
    const length = bytes[i] < 0x80 ? 1 : bytes[i] < 0xe0 ? 2 : bytes[i] < 0xf0 ? 3 : 4;
    try {
      text += strict.decode(Uint8Array.from(bytes.slice(i, i + length)));
      i += length;
    } catch {
      text += "\ufffd";
      i += 1;
    }
  }
  return text;
}

function readPiece(bytes: Uint8Array): Piece {
  const piece = { text: "", score: 0, kind: NORMAL };
  for (const { field, bytes: content, value } of messages(bytes)) {
    if (field === 1) piece.text = new TextDecoder("utf-8", { ignoreBOM: true }).decode(content);
    if (field === 2) piece.score = new DataView(content.slice().buffer).getFloat32(0, true);
    if (field === 3) piece.kind = value;
  }
  return piece;
}

/** The fields of a message that are whole numbers. */
function settings(bytes: Uint8Array): Map<number, number> {
  return new Map([...messages(bytes)].map(({ field, value }) => [field, value]));
}

/** The fields of a protocol buffer. */
function* messages(content: Uint8Array): Generator<{ field: number; bytes: Uint8Array; value: number }> {
  let at = 0;
  const varint = () => {
    let number = 0;
    for (let factor = 1; ; factor *= 128) {
      const byte = content[at++];
      number += (byte & 127) * factor;
      if (byte < 128) return number;
    }
  };
  while (at < content.length) {
    const key = varint();
    const wire = key & 7;
    if (wire === 0) {
      yield { field: key >> 3, bytes: new Uint8Array(), value: varint() };
      continue;
    }
    const size = wire === 2 ? varint() : wire === 5 ? 4 : 8;
    yield { field: key >> 3, bytes: content.subarray(at, at + size), value: 0 };
    at += size;
  }
}
