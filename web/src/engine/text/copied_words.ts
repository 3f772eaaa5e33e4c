// Unknown words: each becomes one token in the source, and the output copies the most attended source word.
// regard/api/translation/copy_unknown_words.py; Luong et al. 2015, "Addressing the rare word problem".
import { isPlainName } from "./hidden_spans";
import { core, findNames } from "./proper_names";
import { UNKNOWN, type Tokenizer, type Word } from "./tokenizer";
import { first, isAlphanumeric, isLower, isUpper, trimEnd } from "./unicode";

const SENTENCE_ENDS = ".!?…";

/** Replaces each word with a token that training never saw by one UNKNOWN; the word keeps its text. */
export function hideUnseen(tokens: number[], words: Word[], unseen: Set<number>): [number[], Word[]] {
  return replaced(tokens, words, (word) => tokens.slice(word.start, word.end).some((token) => unseen.has(token)));
}

/** Replaces each name that is rare in the training data, of any number of words, by one UNKNOWN with its text. */
export function hideNames(tokenizer: Tokenizer, tokens: number[], words: Word[], known: Set<string>): [number[], Word[]] {
  const parts = words.flatMap((word) => withoutElision(tokenizer, tokens, word));
  const segmented = parts.map(({ text, start, end }) => ({ text, tokens: end - start, plain: isPlainName(tokenizer, text) }));
  const names = findNames(segmented, known);
  const grouped: Word[] = [];
  const isName = new Set<Word>();
  for (let i = 0; i < parts.length;) {
    const end = names.get(i) ?? i + 1;
    const text = parts.slice(i, end).map((part) => part.text).join(" ");
    const word = { text, start: parts[i].start, end: parts[end - 1].end };
    if (names.has(i)) isName.add(word);
    grouped.push(word);
    i = end;
  }
  return replaced(tokens, grouped, (word) => isName.has(word));
}

/** The tokens with one UNKNOWN in place of some words, and the words with their new places. */
function replaced(tokens: number[], words: Word[], hides: (word: Word) => boolean): [number[], Word[]] {
  const newTokens: number[] = [];
  const newWords: Word[] = [];
  let done = 0;
  for (const word of words) {
    newTokens.push(...tokens.slice(done, word.start));
    const start = newTokens.length;
    newTokens.push(...(hides(word) ? [UNKNOWN] : tokens.slice(word.start, word.end)));
    newWords.push({ text: word.text, start, end: newTokens.length });
    done = word.end;
  }
  return [[...newTokens, ...tokens.slice(done)], newWords];
}

/** The word, or two words such as "d'" and "Émilie" if a name follows an elision and its tokens allow it. */
function withoutElision(tokenizer: Tokenizer, tokens: number[], word: Word): Word[] {
  const before = isLower(first(word.text)) ? word.text.indexOf(core(word.text)) : 0;
  if (before <= 0 || !isUpper(first(core(word.text)))) return [word];
  let length = 0;
  const pieces = tokenizer.pieces(tokens.slice(word.start, word.end));
  for (const [i, piece] of pieces.entries()) {
    const at = word.start + i;
    if (length === before)
      return [
        { text: word.text.slice(0, before), start: word.start, end: at },
        { text: word.text.slice(before), start: at, end: word.end },
      ];
    length += piece.replace(/^[▁ ]+/, "").length;
  }
  return [word];
}

/** For each unknown token of the target, the text of the source word with the largest weight (m, n). */
export function mostAttendedWords(rows: Float32Array[], source: number[], words: Word[], target: number[]): string[] {
  if (!words.length) return target.filter((token) => token === UNKNOWN).map(() => "");
  const unknown = words.filter((word) => source.slice(word.start, word.end).includes(UNKNOWN));
  const copies: string[] = [];
  let unused = unknown;
  target.forEach((token, i) => {
    if (token !== UNKNOWN) return;
    const weight = (word: Word) => rows[i].slice(word.start, word.end).reduce((sum, value) => sum + value, 0);
    const candidates = unused.length ? unused : unknown.length ? unknown : words;
    const best = candidates.reduce((best, word) => (weight(word) > weight(best) ? word : best));
    copies.push(best.text);
    unused = unused.filter((word) => word !== best);
  });
  return copies;
}

/** Removes final punctuation of copied words that the model has written itself, or inside a sentence that goes on. */
export function fitCopies(copies: string[], tokens: number[], pieces: string[]): string[] {
  const after = tokens.flatMap((token, i) => (token === UNKNOWN ? [pieces[i + 1] ?? ""] : []));
  return copies.map((copy, i) => {
    const piece = after[i];
    if (piece && !isAlphanumeric(first(piece)) && copy.endsWith(piece)) copy = copy.slice(0, -piece.length);
    const goesOn = first(piece.replace(/^[▁ ]+|[▁ ]+$/g, ""));
    return goesOn && !isUpper(goesOn) && goesOn !== "<" ? trimEnd(copy, SENTENCE_ENDS) : copy;
  });
}

/** The target's words with the copied texts in place of the unknown token. */
export function nameCopies(tokenizer: Tokenizer, tokens: number[], words: Word[], copies: string[]): Word[] {
  let done = 0;
  return words.map((word) => {
    const own = tokens.slice(word.start, word.end);
    const count = own.filter((token) => token === UNKNOWN).length;
    if (!count) return word;
    const text = tokenizer.decode(own, copies.slice(done, (done += count))).trim();
    return { ...word, text };
  });
}
