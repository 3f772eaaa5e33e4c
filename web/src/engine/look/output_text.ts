// The text of the tokens that a model wrote: copied words and placeholders become text again.
// regard/api/translation/tokens_to_translation.py.
import type { LoadedModel } from "../folder/model_folder";
import type { Layers } from "../models/text_model";
import { fitCopies, mostAttendedWords, nameCopies } from "../text/copied_words";
import { placeholderToken } from "../text/hidden_spans";
import { hasPlaceholder, restore, restoreAll } from "../text/placeholders";
import { END, SPACE, SPECIAL_TOKENS, UNKNOWN, type Word } from "../text/tokenizer";
import { rowsOfBestHead } from "./alignment";
import type { Reading } from "./reading";

/** The text of the tokens, and its words if some of them were replaced by source words. */
export function outputText(
  loaded: LoadedModel,
  { tokenizer, source }: Reading,
  ids: number[],
  layers: Layers,
): { text: string; words: Word[] | null } {
  const written = ids.filter((token) => token !== END);
  if (!source || !(ids.includes(UNKNOWN) || source.carried.size))
    return { text: tokenizer.decode(written, written.map(() => SPECIAL_TOKENS[UNKNOWN])), words: null };
  let text = tokenizer.decode(written);
  let words = tokenizer.words(written);
  if (written.includes(UNKNOWN) && layers.size > 0 && attends(layers)) {
    const copies = mostAttendedWords(rowsOfBestHead(loaded, layers), source.ids, source.units, ids);
    const fitting = fitCopies(copies, ids, shownTokens(loaded, ids, source.carried));
    text = tokenizer.decode(written, fitting);
    words = nameCopies(tokenizer, written, words, fitting);
  }
  if (loaded.reader!.placeholders.symbols.length) {
    if (source.carried.size || hasPlaceholder(text)) text = restoreAll(text, source.carried);
    words = words.map((word) => ({ ...word, text: restore(word.text, source.carried) }));
  }
  return { text, words };
}

function attends(layers: Layers): boolean {
  return [...layers.keys()].some((name) => name.endsWith("cross"));
}

/** The tokens as readable text, with the carried spans in place of placeholders. */
function shownTokens({ targetTokenizer }: LoadedModel, ids: number[], carried: Map<string, string>): string[] {
  const spans = new Map([...carried].map(([symbol, span]) => [placeholderToken(targetTokenizer, symbol), span]));
  return targetTokenizer.pieces(ids).map((piece, i) => (spans.has(ids[i]) ? SPACE + spans.get(ids[i]) : piece));
}
