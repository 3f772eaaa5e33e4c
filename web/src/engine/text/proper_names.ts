// Proper names: capitalized words inside a sentence that are rare in the training data. regard/text/augment/proper_names.py.
import { D, LETTER, W, first, isAlpha, isAlphanumeric, isDigits, isLower, isUpper, last } from "./unicode";

const ENDS = ".!?…:"; // of a sentence: the next word is capitalized anyway
export const ELISION = new RegExp(`^[${LETTER}]{1,7}['’](?=[${LETTER}])`, "u"); // the l' of l'Afrique
const ANY_ELISION = new RegExp(`[${LETTER}]{1,7}['’](?=[${LETTER}])`, "u");
const TIME = new RegExp(`^[${D}]{1,2}[hH][${D}]{2}$`, "u"); // letters and digits, but not a code
const MIN_SPELLED_TOKENS = 3; // from which a word counts as spelled out
const PUNCTUATION = new RegExp(`^[^${W}]+|[^${W}]+$`, "gu");
const CODE = new RegExp(`[${LETTER}][${D}]`, "u");
const DIGIT = new RegExp(`[${D}]`, "u");

/** A word, the number of its tokens, and whether it is one token when lowercased. */
export interface SegmentedWord {
  text: string;
  tokens: number;
  plain: boolean;
}

/** The start and end of each name; adjacent names are one name, and so are adjacent numbers. */
export function findNames(words: SegmentedWord[], known: Set<string>): Map<number, number> {
  const names = new Map<number, number>();
  if (!words.length) return names;
  const texts = words.map(({ text }) => text);
  const isName = words.map((word, i) => !word.plain && seemsName(texts, i, known));
  for (let i = 0; i + 1 < texts.length; i++) {
    // "Emmanuel" in "Emmanuel Macron": the first word is always capitalized
    const spelled = words[i].tokens >= MIN_SPELLED_TOKENS;
    const mayBe = begins(texts, i) && isUpper(first(core(texts[i]))) && isAlpha(texts[i]) && spelled;
    isName[i] ||= isName[i + 1] && mayBe;
  }
  const kinds = texts.map((text, i) => (isName[i] ? "name" : isDigits(core(text)) ? "number" : ""));
  let start = 0;
  for (let i = 1; i <= texts.length; i++) {
    if (i < texts.length && kinds[i] === kinds[start] && !begins(texts, i)) continue;
    if (kinds[start] === "name" || (kinds[start] === "number" && i - start > 1)) names.set(start, i);
    start = i;
  }
  return names;
}

/** Whether there could be a name in a text: it needs a capital after the first letter, or a digit. */
export function mayHaveNames(text: string): boolean {
  const rest = text.slice(first(text).length);
  return rest !== rest.toLowerCase() || DIGIT.test(text);
}

/** Removes punctuation and an elided article from a word: "l'Afrique," becomes "Afrique". */
export function core(word: string): string {
  const bare = word.replace(PUNCTUATION, "");
  return isLower(first(bare)) ? bare.replace(ANY_ELISION, "") : bare;
}

/** Whether a sentence or a quotation begins with word i. */
function begins(words: string[], i: number): boolean {
  if (i === 0 || !isAlphanumeric(first(words[i]))) return true;
  const before = last(words[i - 1].replace(/["'»”’)]+$/, ""));
  return before === "" || ENDS.includes(before);
}

function seemsName(words: string[], i: number, known: Set<string>): boolean {
  const bare = core(words[i]);
  if (CODE.test(bare) && !TIME.test(bare)) return true; // Xk42qz9
  return !begins(words, i) && isUpper(first(bare)) && !known.has(bare);
}
