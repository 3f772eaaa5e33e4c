// The page: tabs, toolbar and keyboard shortcuts.
import "./style.css";
import { render } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { scheme, switchScheme } from "./chart/colours";
import { Alert, copyText } from "./controls/controls";
import { Help } from "./controls/help";
import { showMessage, Toast } from "./controls/toast";
import { download } from "./export/download";
import { openFile } from "./export/open_file";
import { wholePage } from "./export/whole_page";
import { bundle, keyWanted, serverError, setKey, start } from "./state/api";
import { presenter } from "./state/preferences";
import { openTab, parse, restore, tab } from "./state/url";
import { tabById, TABS } from "./tabs/tabs";

function current() {
  return tabById(tab.value) ?? tabById("alignment")!;
}

async function share(): Promise<void> {
  const link = location.href;
  showMessage((await copyText(link)) ? "A link to this view is on the clipboard." : `Link to this view: ${link}`);
}

async function copyCode(): Promise<void> {
  const code = current().code();
  showMessage((await copyText(code)) ? "The Python code of this view is on the clipboard." : code);
}

async function savePage(): Promise<void> {
  try {
    download(await wholePage(), "regard.html");
    showMessage("Saved the page as a single file. It opens without a server and without a network.");
  } catch (error) {
    showMessage(`Could not save the page: ${(error as Error).message}`);
  }
}

async function open(file: File | undefined): Promise<void> {
  if (!file) return;
  try {
    await openFile(file);
    showMessage(`Opened ${file.name}.`);
  } catch (error) {
    showMessage(`${file.name}: ${(error as Error).message}`);
  }
}

function Tools() {
  const help = useRef<HTMLDialogElement>(null);
  const file = useRef<HTMLInputElement>(null);
  useEffect(() => {
    const keys: Record<string, () => void> = {
      "?": () => (help.current!.open ? help.current!.close() : help.current!.showModal()),
      p: () => (presenter.value = !presenter.value),
      d: switchScheme,
    };
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
  }, []);
  const dark = scheme.value === "dark";
  return (
    <div class="tools" role="toolbar" aria-label="Toolbar">
      <button type="button" class="quiet" data-testid="share" title="Copy a link to this view" onClick={share}>
        Link
      </button>
      <button
        type="button"
        class="quiet"
        data-testid="copy-code"
        title="Copy Python code that reproduces this view"
        onClick={copyCode}
      >
        <span class="long">Copy as </span>PyTorch
      </button>
      <button
        type="button"
        class="quiet"
        data-testid="save-page"
        title="Save this view as a single HTML file"
        onClick={savePage}
      >
        Save<span class="long"> page</span>
      </button>
      <button
        type="button"
        class="quiet"
        data-testid="open"
        title="Open a trace, or a PNG, SVG or HTML file saved from this page"
        onClick={() => file.current!.click()}
      >
        Open
      </button>
      <input
        ref={file}
        type="file"
        hidden
        data-testid="open-file"
        accept=".json,.gz,.png,.svg,.html"
        aria-label="File to open"
        onChange={(event) => {
          void open(event.currentTarget.files?.[0]);
          event.currentTarget.value = "";
        }}
      />
      <button
        type="button"
        class="quiet"
        data-testid="presenter"
        aria-pressed={presenter.value}
        title="Presenter mode: large text (p)"
        onClick={() => (presenter.value = !presenter.value)}
      >
        Present
      </button>
      <button
        type="button"
        class="quiet"
        data-testid="scheme"
        aria-label={dark ? "Light colour scheme" : "Dark colour scheme"}
        title="Light or dark colour scheme (d)"
        onClick={switchScheme}
      >
        {dark ? "☀" : "☾"}
      </button>
      <button
        type="button"
        class="quiet"
        data-testid="help"
        aria-label="Keyboard and help"
        title="Keyboard and help (?)"
        onClick={() => help.current!.showModal()}
      >
        ?
      </button>
      <Help dialog={help} />
    </div>
  );
}

function KeyForm() {
  const input = useRef<HTMLInputElement>(null);
  return (
    <form
      class="panel bar"
      onSubmit={(event) => {
        event.preventDefault();
        setKey(input.current!.value.trim());
      }}
    >
      <label class="control">
        <span>
          {keyWanted.value === "wrong"
            ? "Wrong API key. Enter the API key of this server:"
            : "This server requires an API key:"}
        </span>
        <input ref={input} type="password" data-testid="key" autocomplete="off" required />
      </label>
      <button class="button main" data-testid="key-send">
        Open
      </button>
    </form>
  );
}

function Page() {
  const { id, view: View } = current();
  document.documentElement.dataset.presenter = String(presenter.value);
  return (
    <>
      <a
        class="skip"
        href="#content"
        onClick={(event) => {
          event.preventDefault();
          document.getElementById("content")!.focus();
        }}
      >
        Skip to content
      </a>
      <header class="top">
        <span class="wordmark">regard</span>
        <nav aria-label="Views">
          {TABS.filter((entry) => !entry.hidden?.()).map((entry) => (
            <button
              key={entry.id}
              type="button"
              data-testid={`tab-${entry.id}`}
              aria-current={entry.id === id ? "page" : undefined}
              title={`${entry.title()} (${entry.key})`}
              onClick={() => openTab(entry.id)}
            >
              {entry.title()}
            </button>
          ))}
        </nav>
        <Tools />
      </header>
      <main id="content" tabIndex={-1} data-testid={`view-${id}`}>
        {keyWanted.value && <KeyForm />}
        {serverError.value && !keyWanted.value && <Alert testid="server-error">{serverError.value}</Alert>}
        <View />
      </main>
      <Toast />
    </>
  );
}

if (bundle && !parse(location.hash).size) restore(bundle.state);
void start();
render(<Page />, document.getElementById("page")!);
