// The limits of a request, as those of the server. regard/serving/limits.py.
import { RequestError } from "../errors";

export const LIMITS = { characters: 5000, tokens: 512, file_bytes: 0 };

export function checkCharacters(...texts: (string | null | undefined)[]): void {
  for (const text of texts) {
    const length = [...(text ?? "")].length;
    if (length > LIMITS.characters)
      throw new RequestError(`the text has ${grouped(length)} characters; the limit is ${grouped(LIMITS.characters)}: shorten it`);
  }
}

export function checkTokens(...lengths: number[]): void {
  for (const length of lengths)
    if (length > LIMITS.tokens)
      throw new RequestError(`the text has ${grouped(length)} tokens; the limit is ${LIMITS.tokens}: shorten it`);
}

function grouped(count: number): string {
  return count.toLocaleString("en-US");
}
