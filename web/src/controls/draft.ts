// Texts that were typed and not sent: they outlive the tab they were typed in.
import { signal } from "@preact/signals";

interface Draft {
  of: string; // the text that was shown when it was begun
  text: string;
}

const drafts = signal<ReadonlyMap<string, Draft>>(new Map());

/** What a field shows: the text that was typed into it, or the current one if that has changed since. */
export function useDraft(name: string, current: string): [string, (typed: string) => void] {
  const draft = drafts.value.get(name);
  const write = (text: string) => (drafts.value = new Map(drafts.peek()).set(name, { of: current, text }));
  return [draft?.of === current ? draft.text : current, write];
}
