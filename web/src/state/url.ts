// The state of the page, stored in the URL after the #, so that a link or a reload restores the view.
//
// A field is a named value with a default. `layer.value` reads it and subscribes to changes; `layer.value = 2` writes it
// and updates the URL. Fields with their default value are not in the URL.
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
// The state of a lecture scene: it overrides the defaults, and the URL overrides it.
const sceneState = signal<Params>(new Map());
const shared = new Set<string>(["presenter"]);
const visited = new Map<string, Params>(); // the state in which each tab was left
let push = false; // whether the next change adds an entry to the browser's history

export function parse(text: string): Params {
  return new Map(new URLSearchParams(text.replace(/^#/, "")));
}

function serialize(values: Params): string {
  return new URLSearchParams([...values]).toString();
}

/** The state as in the URL, without the #. */
export function stateText(): string {
  return serialize(params.value);
}

/** A value stored in the URL. Shared fields keep their value when another tab is opened. */
export function field(name: string, fallback: boolean, options?: FieldOptions): Field<boolean>;
export function field(name: string, fallback: number, options?: FieldOptions): Field<number>;
export function field<T extends string = string>(name: string, fallback: NoInfer<T>, options?: FieldOptions): Field<T>;
export function field(name: string, fallback: Plain, options: FieldOptions = {}): Field<Plain> {
  if (options.shared) shared.add(name);
  const initial = computed(() => read(sceneState.value.get(name), fallback));
  const current = computed(() => read(params.value.get(name), initial.value));
  return {
    name,
    get value() {
      return current.value;
    },
    set value(next: Plain) {
      const changed = new Map(params.peek());
      if (next === initial.peek()) changed.delete(name);
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

/** Opens a tab in the state in which it was left, except for shared fields. */
export function openTab(name: string): void {
  if (name === tab.value) return;
  const now = params.peek();
  visited.set(tab.value, now);
  // A lecture scene has its own text and model, so these are not carried into the lecture or out of it.
  const isLecture = name === "lecture" || tab.value === "lecture";
  const carried = (key: string) => (isLecture ? key === "presenter" : shared.has(key));
  const next = new Map([...(visited.get(name) ?? [])].filter(([key]) => !carried(key) && key !== "tab"));
  for (const [key, value] of now) if (carried(key)) next.set(key, value);
  push = true;
  batch(() => {
    params.value = next;
    tab.value = name;
  });
}

/** Replaces the whole state, for example when a file is opened. */
export function restore(text: string): void {
  push = true;
  params.value = parse(text);
}

/** Opens the current tab with the defaults of all its fields. */
export function resetTab(): void {
  push = true;
  params.value = new Map([["tab", tab.value]]);
}

/** Resets these fields to their defaults. */
export function reset(names: readonly string[]): void {
  params.value = new Map([...params.peek()].filter(([key]) => !names.includes(key)));
}

/** Resets all fields except these to their defaults. */
export function keepOnly(names: readonly string[]): void {
  params.value = new Map([...params.peek()].filter(([key]) => names.includes(key)));
}

/** Sets the state of a lecture scene; an empty text removes it. */
export function presetState(text: string): void {
  sceneState.value = new Map([...parse(text)].filter(([key]) => key !== "tab"));
}

/** Applies a change as a new entry of the browser's history. */
export function asHistoryEntry(change: () => void): void {
  push = true;
  batch(change);
}

effect(() => {
  const text = serialize(params.value);
  if (text === serialize(parse(location.hash))) return;
  try {
    // A frame in a notebook has no address to change; there the state is only in memory.
    if (push) history.pushState(null, "", `#${text}`);
    else history.replaceState(null, "", `#${text}`);
  } catch {
    // See above.
  }
  push = false;
});

addEventListener("hashchange", () => (params.value = parse(location.hash)));
addEventListener("popstate", () => (params.value = parse(location.hash)));
