// Subword tokenizers, by sentencepiece: BPE or unigram. regard/text/tokenizers/subwords.py.
import { SentencePiece } from "./sentencepiece";
import { PlaceholderTokens } from "./placeholders";
import { VISIBLE } from "./characters";
import { END, PAD, SPACE, SPECIAL_TOKENS, START, UNKNOWN, groupWords, type Blank, type Tokenizer, type Word } from "./tokenizer";

// sentencepiece writes a space as ▁, so a ▁ in the text itself is escaped: ESCAPE and a digit.
const ESCAPE = "\x1a";
const BYTES = 256;
const BREAKS = /[\t-\r\x1c-\x1f\x85\u2028\u2029]/g; // tabs and line breaks, which separate words as spaces do

export class SubwordTokenizer implements Tokenizer {
  readonly kind = "subwords";
  readonly size: number;
  private readonly model: SentencePiece;
  private readonly placeholders: PlaceholderTokens;
  private readonly shown: string[];
  private readonly blanks: Blank[];
  private readonly texts: (string | null)[]; // of tokens that are ordinary text: no special token, byte or escape
  private readonly lossless: boolean; // keeps all spaces

  constructor(content: Uint8Array) {
    this.model = new SentencePiece(content);
    const pieces = this.model.pieces.map(({ text }) => text);
    this.size = pieces.length;
    this.lossless = !this.model.trimsSpaces;
    this.placeholders = new PlaceholderTokens(this.model.byteTokens, pieces.indexOf(SPACE));
    this.shown = pieces.map((piece) => VISIBLE[piece] ?? piece);
    this.blanks = pieces.map((piece) => [/^[▁\n\t]/.test(piece), /^[▁\n\t]*$/.test(piece)]);
    const first = SPECIAL_TOKENS.length + BYTES;
    this.texts = pieces.map((piece, i) => (i < first || piece.includes(ESCAPE) ? null : piece.replaceAll(SPACE, " ")));
  }

  encode(text: string): number[] {
    return this.placeholders.fold(text, this.model.encode(this.prepared(text)));
  }

  decode(tokens: number[], unknown: string[] = []): string {
    const marks = [PAD, START, END];
    const texts = tokens.map((token) => (marks.includes(token) ? "" : this.texts[token]));
    if (!texts.includes(null)) return this.lossless ? texts.join("") : texts.join("").replace(/^ +/, "");
    const content = this.placeholders.unfold(tokens.filter((token) => !marks.includes(token)));
    if (!content.includes(UNKNOWN)) return restored(this.model.decode(content));
    let text = "";
    const replacements = [...unknown];
    for (const run of runs(content)) {
      if (run[0] === UNKNOWN) {
        for (const word of replacements.splice(0, run.length)) text += (text && word ? " " : "") + word;
      } else {
        // sentencepiece removes the space of the first token, except in lossless models
        const space = text && !this.lossless && this.blanks[run[0]]![0];
        text += (space ? " " : "") + restored(this.model.decode(run));
      }
    }
    return text;
  }

  pieces(tokens: number[]): string[] {
    return tokens.map((token) => this.shown[token]);
  }

  words(tokens: number[]): Word[] {
    return this.spans(tokens).map(([start, end]) => ({ text: this.word(tokens.slice(start, end)), start, end }));
  }

  private word(tokens: number[]): string {
    const texts = tokens.map((token) => this.texts[token]);
    const text = texts.includes(null) ? this.decode(tokens, [SPECIAL_TOKENS[UNKNOWN]]) : texts.join("");
    return text.replace(/^[ \n\t]+|[ \n\t]+$/g, "");
  }

  /** The spans of words. An UNKNOWN is a word, and text that follows without a space is another one. */
  private spans(tokens: number[]): [number, number][] {
    const flags = tokens.map((token) => (token < SPECIAL_TOKENS.length ? null : this.blanks[token]));
    for (const i of this.placeholders.wordStarts(tokens)) flags[i] = [true, false];
    const unknowns = tokens.flatMap((token, i): [number, number][] => (token === UNKNOWN ? [[i, i + 1]] : []));
    return [...groupWords(flags), ...unknowns].sort((a, b) => a[0] - b[0]);
  }

  private prepared(text: string): string {
    const spaced = this.lossless ? text : text.replace(BREAKS, " ");
    return spaced
      .replace(/[\ud800-\udfff]/gu, "\ufffd") // half surrogates, which are no characters
      .normalize("NFC").replaceAll(ESCAPE, `${ESCAPE}0`).replaceAll(SPACE, `${ESCAPE}1`);
  }
}

/** Undoes the escapes. */
function restored(text: string): string {
  return text.replace(/\x1a([01])/g, (_, digit) => (digit === "0" ? ESCAPE : SPACE));
}

/** Runs of UNKNOWN, and runs of other tokens. */
function runs(tokens: number[]): number[][] {
  const grouped: number[][] = [];
  for (const token of tokens) {
    const last = grouped.at(-1);
    if (last && (last[0] === UNKNOWN) === (token === UNKNOWN)) last.push(token);
    else grouped.push([token]);
  }
  return grouped;
}
