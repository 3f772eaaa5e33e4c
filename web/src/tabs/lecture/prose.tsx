// Texts of scenes: code between backticks, indices after _, exponents after ^.
import type { ComponentChildren } from "preact";

const PARTS = /`([^`]+)`|([_^])(?:\(([^()]+(?:\([^()]*\))?)\)|([A-Za-z0-9]+))/g;

/** A text with `code`, c_i and s_(i−1) as indices, and 10^(2i/d) as an exponent. */
export function prose(text: string): ComponentChildren {
  const parts: ComponentChildren[] = [];
  let end = 0;
  for (const match of text.matchAll(PARTS)) {
    parts.push(text.slice(end, match.index));
    end = match.index + match[0].length;
    if (match[1] !== undefined) parts.push(<code>{match[1]}</code>);
    else if (match[2] === "_") parts.push(<sub>{match[3] ?? match[4]}</sub>);
    else parts.push(<sup>{match[3] ?? match[4]}</sup>);
  }
  return [...parts, text.slice(end)];
}
