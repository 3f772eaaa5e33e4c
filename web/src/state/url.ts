// The whole state of the page, in the URL after the #: a link or a reload brings back what one saw.
//
// A field is a named value with a default: `layer.value` reads it, and whoever read it is drawn again when it changes;
// `layer.value = 2` writes it, and the URL follows. What has its default is left out of the URL.
import { batch, computed, effect, signal } from "@preact/signals";

type Plain = string | number | boolean;
type Params = ReadonlyMap<string, string>;

export interface Field<T> {
  readonly name: string;
  value: T;
}

interface FieldOptions {
  shared?: boolean;
}

const params = signal<Params>(parse(location.hash));
// What a scene of the lecture presets: it stands under the URL and over the defaults.
const beneath = signal<Params>(new Map());
const shared = new Set<string>(["presenter"]);
const visited = new Map<string, Params>(); // what each tab was left with
let push = false; // whether the next write is a step that the browser's Back button undoes

export function parse(text: string): Params {
  return new Map(new URLSearchParams(text.replace(/^#/, "")));
}

function written(from: Params): string {
  return new URLSearchParams([...from]).toString();
}

/** The state as it stands in the URL, without the #. */
export function stateText(): string {
  return written(params.value);
}

/** A value that lives in the URL. A shared one stays when another tab is opened. */
export function field(name: string, fallback: boolean, options?: FieldOptions): Field<boolean>;
export function field(name: string, fallback: number, options?: FieldOptions): Field<number>;
export function field<T extends string = string>(name: string, fallback: NoInfer<T>, options?: FieldOptions): Field<T>;
export function field(name: string, fallback: Plain, options: FieldOptions = {}): Field<Plain> {
  if (options.shared) shared.add(name);
  const missing = computed(() => read(beneath.value.get(name), fallback));
  const current = computed(() => read(params.value.get(name), missing.value));
  return {
    name,
    get value() {
      return current.value;
    },
    set value(next: Plain) {
      const changed = new Map(params.peek());
      if (next === missing.peek()) changed.delete(name);
      else changed.set(name, typeof next === "boolean" ? (next ? "1" : "0") : String(next));
      params.value = changed;
    },
  };
}

function read(text: string | undefined, fallback: Plain): Plain {
  if (text === undefined) return fallback;
  if (typeof fallback === "number") return text !== "" && Number.isFinite(Number(text)) ? Number(text) : fallback;
  if (typeof fallback === "boolean") return text === "1";
  return text;
}

export const tab = field("tab", "alignment");

/** Opens a tab as it was left, with the shared fields as they are now. */
export function openTab(name: string): void {
  if (name === tab.value) return;
  const now = params.peek();
  visited.set(tab.value, now);
  // A scene brings its own sentence and model; what one typed elsewhere must not get into it, nor the other way round.
  const apart = name === "lecture" || tab.value === "lecture";
  const carried = (key: string) => (apart ? key === "presenter" : shared.has(key));
  const next = new Map([...(visited.get(name) ?? [])].filter(([key]) => !carried(key) && key !== "tab"));
  for (const [key, value] of now) if (carried(key)) next.set(key, value);
  push = true;
  batch(() => {
    params.value = next;
    tab.value = name;
  });
}

/** Replaces the whole state, as a file that is opened or a scene asks for. */
export function restore(text: string): void {
  push = true;
  params.value = parse(text);
}

/** Takes all fields of these names out of the URL. */
export function forget(names: readonly string[]): void {
  params.value = new Map([...params.peek()].filter(([key]) => !names.includes(key)));
}

/** Takes all fields but these out of the URL. */
export function keepOnly(names: readonly string[]): void {
  params.value = new Map([...params.peek()].filter(([key]) => names.includes(key)));
}

/** Lays the state of a scene under the URL; an empty text takes it away. */
export function presetState(text: string): void {
  beneath.value = new Map([...parse(text)].filter(([key]) => key !== "tab"));
}

/** Writes the next change as a step of the browser's history. */
export function asStep(change: () => void): void {
  push = true;
  batch(change);
}

effect(() => {
  const text = written(params.value);
  if (text === written(parse(location.hash))) return;
  try {
    // Inside a notebook's frame there is no address to write to; the state then lives in memory alone.
    if (push) history.pushState(null, "", `#${text}`);
    else history.replaceState(null, "", `#${text}`);
  } catch {
    // See above.
  }
  push = false;
});

addEventListener("hashchange", () => (params.value = parse(location.hash)));
addEventListener("popstate", () => (params.value = parse(location.hash)));
