// The help dialog with the keyboard shortcuts.
import type { RefObject } from "preact";
import { bundle } from "../state/api";
import { t } from "../text/messages/messages";
import { startTour } from "../tour/tour";
import "./help.css";

const KEYS: [string, string][] = [
  ["1 … 9, 0, z, l", "open a tab; z: Zoom, l: Lecture, i: the tab for images, series or sound"],
  ["← → ↑ ↓", "move over the cells of a matrix; in Lab, Decode and Zoom: previous or next step"],
  ["Enter", "pin a cell, or show its calculation"],
  ["Esc", "unpin"],
  ["← →, Page Up, Page Down, space", "in Lecture: the answer, then the next scene, or back (as presentation clickers send)"],
  ["b", "in Lecture: a blank screen; any key brings the picture back"],
  ["p", "presenter mode: large text"],
  ["d", "light or dark colour scheme"],
  ["?", "show this help"],
];

export function Help(props: { dialog: RefObject<HTMLDialogElement | null> }) {
  return (
    <dialog ref={props.dialog} class="help" aria-label={t("Keyboard and help")} data-testid="help-dialog">
      <h2>{t("Keyboard")}</h2>
      <dl>
        {KEYS.map(([key, what]) => (
          <div key={key}>
            <dt>
              <kbd>{t(key)}</kbd>
            </dt>
            <dd>{t(what)}</dd>
          </div>
        ))}
      </dl>
      <p>
        {t("In Lab and Inside, click a number to see how it is calculated; elsewhere, pin a weight and ask how it is made.")}{" "}
        {t("The address contains the complete view, so a link or a reload restores it.")}{" "}
        {t("This page connects only to the server that delivers it.")}
      </p>
      <form method="dialog" class="bar">
        {!bundle && (
          <button class="button" data-testid="tour-again" onClick={startTour}>
            {t("Take the tour")}
          </button>
        )}
        <button class="button main">{t("Close")}</button>
      </form>
    </dialog>
  );
}
