// Formats of tokens and probabilities.

/** A token with visible spaces (SentencePiece's too), line breaks and tabs. */
export function shownPiece(piece: string): string {
  return piece.replace(/[▁ ]/g, "·").replaceAll("\n", "⏎").replaceAll("\t", "⇥");
}

/** A probability in percent with as many digits as it needs. */
export function percent(p: number): string {
  const hundredth = 100 * p;
  if (p >= 0.001 || p === 0) return `${hundredth.toFixed(1)} %`;
  return hundredth >= 1e-4 ? `${Number(hundredth.toPrecision(1))} %` : "<0.0001 %";
}
