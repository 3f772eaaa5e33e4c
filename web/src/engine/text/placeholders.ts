// Placeholders stand for spans that a translation carries over. In a subword vocabulary each is one token: a byte that
// never occurs in UTF-8. regard/text/tokenizers/placeholder_tokens.py, regard/text/placeholders/placeholders.py.

export const PLACEHOLDERS = Array.from({ length: 12 }, (_, i) => String.fromCharCode(0xfdd0 + i));
const PLACEHOLDER_BYTES = [...Array.from({ length: 11 }, (_, i) => 0xf5 + i), 0xc0];
const JOINER_BYTE = 0xc1;
const BYTE_COUNT = 3; // of each placeholder in UTF-8

/** Placeholder -> the text that it stands for. */
export type Carried = Map<string, string>;

export function hasPlaceholder(text: string): boolean {
  return /[\ufdd0-\ufddb]/.test(text);
}

/** Puts the carried texts in place of their placeholders; a placeholder that stands for nothing is removed. */
export function restore(text: string, carried: Carried): string {
  return text.replace(/[\ufdd0-\ufddb]/g, (symbol) => carried.get(symbol) ?? "");
}

/** The same for a whole translation; spans that it lacks, because it was cut off, follow at its end. */
export function restoreAll(text: string, carried: Carried): string {
  const missing = [...carried].filter(([symbol]) => !text.includes(symbol)).map(([, span]) => span);
  const restored = restore(text, carried);
  return missing.length ? [restored, ...missing].join(" ").trim() : restored;
}

/** Replaces the first occurrence of each carried text in a given translation by its placeholder. */
export function hideCarried(text: string, carried: Carried): string {
  for (const [symbol, span] of [...carried].sort((a, b) => b[1].length - a[1].length)) {
    const plain = span.replace(/[.*+?^${}()|[\]\\/-]/g, "\\$&");
    text = text.replace(new RegExp(`(?<![\\p{L}\\p{N}_])${plain}(?![\\p{L}\\p{N}_])`, "u"), symbol);
  }
  return text;
}

/** Folds a space and the bytes of a placeholder into its token, and unfolds them. */
export class PlaceholderTokens {
  readonly tokens: number[];
  private readonly joiner: number;
  private readonly folded = new Map<string, number>();
  private readonly unfolded = new Map<number, number[]>();

  constructor(
    byteTokens: number[],
    readonly space: number,
  ) {
    this.tokens = PLACEHOLDER_BYTES.map((byte) => byteTokens[byte]);
    this.joiner = byteTokens[JOINER_BYTE];
    PLACEHOLDERS.forEach((symbol, i) => {
      const bytes = [...new TextEncoder().encode(symbol)].map((byte) => byteTokens[byte]);
      this.folded.set(bytes.join(), this.tokens[i]);
      this.unfolded.set(this.tokens[i], bytes);
    });
  }

  fold(text: string, tokens: number[]): number[] {
    if (!hasPlaceholder(text)) return tokens;
    const out: number[] = [];
    for (let i = 0; i < tokens.length;) {
      const placeholder = this.folded.get(tokens.slice(i, i + BYTE_COUNT).join());
      if (placeholder === undefined) {
        out.push(tokens[i++]);
        continue;
      }
      if (out.at(-1) === this.space) out[out.length - 1] = placeholder;
      else out.push(this.joiner, placeholder);
      i += BYTE_COUNT;
    }
    return out;
  }

  unfold(tokens: number[]): number[] {
    return tokens.flatMap((token, i) => {
      const bytes = this.unfolded.get(token);
      if (bytes) return tokens[i - 1] === this.joiner ? bytes : [this.space, ...bytes];
      return token === this.joiner ? [] : [token];
    });
  }

  /** The placeholders that have a space before them, by their places. */
  wordStarts(tokens: number[]): number[] {
    return tokens.flatMap((token, i) => (this.unfolded.has(token) && tokens[i - 1] !== this.joiner ? [i] : []));
  }
}
