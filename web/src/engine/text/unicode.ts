// Classes of characters, and tests of texts as Python's str has them.

/** For use in regular expressions with the flag u: Python's \w, \d, \s, and letters with numbers that are no digits. */
export const W = "\\p{L}\\p{N}_";
export const D = "\\p{Nd}";
export const S = "\\t-\\r\\x1c-\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000";
export const LETTER = "\\p{L}\\p{Nl}\\p{No}"; // [^\W\d_]
export const NO_S = `[^${S}]`;

const HAS_UPPER = /\p{Uppercase}/u;
const HAS_LOWER = /[\p{Lowercase}\p{Lt}]/u;

export function isUpper(text: string): boolean {
  return HAS_UPPER.test(text) && !HAS_LOWER.test(text);
}

export function isLower(text: string): boolean {
  return /\p{Lowercase}/u.test(text) && !/[\p{Uppercase}\p{Lt}]/u.test(text);
}

export function isAscii(text: string): boolean {
  return /^[\x00-\x7f]*$/.test(text);
}

export function isAlpha(text: string): boolean {
  return /^\p{L}+$/u.test(text);
}

export function isAlphanumeric(text: string): boolean {
  return /^[\p{L}\p{N}]+$/u.test(text);
}

export function isDigits(text: string): boolean {
  return /^[\p{Nd}²³¹⁰⁴-⁹₀-₉①-⑨⑴-⑼⒈-⒐⓪⓵-⓽⓿❶-❾➀-➈➊-➒]+$/u.test(text);
}

/** The first character of a text, or an empty text. */
export function first(text: string): string {
  return text ? String.fromCodePoint(text.codePointAt(0)!) : "";
}

/** The last character of a text, or an empty text. */
export function last(text: string): string {
  return [...text.slice(-2)].at(-1) ?? "";
}

/** All words, which spaces separate, with their places. */
export function splitWords(text: string): { text: string; start: number }[] {
  return [...text.matchAll(new RegExp(`${NO_S}+`, "gu"))].map((match) => ({ text: match[0], start: match.index }));
}

/** The text without trailing characters of a set. */
export function trimEnd(text: string, marks: string): string {
  let end = text.length;
  while (end > 0 && marks.includes(text[end - 1])) end--;
  return text.slice(0, end);
}
