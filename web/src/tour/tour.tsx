// The guided tour: an invitation on the first visit, and a card that walks through the stops.
import { signal } from "@preact/signals";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { Button } from "../controls/controls";
import { bundle } from "../state/api";
import { reducedMotion } from "../state/preferences";
import { openTab } from "../state/url";
import { t } from "../text/messages/messages";
import { STOPS } from "./steps";
import "./tour.css";

const STORED = "regard-tour"; // in the browser: the visitor has answered the invitation
const FOLLOW = 150; // milliseconds between looks at where the element is
const RIM = 6; // pixels between the element and its frame

const stop = signal<number | null>(null);
const invited = signal(!bundle && !answered());

function answered(): boolean {
  try {
    return localStorage.getItem(STORED) !== null;
  } catch {
    return true; // without storage the invitation would return on every visit
  }
}

function remember(): void {
  invited.value = false;
  try {
    localStorage.setItem(STORED, "answered");
  } catch {
    // A browser without storage: see above.
  }
}

export function startTour(): void {
  remember();
  goTo(0);
}

function goTo(next: number): void {
  if (next < 0) return;
  if (next >= STOPS.length) {
    stop.value = null;
    openTab("alignment");
    return;
  }
  openTab(STOPS[next].tab);
  STOPS[next].prepare?.();
  stop.value = next;
}

/** The question whether one would like the tour; it is asked until it is answered. */
export function Invitation() {
  if (!invited.value || stop.value !== null) return null;
  return (
    <aside class="invitation" data-testid="invitation">
      <span>
        <b>{t("New here?")}</b> {t("A tour with {count} stops takes less than two minutes.", { count: STOPS.length })}
      </span>
      <Button onClick={startTour} testid="start-tour">
        {t("Take the tour")}
      </Button>
      <button type="button" class="quiet" data-testid="no-tour" onClick={remember}>
        {t("Not now")}
      </button>
    </aside>
  );
}

export function Tour() {
  return stop.value === null ? null : <Card at={stop.value} />;
}

function Card(props: { at: number }) {
  const { at } = props;
  const { title, text, at: selector } = STOPS[at];
  const card = useRef<HTMLElement>(null);
  const box = useBox(selector, at);
  useLayoutEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      if (event.key !== "Escape") return;
      stop.value = null;
      event.stopPropagation();
    };
    addEventListener("keydown", onKey, true);
    return () => removeEventListener("keydown", onKey, true);
  }, []);
  useEffect(() => card.current!.querySelector<HTMLElement>(".button.main")!.focus({ preventScroll: true }), [at]);
  const above = box !== null && box.top + box.height / 2 > innerHeight / 2; // the card takes the free half
  return (
    <>
      {box && (
        <div
          class="tour-frame"
          aria-hidden="true"
          style={{
            left: `${box.left - RIM}px`,
            top: `${box.top - RIM}px`,
            width: `${box.width + 2 * RIM}px`,
            height: `${box.height + 2 * RIM}px`,
          }}
        />
      )}
      <section
        ref={card}
        class={above ? "tour-card above" : "tour-card"}
        role="dialog"
        aria-label={`${t("Tour")}: ${t(title)}`}
        aria-live="polite"
        data-testid="tour"
      >
        <p class="aside">
          {t("{number} of {count}", { number: at + 1, count: STOPS.length })}
        </p>
        <h2>{t(title)}</h2>
        <p>{t(text)}</p>
        <div class="tour-buttons">
          <button type="button" class="quiet" data-testid="end-tour" onClick={() => (stop.value = null)}>
            {t("End the tour")}
          </button>
          <Button disabled={at === 0} onClick={() => goTo(at - 1)} testid="tour-back">
            {t("Back")}
          </Button>
          <Button main onClick={() => goTo(at + 1)} testid="tour-next">
            {at + 1 === STOPS.length ? t("Done") : t("Next")}
          </Button>
        </div>
      </section>
    </>
  );
}

/** Where the element of a stop is on the screen; it may appear late and move while the page is drawn. */
function useBox(selector: string, at: number): DOMRect | null {
  const [box, setBox] = useState<DOMRect | null>(null);
  useEffect(() => {
    let scrolled = false;
    const look = () => {
      const element = document.querySelector(selector);
      if (element && !scrolled) {
        scrolled = true;
        element.scrollIntoView({ block: "nearest", behavior: reducedMotion() ? "auto" : "smooth" });
      }
      setBox(element?.getBoundingClientRect() ?? null);
    };
    look();
    const timer = setInterval(look, FOLLOW);
    return () => clearInterval(timer);
  }, [selector, at]);
  return box;
}
