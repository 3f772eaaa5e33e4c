// Hide the spans of a source behind placeholders: numbers, addresses, rare names, words that the model cannot read.
// regard/api/translation/placeholder_reader.py, regard/text/placeholders/placeholders.py.
import type { Json } from "../../state/trace";
import { PLACEHOLDERS, hasPlaceholder, type Carried } from "./placeholders";
import { ELISION, core, findNames, mayHaveNames, type SegmentedWord } from "./proper_names";
import { findSpans, localised, type Kind, type Span } from "./spans";
import { SPECIAL_TOKENS, type Tokenizer } from "./tokenizer";
import { LETTER, first, isAscii, isLower, isUpper, splitWords, trimEnd } from "./unicode";

// The placeholders of each kind. When they are used up, a span takes one of another kind.
const SYMBOLS: Record<Kind, string[]> = {
  number: PLACEHOLDERS.slice(0, 5),
  time: PLACEHOLDERS.slice(5, 8),
  word: PLACEHOLDERS.slice(8),
};
const SENTENCE_MARKS = ".,;:!?…";
const DOUBLE_NAME = new RegExp(`^[${LETTER}]+(?:-[A-ZÀ-Þ][${LETTER}]+)+$`, "u"); // Jean-Pierre

/** A text with placeholders, and what they stand for. */
export interface Hidden {
  text: string;
  carried: Carried; // as the translation writes it
  originals: Carried; // as the text writes it
}

export class PlaceholderReader {
  readonly symbols: string[] = []; // none if the model was trained without placeholders
  readonly tokens: Set<number>; // of placeholders, and the joiner before one inside a word
  private readonly source: string | null;
  private readonly target: string | null;
  private readonly unseen: Set<number>;
  private readonly segmented = new Map<string, SegmentedWord>();

  constructor(
    private readonly tokenizer: Tokenizer,
    info: Json,
    private readonly knownNames: Set<string> | null,
  ) {
    const data = info.recipe?.data ?? {};
    this.source = data.source_language ?? null;
    this.target = data.target_language ?? null;
    this.unseen = new Set(info.unseen_pieces ?? []);
    if (data.placeholders)
      this.symbols = PLACEHOLDERS.filter((symbol) => !this.unseen.has(placeholderToken(tokenizer, symbol)));
    this.tokens = new Set(this.symbols.flatMap((symbol) => tokenizer.encode(`(${symbol}`).slice(-2)));
  }

  /** Hides numbers, addresses and code; then rare names; then, after `readable`, what cannot be read. */
  hide(text: string, readable: ((text: string) => string) | null): Hidden {
    if (this.symbols.length) text = text.replace(/[\ufdd0-\ufddb]/g, "\ufffd"); // characters that no text should contain
    const spans = this.symbols.length ? findSpans(text, this.source) : [];
    let hidden = hide(text, spans, this.target, this.symbols);
    if (!isUpper(text)) hidden = this.hideMore(hidden, this.names(hidden.text)); // in capitals, names are not recognized
    if (readable) hidden = { ...hidden, text: readable(hidden.text) };
    return this.hideMore(hidden, this.unreadable(hidden.text));
  }

  /** Whether a word has a token that training never saw, without the punctuation after it. */
  hasUnseen(word: string): boolean {
    return this.tokenizer.encode(trimEnd(word, SENTENCE_MARKS)).some((token) => this.unseen.has(token));
  }

  private hideMore(hidden: Hidden, spans: Span[]): Hidden {
    const free = this.symbols.filter((symbol) => !hidden.carried.has(symbol));
    const more = hide(hidden.text, free.length ? spans : [], null, free);
    return {
      text: more.text,
      carried: new Map([...hidden.carried, ...more.carried]),
      originals: new Map([...hidden.originals, ...more.originals]),
    };
  }

