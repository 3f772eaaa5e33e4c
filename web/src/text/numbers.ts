// Number formats, with a typographic minus sign.

/** At most `digits` decimals, without trailing zeros: 3, −0.25, 0.333. */
export function short(value: number, digits = 3): string {
  const text = value.toFixed(digits);
  const trimmed = text.includes(".") ? text.replace(/\.?0+$/, "") : text;
  return minus(trimmed === "-0" ? "0" : trimmed);
}

/** Exactly `digits` decimals: 0.879, −1.000. */
export function fixed(value: number, digits = 3): string {
  const text = value.toFixed(digits);
  return minus(Number(text) === 0 ? text.replace("-", "") : text);
}

/** A number inside a sum or a product: negative ones in parentheses. */
export function factor(value: number, digits = 3): string {
  const text = short(value, digits);
  return text.startsWith("−") ? `(${text})` : text;
}

/** "=" if the number is exact with this many decimals, otherwise "≈". */
export function equals(value: number, digits = 3): string {
  return Math.abs(value - Number(value.toFixed(digits))) < 1e-9 ? "=" : "≈";
}

function minus(text: string): string {
  return text.replace("-", "−");
}
