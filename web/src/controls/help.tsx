// What the keys do.
import type { RefObject } from "preact";
import "./help.css";

const KEYS: [string, string][] = [
  ["1 … 9", "open a tab"],
  ["← → ↑ ↓", "walk over the cells of a matrix; in Lab and Decode, step"],
  ["Enter", "pin the cell, or open its arithmetic"],
  ["Esc", "let it go"],
  ["← →, Page Up, Page Down", "in Lecture: the scene before, the next one (as clickers send)"],
  ["p", "presenter mode: large type"],
  ["d", "light or dark"],
  ["?", "this help"],
];

export function Help(props: { dialog: RefObject<HTMLDialogElement | null> }) {
  return (
    <dialog ref={props.dialog} class="help" aria-label="Keyboard and help" data-testid="help-dialog">
      <h2>Keyboard</h2>
      <dl>
        {KEYS.map(([key, what]) => (
          <div key={key}>
            <dt>
              <kbd>{key}</kbd>
            </dt>
            <dd>{what}</dd>
          </div>
        ))}
      </dl>
      <p>
        Every number can be opened into its arithmetic: click it. The whole view is in the address, so a link or a
        reload brings it back. Nothing on this page asks anyone but the program that shows it.
      </p>
      <form method="dialog">
        <button class="button main">Close</button>
      </form>
    </dialog>
  );
}
