// Text with code between backticks, as in Markdown.
import type { ComponentChildren } from "preact";

/** The text with each part between backticks as code. */
export function withCode(text: string): ComponentChildren[] {
  return text.split("`").map((part, i) => (i % 2 === 1 ? <code key={i}>{part}</code> : part));
}
