// The tokenizer interface, the special tokens, and words. regard/text/tokenizers/tokenizer.py.

export const PAD = 0;
export const UNKNOWN = 1;
export const START = 2;
export const END = 3;
export const SPECIAL_TOKENS = ["<pad>", "<unk>", "<s>", "</s>"];
export const SPACE = "▁"; // in place of a space where tokens are displayed

/** A word and its tokens [start, end). */
export interface Word {
  text: string;
  start: number;
  end: number;
}

export interface Tokenizer {
  readonly kind: "subwords" | "characters" | "labels";
  readonly size: number;
  /** The tokens of a text, without START and END. */
  encode(text: string): number[];
  /** The text without PAD, START and END. The i-th UNKNOWN becomes unknown[i], if there is one. */
  decode(tokens: number[], unknown?: string[]): string;
  /** Each token as readable text, with ▁ for a space. */
  pieces(tokens: number[]): string[];
  /** PAD, START and END belong to no word; UNKNOWN is a word. */
  words(tokens: number[]): Word[];
}

/** Whether a token begins with a space, and whether it is nothing else; null separates words. */
export type Blank = [boolean, boolean] | null;

/** The start and end of each word. A space belongs to the word after it, and at the very end to none. */
export function groupWords(blanks: Blank[]): [number, number][] {
  const words: [number, number][] = [];
  let start: number | null = null;
  let solid = false; // whether the current word has more than spaces
  [...blanks, null].forEach((blank, i) => {
    if (start !== null && (blank === null || (blank[0] && solid))) {
      if (solid) words.push([start, i]);
      start = null;
    }
    if (blank !== null) {
      solid = (start !== null && solid) || !blank[1];
      start ??= i;
    }
  });
  return words;
}
