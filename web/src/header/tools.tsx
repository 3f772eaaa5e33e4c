// The toolbar: links, files, presenter mode, colours, help. On a narrow screen the buttons of the desk are in a menu.
import { useState } from "preact/hooks";
import { scheme, switchScheme } from "../chart/colours";
import { copyText } from "../controls/controls";
import { showMessage } from "../controls/toast";
import { download } from "../export/download";
import { openFile } from "../export/open_file";
import { wholePage } from "../export/whole_page";
import { presenter } from "../state/preferences";
import { tab } from "../state/url";
import { tabById } from "../tabs/tabs";
import { LANGUAGES, chooseLanguage, language, t } from "../text/messages/messages";

async function share(): Promise<void> {
  const copied = await copyText(location.href);
  const reach = t("It works on this machine only: “Save page” makes a file that anybody can open.");
  const done = t("A link to this view is on the clipboard.");
  if (copied) showMessage(isLocal() ? `${done} ${reach}` : done);
  else showMessage(t("Link to this view: {link}", { link: location.href }));
}

/** Whether the page comes from this machine, so that nobody else can open its address. */
function isLocal(): boolean {
  return location.protocol === "file:" || ["127.0.0.1", "localhost", "[::1]"].includes(location.hostname);
}

async function copyCode(): Promise<void> {
  const code = (tabById(tab.value) ?? tabById("alignment")!).code();
  showMessage((await copyText(code)) ? t("The Python code of this view is on the clipboard.") : code);
}

async function savePage(): Promise<void> {
  try {
    download(await wholePage(), "regard.html");
    showMessage(t("Saved the page as a single file. It opens without a server and without a network."));
  } catch (error) {
    showMessage(t("Could not save the page: {problem}", { problem: (error as Error).message }));
  }
}

async function open(file: File | undefined): Promise<void> {
  if (!file) return;
  try {
    await openFile(file);
    showMessage(t("Opened {file}.", { file: file.name }));
  } catch (error) {
    showMessage(`${file.name}: ${(error as Error).message}`);
  }
}

export function Tools(props: { onHelp: () => void }) {
  const [listed, setListed] = useState(false); // the menu of a narrow screen
  const dark = scheme.value === "dark";
  return (
    <div class="tools" role="toolbar" aria-label={t("Toolbar")}>
      <div class={listed ? "desk-tools listed" : "desk-tools"} id="desk-tools" onClick={() => setListed(false)}>
        <Tool testid="share" title={t("Copy a link to this view")} onClick={share}>
          {t("Link")}
        </Tool>
        <Tool testid="copy-code" title={t("Copy Python code that reproduces this view")} onClick={copyCode}>
          <span class="long">{t("Copy as")} </span>PyTorch
        </Tool>
        <Tool testid="save-page" title={t("Save this view as a single HTML file")} onClick={savePage}>
          {t("Save")}
          <span class="long"> {t("page")}</span>
        </Tool>
        <OpenFile />
        <Tool
          testid="presenter"
          pressed={presenter.value}
          title={t("Presenter mode: large text (p)")}
          onClick={() => (presenter.value = !presenter.value)}
        >
          {t("Present")}
        </Tool>
        <LanguageSelect />
      </div>
      <Tool
        testid="scheme"
        label={dark ? t("Light colour scheme") : t("Dark colour scheme")}
        title={t("Light or dark colour scheme (d)")}
        onClick={switchScheme}
      >
        {dark ? "☀" : "☾"}
      </Tool>
      <Tool testid="help" label={t("Keyboard and help")} title={t("Keyboard, tour and help (?)")} onClick={props.onHelp}>
        ?
      </Tool>
      <button
        type="button"
        class="quiet menu-button"
        aria-expanded={listed}
        aria-controls="desk-tools"
        data-testid="menu"
        onClick={() => setListed(!listed)}
      >
        {t("Menu")}
      </button>
    </div>
  );
}

function LanguageSelect() {
  return (
    <select
      class="quiet language"
      aria-label={t("Language")}
      title={t("Language")}
      data-testid="language"
      value={language.value}
      onClick={(event) => event.stopPropagation()}
      onChange={(event) => chooseLanguage(event.currentTarget.value)}
    >
      {Object.entries(LANGUAGES).map(([name, entry]) => (
        <option key={name} value={name} lang={name}>
          {entry.name}
        </option>
      ))}
    </select>
  );
}

function Tool(props: {
  children: preact.ComponentChildren;
  testid: string;
  title: string;
  label?: string;
  pressed?: boolean;
  onClick: () => void;
}) {
  return (
    <button
      type="button"
      class="quiet"
      data-testid={props.testid}
      title={props.title}
      aria-label={props.label}
      aria-pressed={props.pressed}
      onClick={props.onClick}
    >
      {props.children}
    </button>
  );
}

function OpenFile() {
  let input: HTMLInputElement | null = null;
  return (
    <>
      <Tool
        testid="open"
        title={t("Open a trace, or a PNG, SVG or HTML file saved from this page")}
        onClick={() => input!.click()}
      >
        {t("Open")}
      </Tool>
      <input
        ref={(element) => {
          input = element;
        }}
        type="file"
        hidden
        data-testid="open-file"
        accept=".json,.gz,.png,.svg,.html"
        aria-label={t("File to open")}
        onChange={(event) => {
          void open(event.currentTarget.files?.[0]);
          event.currentTarget.value = "";
        }}
      />
    </>
  );
}
