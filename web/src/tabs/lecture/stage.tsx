// The stage of a scene: a tab of which only the parts of the scene are shown, as large as the window allows.
import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";

const PICTURES = [".lab-box", ".lab-matrix", "figure", ".panel", "li.box", "table", ".output"]; // shown as a whole
const ALWAYS = "[role=alert], [data-testid=waiting], .lab-explain:not(.muted)";
const SCROLLING = ".scroll, pre"; // what would be cut off
const OVERHANG = 6; // pixels: lists have margins of −4 pixels, so that the frames of their items are not cut off
const RESTAGED = "restaged"; // the parts on the stage have changed
const MAX_SHRINK = 0.85; // in one step: the layout inside answers to a change of its width
const MIN_SHRINK = 0.98;

/** The parts of a tab with these test ids; null shows the whole tab. On a projector they are scaled to fit its box. */
export function Stage(props: { parts: string[] | null; fitted: boolean; id: string; children: ComponentChildren }) {
  const sheet = useRef<HTMLDivElement>(null);
  const { parts, fitted } = props;
  const key = `${props.id} ${parts?.join(" ")} ${fitted}`; // with another key, the content is mounted anew
  useLayoutEffect(() => {
    const root = sheet.current!;
    const update = () => spotlight(root, parts);
    const watch = new MutationObserver(update);
    watch.observe(root, { childList: true, subtree: true });
    update();
    return () => watch.disconnect();
  }, [key]);
  return (
    <Fitted key={fitted ? key : "plain"} active={fitted && parts !== null} most={1.5} least={0.35} box="stage">
      <div class="stage-sheet" ref={sheet} data-testid="lecture-stage">
        {props.children}
      </div>
    </Fitted>
  );
}

/** Takes everything off the stage that is not one of the parts, does not contain one and is in none. */
function spotlight(root: HTMLElement, parts: string[] | null): void {
  const lit = new Set<Element>();
  if (parts) {
    for (const part of root.querySelectorAll(parts.map((id) => `[data-testid="${id}"]`).join(", ") || "nothing"))
      lit.add(pictureOf(part, root));
    for (const message of root.querySelectorAll(ALWAYS)) lit.add(message);
  }
  let changed = false;
  const hide = (element: Element, hidden: boolean) => {
    changed ||= element.hasAttribute("data-offstage") !== hidden;
    element.toggleAttribute("data-offstage", hidden);
  };
  const visit = (node: Element): void => {
    for (const child of node.children) {
      const whole = !parts || lit.has(child);
      const contains = !whole && [...lit].some((part) => child.contains(part));
      hide(child, !whole && !contains);
      if (contains) visit(child);
      else if (whole) for (const inner of child.querySelectorAll("[data-offstage]")) hide(inner, false);
    }
  };
  visit(root);
  if (changed) root.dispatchEvent(new Event(RESTAGED, { bubbles: true }));
}

/** The picture that a part belongs to. */
function pictureOf(part: Element, root: Element): Element {
  for (const kind of PICTURES) {
    const picture = part.closest(kind);
    if (picture && root.contains(picture)) return picture;
  }
  return part;
}

/** How many times wider the content of an element is than the element. */
function excessWidth(element: Element): number {
  const { scrollWidth, clientWidth } = element;
  return scrollWidth > clientWidth + OVERHANG && clientWidth > 0 ? scrollWidth / clientWidth : 0;
}

/**
 * A box whose content is scaled down until it fits, from `most` to `least`. The content is laid out again at every scale,
 * with the width that it then has, so its lines and matrices use the whole box.
 */
export function Fitted(props: {
  active: boolean;
  most: number;
  least: number;
  box: string;
  children: ComponentChildren;
}) {
  const box = useRef<HTMLDivElement>(null);
  const content = useRef<HTMLDivElement>(null);
  const { active, most, least } = props;
  useLayoutEffect(() => {
    const [frame, sheet] = [box.current!, content.current!];
    if (!active) return void sheet.removeAttribute("style");
    let [scale, next] = [most, 0];
    const place = () => {
      sheet.style.width = `${frame.clientWidth / scale}px`;
      sheet.style.transform = `scale(${scale})`;
    };
    const check = () => {
      const cut = [sheet, ...sheet.querySelectorAll(SCROLLING)].map(excessWidth);
      const excess = Math.max((sheet.scrollHeight * scale) / frame.clientHeight, ...cut);
      if (excess <= 1.002 || scale <= least) return;
      scale = Math.max(least, scale * Math.min(MIN_SHRINK, Math.max(MAX_SHRINK, 1 / excess)));
      place();
      // The new width may leave the size of the content as it is, so no observer would report it.
      cancelAnimationFrame(next);
      next = requestAnimationFrame(check);
    };
    const watchContent = new ResizeObserver(check);
    const restart = () => {
      scale = most;
      place();
      check();
    };
    const watchFrame = new ResizeObserver(restart);
    watchContent.observe(sheet);
    watchFrame.observe(frame);
    sheet.addEventListener(RESTAGED, restart);
    return () => {
      cancelAnimationFrame(next);
      watchContent.disconnect();
      watchFrame.disconnect();
      sheet.removeEventListener(RESTAGED, restart);
    };
  }, [active, most, least]);
  return (
    <div class={active ? `${props.box} fitted` : props.box} ref={box}>
      <div class="fitted-content" ref={content}>
        {props.children}
      </div>
    </div>
  );
}
