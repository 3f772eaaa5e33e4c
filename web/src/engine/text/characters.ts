// Tokenizers whose tokens are characters, or labels of a classifier. regard/text/tokenizers/characters.py, labels.py.
import { SPACE, SPECIAL_TOKENS, UNKNOWN, groupWords, type Tokenizer, type Word } from "./tokenizer";

export const VISIBLE: Record<string, string> = { " ": SPACE, "\n": "⏎", "\t": "⇥" };

export class CharacterTokenizer implements Tokenizer {
  readonly kind = "characters";
  private readonly characters: string[];
  private readonly numbers: Map<string, number>;

  constructor(characters: string) {
    this.characters = [...SPECIAL_TOKENS.map(() => ""), ...characters];
    this.numbers = new Map(this.characters.map((character, i) => [character, i]));
  }

  get size(): number {
    return this.characters.length;
  }

  encode(text: string): number[] {
    return [...text.normalize("NFC")].map((character) => this.numbers.get(character) ?? UNKNOWN);
  }

  decode(tokens: number[], unknown: string[] = []): string {
    const replacements = [...unknown];
    return tokens.map((token) => (token === UNKNOWN ? (replacements.shift() ?? "") : this.characters[token])).join("");
  }

  pieces(tokens: number[]): string[] {
    return tokens.map((token) => SPECIAL_TOKENS[token] ?? VISIBLE[this.characters[token]] ?? this.characters[token]);
  }

  words(tokens: number[]): Word[] {
    const texts = tokens.map((token) => (token === UNKNOWN ? SPECIAL_TOKENS[UNKNOWN] : this.characters[token]));
    const blank = (text: string) => /^\s+$/.test(text);
    const spans = groupWords(texts.map((text) => (text ? [blank(text), blank(text)] : null)));
    return spans.map(([start, end]) => ({ text: texts.slice(start, end).join("").trim(), start, end }));
  }
}

export class LabelTokenizer implements Tokenizer {
  readonly kind = "labels";

  constructor(readonly labels: string[]) {}

  get size(): number {
    return SPECIAL_TOKENS.length + this.labels.length;
  }

  encode(text: string): number[] {
    const label = this.labels.indexOf(text);
    return [label < 0 ? UNKNOWN : SPECIAL_TOKENS.length + label];
  }

  decode(tokens: number[]): string {
    return this.pieces(tokens.filter((token) => token >= SPECIAL_TOKENS.length)).join(" ");
  }

  pieces(tokens: number[]): string[] {
    return tokens.map((token) => SPECIAL_TOKENS[token] ?? this.labels[token - SPECIAL_TOKENS.length]);
  }

  words(tokens: number[]): Word[] {
    const texts = this.pieces(tokens);
    return texts.map((text, i) => ({ text, start: i, end: i + 1 })).filter(({ start }) => tokens[start] === UNKNOWN || tokens[start] >= SPECIAL_TOKENS.length);
  }
}
