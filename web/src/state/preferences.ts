// What belongs to the page as a whole.
import { field } from "./url";

/** Large type for a lecture hall. */
export const presenter = field("presenter", false, { shared: true });

/** Whether the reader asked for things not to move. */
export function calm(): boolean {
  return matchMedia("(prefers-reduced-motion: reduce)").matches;
}
