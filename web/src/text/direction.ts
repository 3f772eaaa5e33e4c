// The writing direction of a text.

const RIGHT_TO_LEFT = /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufeff]/;
const LETTER = /\p{L}/u;

/** Whether a text is written from right to left; its first letter decides. */
export function runsFromRight(texts: string[]): boolean {
  for (const letter of texts.join(" ")) {
    if (LETTER.test(letter)) return RIGHT_TO_LEFT.test(letter);
  }
  return false;
}
