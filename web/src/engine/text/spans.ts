// Find the spans of a text that a translation must carry over: numbers, dates, times, web addresses, file names, code.
// regard/text/placeholders/spans.py has the same patterns.
import { MONTHS, ORDINAL_ENDINGS, ordinal } from "./number_words";
import { hasPlaceholder } from "./placeholders";
import { D, LETTER, S, W } from "./unicode";

export type Kind = "number" | "time" | "word"; // a time of day is one, and so is a date

/** A span text[start, end), and what it means. */
export interface Span {
  start: number;
  end: number;
  kind: Kind;
  key: string;
}

const SOME_SPAN = new RegExp(`[${D}@#_/\\\\\`(½¼¾-]|\\.[${W}]`, "u"); // every span contains one of these
const BLANK = "[ \\u00a0\\u202f\\u2009]";
const START = `(?<![${W}])`; // no letter or digit before
const END = `(?![${W}])`;
const NUMBER =
  `(?:(?<![${W})\\]])[\\-−–+±])?(?:` +
  `[${D}]{1,3}(?:${BLANK}[${D}]{3})+(?![${D}])(?:[.,][${D}]+)?|` + // 1 234,56
  `[${D}]+(?:[.,:/×\\-][${D}]+)*[½¼¾]?|[½¼¾])`; // 1,5  12/05/2024  2024-05-12  16:9
const UNIT =
  `(?:°${BLANK}?[CFK]|[%‰€$£¥°]|km/h|m/s|[cdkmµnh]?m[²³23]?|[kmµn]?g|[cdmkh]?[lL]|` +
  `[kMGT]?(?:Hz|Wh|W|V|J|Pa|cal)|[kKMGT]?(?:o|B|bits?)(?:/s)?|min|ms|s|mn|ha|bar|dB|ppm|` +
  `EUR|USD|CHF|GBP|CAD|[kM]€)(?![${W}'’])`;
const TLD = "com|org|net|info|io|eu|fr|de|es|it|be|ch|ca|uk|us|edu|gov|example|test";
const FILE_TYPES =
  "pdf|txt|csv|tsv|json|xml|html?|css|js|ts|py|c|h|cpp|java|rs|go|sh|md|toml|ya?ml|docx?|xlsx?|pptx?|odt|ods|" +
  "jpe?g|png|gif|svg|mp[34]|wav|avi|mov|zip|gz|tar|xz|exe|iso|log|ini|cfg|conf|sql|bak";
const WORD = [
  "`[^`]+`",
  `[${W}.+\\-]+@[${W}\\-]+(?:\\.[${W}\\-]+)+`, // contact@example.org
  `(?:[${W}]+://|www\\.)[^${S}<>"«»“”]*[^${S}<>"«»“”.,;:!?…)'’\\]]`,
  `(?<![${W}.])(?:[${W}\\-]+\\.)+(?:${TLD})${END}(?:/[^${S}<>"«»]*[^${S}<>"«».,;:!?…)'’])?`,
  `${START}[A-Za-z]:\\\\[^${S},;]+`, // C:\x
  `(?<![${W}/])(?:~|\\.{1,2})?(?:/[${W}.\\-]*[${W}])+/?${END}`, // ~/notes  /etc/hosts
  `(?<![${W}.])[${W}\\-]+(?:\\.[${W}\\-]+)*\\.(?:${FILE_TYPES})${END}`, // rapport_v2.pdf
  `${START}[@#][${W}]+`,
  `(?<![${W}\\-])--?[a-zA-Z][${W}\\-]*(?=[${S}]|$)`, // @handle  --option
  `[${W}]+(?:\\.[${W}]+)*\\([^()${S}]*\\)`, // print(x)
  `${START}(?:v[${D}]+(?:\\.[${D}]+)+|[${W}]*[\\p{L}\\p{N}]_[${W}]+|_[${W}]+)`, // v2.1  max_length
  `(?<![${W}\\-])(?=[${W}\\-]*[${D}])(?=[${W}\\-]*[${LETTER}])[\\p{L}\\p{N}][${W}\\-]*[${W}]`, // A380  COVID-19  4x4
].join("|");
const TIME =
  `(?<![${D}:,.])[${D}]{1,2}${BLANK}?[hH]${BLANK}?[${D}]{2}(?![${W}:])|` +
  `(?<![${D}:,.])[${D}]{1,2}${BLANK}?[hH](?![${W}'’])|` +
  `(?<![${D}:,.])[${D}]{1,2}:[${D}]{2}(?::[${D}]{2})?(?![${W}:])(?:[${S}]?[ap]\\.?m${boundary()}\\.?)?|` +
  `(?<![${D}:,.])[${D}]{1,2}[${S}]?[ap]\\.?m${boundary()}\\.?`;
