// Prepare a sentence for a translator: the same tokens as in training. regard/api/translation/source_text.py.
import type { Json } from "../../state/trace";
import { hideNames, hideUnseen } from "./copied_words";
import { PlaceholderReader, type Hidden } from "./hidden_spans";
import { PLACEHOLDERS, hasPlaceholder, restore, type Carried } from "./placeholders";
import { mayHaveNames } from "./proper_names";
import { mayHaveSpan } from "./spans";
import { END, SPECIAL_TOKENS, type Tokenizer, type Word } from "./tokenizer";
import { LETTER, NO_S, isAscii, isUpper } from "./unicode";

const BYTE = /^<0x[0-9A-F]{2}>$/; // a token for one byte of a character that has no token
const INNER_HYPHEN = new RegExp(`(?<=[${LETTER}])-(?=[${LETTER}])`, "gu");
const JOINERS = "\ufe0f\u20e3"; // which combine smileys and other symbols, like the zero-width joiner

/** A sentence as the model reads it: its tokens, with the end token last, and its words. */
export interface Source {
  text: string;
  ids: number[];
  words: Word[];
  units: Word[]; // what may be copied into the translation: words, or characters
  carried: Carried; // spans that the translation must contain, by their placeholders
  originals: Carried; // the same spans as the source writes them
}

export class SourceReader {
  private readonly unseen: Set<number>;
  private readonly unreadable: Set<number>;
  private readonly seen: Set<string>;
  private readonly familiar: Set<string>;
  private readonly knownNames: Set<string> | null;
  readonly placeholders: PlaceholderReader;

  constructor(
    private readonly tokenizer: Tokenizer,
    info: Json,
  ) {
    this.unseen = new Set(info.unseen_pieces ?? []);
    this.seen = this.unseen.size ? seenCharacters(tokenizer, this.unseen) : new Set();
    this.familiar = new Set([...this.seen, " ", ...PLACEHOLDERS]);
    this.knownNames = info.known_names ? new Set(info.known_names) : null;
    this.placeholders = new PlaceholderReader(tokenizer, info, this.knownNames);
    this.unreadable = new Set([...this.unseen].filter((token) => !this.placeholders.tokens.has(token)));
  }

  /** Encodes a sentence: numbers, addresses and rare names become placeholders or UNKNOWN. */
  read(text: string): Source {
    const plain = this.isPlain(text);
    const readable = this.unseen.size ? (rest: string) => this.readable(rest) : null;
    const hidden = plain ? { text, carried: new Map(), originals: new Map() } : this.placeholders.hide(text, readable);
    let tokens = this.tokenizer.encode(hidden.text);
    let words = wordsOf(this.tokenizer, text, tokens);
    if (!plain || tokens.some((token) => this.unreadable.has(token)))
      [tokens, words] = this.replaceWords(text, hidden, tokens);
    const units = this.tokenizer.kind === "characters" ? letters(text) : words;
    return { text, ids: [...tokens, END], words, units, carried: hidden.carried, originals: hidden.originals };
  }

  /** Whether certainly nothing of a text is replaced or changed, as in most texts. */
  private isPlain(text: string): boolean {
    const rest = [...text].slice(1).join("");
    return rest === rest.toLowerCase() && text.split(" ").every((word) => this.isPlainWord(word));
  }

  private isPlainWord(word: string): boolean {
    if (mayHaveSpan(word.replace(INNER_HYPHEN, "")) || hasPlaceholder(word) || this.placeholders.hasUnseen(word))
      return false;
    return !this.unseen.size || (word.normalize("NFC") === word && [...word].every((letter) => this.familiar.has(letter)));
  }

  private replaceWords(text: string, hidden: Hidden, tokens: number[]): [number[], Word[]] {
    let words = wordsOf(this.tokenizer, text, tokens);
    if (this.knownNames !== null && mayHaveNames(hidden.text))
      [tokens, words] = hideNames(this.tokenizer, tokens, words, this.knownNames);
    if (tokens.some((token) => this.unreadable.has(token))) [tokens, words] = hideUnseen(tokens, words, this.unreadable);
    if (hasPlaceholder(hidden.text))
      words = words.map((word) => ({ ...word, text: restore(word.text, hidden.originals) }));
    return [tokens, words];
  }

  /** Makes more words readable: lowercases words with capitals that training never saw, and sets symbols apart. */
  private readable(text: string): string {
    if (this.knownNames !== null && isUpper(text) && text.trim().split(/\s+/).length > 1)
      text = text[0].toUpperCase() + text.slice(1).toLowerCase(); // in capitals, names cannot be recognized
    if (isAscii(text)) return text;
    text = text.normalize("NFC");
    if ([...text].every((letter) => this.familiar.has(letter))) return text;
    const words = text.replace(new RegExp(`${NO_S}+`, "gu"), (word) => this.lowered(word));
    const runs: { symbols: boolean; text: string }[] = [];
    for (const letter of words) {
      const symbols = this.isUnseenSymbol(letter);
      if (runs.at(-1)?.symbols === symbols) runs.at(-1)!.text += letter;
      else runs.push({ symbols, text: letter });
    }
    return runs.map((run) => (run.symbols ? ` ${run.text} ` : run.text)).join("");
  }

  private lowered(word: string): string {
    const unseen = [...word].filter((letter) => isUpper(letter) && this.isUnseen(letter));
    return unseen.length && !unseen.some((letter) => this.isUnseen(letter.toLowerCase())) ? word.toLowerCase() : word;
  }

  private isUnseenSymbol(letter: string): boolean {
    return (JOINERS.includes(letter) || /[\p{S}\p{C}]/u.test(letter)) && this.isUnseen(letter);
  }

  private isUnseen(letter: string): boolean {
    return !this.seen.has(letter) && !PLACEHOLDERS.includes(letter);
  }
}

/** The words of an encoded text, including characters that the tokenizer does not know. */
function wordsOf(tokenizer: Tokenizer, text: string, tokens: number[]): Word[] {
  const words = tokenizer.words(tokens);
  if (tokenizer.kind !== "characters") return words;
  const characters = [...text.normalize("NFC")]; // one token each
  return words.map((word) => ({ ...word, text: characters.slice(word.start, word.end).join("").trim() }));
}

function letters(text: string): Word[] {
  return [...text.normalize("NFC")].map((letter, i) => ({ text: letter, start: i, end: i + 1 }));
}

/** The characters that training saw, in any token; a capital need not have a token of its own. */
function seenCharacters(tokenizer: Tokenizer, unseen: Set<number>): Set<string> {
  const first = SPECIAL_TOKENS.length;
  const seen = Array.from({ length: tokenizer.size - first }, (_, i) => first + i).filter((token) => !unseen.has(token));
  return new Set(tokenizer.pieces(seen).filter((piece) => !BYTE.test(piece)).join(""));
}
