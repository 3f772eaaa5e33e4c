// The header: the name of the page, its tabs, the toolbar, and the keys that open them.
import { useEffect, useRef } from "preact/hooks";
import { switchScheme } from "../chart/colours";
import { Help } from "../controls/help";
import { presenter } from "../state/preferences";
import { openTab } from "../state/url";
import { TABS } from "../tabs/tabs";
import { t } from "../text/messages/messages";
import { Tools } from "./tools";
import "./header.css";

export function Header(props: { current: string }) {
  const help = useRef<HTMLDialogElement>(null);
  const strip = useRef<HTMLElement>(null);
  useEffect(() => {
    const toggleHelp = () => (help.current!.open ? help.current!.close() : help.current!.showModal());
    return listenToKeys({ "?": toggleHelp, p: () => (presenter.value = !presenter.value), d: switchScheme });
  }, []);
  useEffect(() => {
    // On a narrow screen the tabs scroll to the side. The page itself does not.
    const chosen = strip.current!.querySelector<HTMLElement>("[aria-current]");
    if (chosen) strip.current!.scrollLeft = chosen.offsetLeft - (strip.current!.clientWidth - chosen.offsetWidth) / 2;
  }, [props.current]);
  return (
    <header class="top">
      <button type="button" class="wordmark" title={t("The start page (1)")} onClick={() => openTab("alignment")}>
        regard
      </button>
      <nav aria-label={t("Views")} ref={strip}>
        {TABS.filter((entry) => !entry.hidden?.()).map((entry) => (
          <button
            key={entry.id}
            type="button"
            data-testid={`tab-${entry.id}`}
            aria-current={entry.id === props.current ? "page" : undefined}
            title={`${t(entry.about)} (${entry.key})`}
            onClick={() => openTab(entry.id)}
          >
            {t(entry.title())}
          </button>
        ))}
      </nav>
      <Tools onHelp={() => help.current!.showModal()} />
      <Help dialog={help} />
    </header>
  );
}

/** Keys that open tabs, and these; they are letters while somebody types. */
function listenToKeys(keys: Record<string, () => void>): () => void {
  const onKey = (event: KeyboardEvent) => {
    const typing = (event.target as HTMLElement).closest?.(
      "input:not([type=radio], [type=checkbox], [type=range]), textarea, select",
    );
    if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
    const chosen = TABS.find((entry) => entry.key === event.key && !entry.hidden?.());
    if (chosen) openTab(chosen.id);
    else if (event.key in keys) keys[event.key]();
    else return;
    event.preventDefault();
  };
  addEventListener("keydown", onKey);
  return () => removeEventListener("keydown", onKey);
}
