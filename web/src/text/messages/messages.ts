// The texts of the page in the reader's language. The English text is the key; a catalogue has its translations.
//
// A text without a translation is shown in English. A new language is a new catalogue and a line in LANGUAGES.
import { signal } from "@preact/signals";
import es from "./es.json";
import fr from "./fr.json";

type Catalogue = Readonly<Record<string, string>>;

export const LANGUAGES: Readonly<Record<string, { name: string; catalogue: Catalogue }>> = {
  en: { name: "English", catalogue: {} },
  es: { name: "Español", catalogue: es },
  fr: { name: "Français", catalogue: fr },
};
const STORED = "regard-language"; // in the browser: the language that the reader has chosen

export const language = signal(storedLanguage() ?? browserLanguage());

function storedLanguage(): string | null {
  try {
    const stored = localStorage.getItem(STORED);
    return stored !== null && stored in LANGUAGES ? stored : null;
  } catch {
    return null; // a browser without storage
  }
}

/** The first language of the browser that has a catalogue. */
function browserLanguage(): string {
  const wanted = navigator.languages.map((tag) => tag.toLowerCase().split("-")[0]);
  return wanted.find((name) => name in LANGUAGES) ?? "en";
}

export function chooseLanguage(name: string): void {
  language.value = name;
  try {
    localStorage.setItem(STORED, name);
  } catch {
    // A browser without storage: the choice holds until the page is closed.
  }
}

/** A text in the reader's language; {name} is replaced by the value of that name. */
export function t(english: string, values: Readonly<Record<string, string | number>> = {}): string {
  const text = LANGUAGES[language.value].catalogue[english] ?? english;
  return text.replace(/\{(\w+)\}/g, (whole, name: string) => String(values[name] ?? whole));
}
