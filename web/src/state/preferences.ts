// Settings of the whole page.
import { field } from "./url";

/** Presenter mode: large text. */
export const presenter = field("presenter", false, { shared: true });

/** Whether the user prefers reduced motion. */
export function reducedMotion(): boolean {
  return matchMedia("(prefers-reduced-motion: reduce)").matches;
}
