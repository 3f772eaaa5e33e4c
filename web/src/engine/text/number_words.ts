// Months and ordinals in the languages that have tables: French and English. regard/text/placeholders/number_words.py.

const FRENCH = "janvier février mars avril mai juin juillet août septembre octobre novembre décembre";
const ENGLISH = "January February March April May June July August September October November December";
export const MONTHS: Record<string, string[]> = { fr: FRENCH.split(" "), en: ENGLISH.split(" ") };
export const ORDINAL_ENDINGS: Record<string, string> = {
  fr: "ers?|res?|ères?|ièmes?|èmes?|es?|nde?s?",
  en: "st|nd|rd|th",
};

/** An ordinal in digits, such as "3rd"; null for a language without a table. */
export function ordinal(value: number, language: string): string | null {
  if (language === "fr") return value === 1 ? `${value}er` : `${value}e`;
  if (language !== "en") return null;
  const teen = [11, 12, 13].includes(value % 100);
  return value + (teen ? "th" : (["th", "st", "nd", "rd"][value % 10] ?? "th"));
}
