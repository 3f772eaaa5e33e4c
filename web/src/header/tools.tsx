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

async function share(): Promise<void> {
  const copied = await copyText(location.href);
  const reach = isLocal() ? " It works on this machine only: “Save page” makes a file that anybody can open." : "";
  showMessage(copied ? `A link to this view is on the clipboard.${reach}` : `Link to this view: ${location.href}`);
}

/** Whether the page comes from this machine, so that nobody else can open its address. */
function isLocal(): boolean {
  return location.protocol === "file:" || ["127.0.0.1", "localhost", "[::1]"].includes(location.hostname);
}

async function copyCode(): Promise<void> {
  const code = (tabById(tab.value) ?? tabById("alignment")!).code();
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

export function Tools(props: { onHelp: () => void }) {
  const [listed, setListed] = useState(false); // the menu of a narrow screen
  const dark = scheme.value === "dark";
  return (
    <div class="tools" role="toolbar" aria-label="Toolbar">
      <div class={listed ? "desk-tools listed" : "desk-tools"} id="desk-tools" onClick={() => setListed(false)}>
        <Tool testid="share" title="Copy a link to this view" onClick={share}>
          Link
        </Tool>
        <Tool testid="copy-code" title="Copy Python code that reproduces this view" onClick={copyCode}>
          <span class="long">Copy as </span>PyTorch
        </Tool>
        <Tool testid="save-page" title="Save this view as a single HTML file" onClick={savePage}>
          Save<span class="long"> page</span>
        </Tool>
        <OpenFile />
        <Tool
          testid="presenter"
          pressed={presenter.value}
          title="Presenter mode: large text (p)"
          onClick={() => (presenter.value = !presenter.value)}
        >
          Present
        </Tool>
      </div>
      <Tool
        testid="scheme"
        label={dark ? "Light colour scheme" : "Dark colour scheme"}
        title="Light or dark colour scheme (d)"
        onClick={switchScheme}
      >
        {dark ? "☀" : "☾"}
      </Tool>
      <Tool testid="help" label="Keyboard and help" title="Keyboard, tour and help (?)" onClick={props.onHelp}>
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
        Menu
      </button>
    </div>
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
        title="Open a trace, or a PNG, SVG or HTML file saved from this page"
        onClick={() => input!.click()}
      >
        Open
      </Tool>
      <input
        ref={(element) => {
          input = element;
        }}
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
    </>
  );
}