  /** The names that are rare in the training data, without the punctuation around them. */
  private names(text: string): Span[] {
    if (this.knownNames === null || !mayHaveNames(text)) return [];
    const parts = splitWords(text).flatMap(({ text: word, start }) => {
      const cut = isLower(first(word)) ? (ELISION.exec(word)?.[0].length ?? 0) : 0; // "d'Émilie" is two words
      const rest = { text: word.slice(cut), start: start + cut };
      return cut ? [{ text: word.slice(0, cut), start }, rest] : [rest];
    });
    const names = findNames(parts.map((part) => this.segment(part.text)), this.knownNames);
    if (parts.length && !names.has(0) && DOUBLE_NAME.test(core(parts[0].text))) {
      names.set(0, names.get(1) ?? 1); // a double name may begin the sentence
      names.delete(1);
    }
    return [...names]
      .sort((a, b) => a[0] - b[0])
      .map(([i, end]): Span => {
        const [begin, final] = [parts[i], parts[end - 1]];
        const start = begin.start + begin.text.indexOf(core(begin.text));
        const stop = final.start + final.text.lastIndexOf(core(final.text)) + core(final.text).length;
        return { start, end: stop, kind: "word", key: "" };
      })
      .filter(({ start, end }) => {
        const name = text.slice(start, end);
        const shouted = isUpper(name) && !isAscii(name); // TRÈS is hardly a name
        return !shouted && !hasPlaceholder(name);
      });
  }

  /** The words that have a token which training never saw, such as smileys. */
  private unreadable(text: string): Span[] {
    return splitWords(text)
      .filter(({ text: word }) => !hasPlaceholder(word) && this.hasUnseen(word))
      .map(({ text: word, start }) => ({ start, end: start + trimEnd(word, SENTENCE_MARKS).length, kind: "word", key: "" }));
  }

  private segment(word: string): SegmentedWord {
    const known = this.segmented.get(word);
    if (known) return known;
    const made = { text: word, tokens: this.tokenizer.encode(word).length, plain: isPlainName(this.tokenizer, word) };
    this.segmented.set(word, made);
    return made;
  }
}

/** Whether a capitalized word, in lowercase, is one token. */
export function isPlainName(tokenizer: Tokenizer, word: string): boolean {
  const bare = core(word);
  return isUpper(first(bare)) && tokenizer.encode(bare.toLowerCase()).length === 1;
}

export function placeholderToken(tokenizer: Tokenizer, symbol: string): number {
  return tokenizer.encode(symbol).at(-1)!;
}

/** The tokens that a translation writes exactly once, and those that it must not write; UNKNOWN would copy a span twice. */
export function carriedTokens(tokenizer: Tokenizer, carried: Carried, unknown: boolean): { once: number[]; barred: number[] } {
  const once = [...carried.keys()].map((symbol) => placeholderToken(tokenizer, symbol));
  const others = PLACEHOLDERS.filter((symbol) => !carried.has(symbol)).map((symbol) => placeholderToken(tokenizer, symbol));
  return { once, barred: unknown ? others : [...others, SPECIAL_TOKENS.indexOf("<unk>")] };
}

/** Replaces spans by placeholders, as many as there are; dates are carried as the target language writes them. */
function hide(text: string, spans: Span[], target: string | null, symbols: string[]): Hidden {
  const free = Object.fromEntries(
    Object.entries(SYMBOLS).map(([kind, all]) => [kind, all.filter((symbol) => symbols.includes(symbol))]),
  );
  const hidden: Hidden = { text: "", carried: new Map(), originals: new Map() };
  let done = 0;
  for (const span of spans) {
    const own = free[span.kind];
    const others = Object.values(free).reduce((most, each) => (each.length > most.length ? each : most));
    const symbol = (own.length ? own : others).shift();
    if (!symbol) break;
    const original = text.slice(span.start, span.end);
    hidden.text += text.slice(done, span.start) + symbol;
    done = span.end;
    hidden.carried.set(symbol, localised(span, original, target));
    hidden.originals.set(symbol, original);
  }
  hidden.text += text.slice(done);
  return hidden;
}