const PHONE =
  `${START}(?:\\+[${D}]{1,3}${BLANK}?)?(?:\\(0\\)${BLANK}?)?[${D}]{1,4}` +
  `(?:(?:${BLANK}|[.\\-])[${D}]{2,4}){3,}${END}`;
const NUMERIC_DATE = new RegExp(`^(?:[${D}]{1,2}([/.\\-])[${D}]{1,2}\\1[${D}]{2,4}|[${D}]{4}-[${D}]{2}-[${D}]{2})$`, "u");

/** The boundary of a word, after a letter: Python's \b. */
function boundary(): string {
  return `(?:(?<=[${W}])(?![${W}])|(?<![${W}])(?=[${W}]))`;
}

/** The spans of a text in order. With a known language, dates with a month and ordinals are spans, too. */
export function findSpans(text: string, language: string | null): Span[] {
  if (!SOME_SPAN.test(text) || hasPlaceholder(text)) return []; // it would be taken for one of ours
  return [...text.matchAll(pattern(language))].map((match) => {
    const name = Object.entries(match.groups!).find(([, part]) => part !== undefined)![0];
    return { start: match.index, end: match.index + match[0].length, ...meaning(name, match[0], language) };
  });
}

/** A span as the target language writes it: dates with a month and ordinals; all others stay as they are. */
export function localised({ key }: Span, text: string, target: string | null): string {
  const [name, value] = [key.slice(0, key.indexOf(" ")), key.slice(key.indexOf(" ") + 1)];
  if (name === "date" && target !== null && target in MONTHS) {
    const [day, month, year] = value.split("/");
    return [day, MONTHS[target][Number(month) - 1], year].filter(Boolean).join(" ");
  }
  if (name === "ordinal" && target !== null) return ordinal(Number(value), target) ?? text;
  return text;
}

export function mayHaveSpan(text: string): boolean {
  return SOME_SPAN.test(text);
}

const patterns = new Map<string | null, RegExp>();

/** The pattern of all spans; the first alternative that matches at a place counts. */
function pattern(language: string | null): RegExp {
  const known = patterns.get(language);
  if (known) return known;
  const parts: Record<string, string> = {};
  if (language !== null && language in MONTHS) {
    const month = MONTHS[language].join("|");
    const ending = ORDINAL_ENDINGS[language];
    const day = `(?<![${W}.,:/\\-])[${D}]{1,2}(?:${ending})?`;
    const year = `(?:,?${BLANK}[${D}]{4}(?![${W}'’]))?`;
    parts.date = `${day}${BLANK}(?:of${BLANK})?(?:${month})${END}${year}`;
    if (language === "en")
      parts.date += `|${boundary()}(?:${month})${BLANK}[${D}]{1,2}(?:${ending})?(?![${W}:/\\-])${year}`;
    parts.ordinal = `(?<![${W}.,:/\\-])[${D}]+(?:${ending})(?![${W}'’\\-])`;
  }
  parts.time = TIME;
  parts.phone = PHONE;
  parts.measure = `${NUMBER}${BLANK}?${UNIT}|${START}[$€£¥]${BLANK}?${NUMBER}`;
  parts.word = WORD;
  parts.number = `${START}${NUMBER}`;
  // The time comes before the word: 17h45 is not code.
  const order = ["date", "time", "phone", "ordinal", "measure", "word", "number"].filter((name) => name in parts);
  const made = new RegExp(order.map((name) => `(?<${name}>${parts[name]})`).join("|"), "gu");
  patterns.set(language, made);
  return made;
}

function meaning(name: string, text: string, language: string | null): { kind: Kind; key: string } {
  if (name === "word") return { kind: "word", key: text };
  const digits = [...text.matchAll(new RegExp(`[${D}]+`, "gu"))].map(([number]) => number);
  if (name === "date") {
    const month = MONTHS[language!].findIndex((name) => text.includes(name)) + 1;
    return { kind: "time", key: `date ${Number(digits[0])}/${month}/${digits[1] ?? ""}` };
  }
  if (name === "ordinal") return { kind: "number", key: `ordinal ${Number(digits[0])}` };
  if (name === "time") return { kind: "time", key: `time ${Number(digits[0]) % 12}:${digits[1] ?? "00"}` };
  return { kind: NUMERIC_DATE.test(text) ? "time" : "number", key: digits.join("") };
}
