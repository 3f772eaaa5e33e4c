// The keys of the Lecture tab, as presentation clickers send them.
import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { back, forward } from "./state";

/** Whether the screen is blank, so that the class looks at the lecturer. */
export const blank = signal(false);

const STEPS: Record<string, () => void> = {
  ArrowRight: forward,
  PageDown: forward,
  " ": forward,
  ArrowLeft: back,
  PageUp: back,
};
const TYPING = "input, textarea, select, [role=group][tabindex]";
const PRESSED_BY_SPACE = "button, summary, a, [role=button]";

function handle(event: KeyboardEvent): void {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  const target = event.target as HTMLElement;
  const typing = target.closest?.(TYPING);
  const blanks = (event.key === "b" || event.key === ".") && !typing;
  if (blank.value) {
    // Whatever is pressed brings the picture back, and does nothing else.
    blank.value = false;
  } else if (blanks) blank.value = true;
  else if (event.key in STEPS) {
    if (typing && !event.key.startsWith("Page")) return;
    if (event.key === " " && target.closest?.(PRESSED_BY_SPACE)) return;
    STEPS[event.key]();
  } else return;
  event.preventDefault();
  event.stopImmediatePropagation(); // the tab inside uses the same keys
}

export function useLectureKeys(): void {
  useEffect(() => {
    addEventListener("keydown", handle, { capture: true });
    return () => {
      removeEventListener("keydown", handle, { capture: true });
      blank.value = false;
    };
  }, []);
}
