// The line on top of the model tabs: which model or trace, which text, and what came of it.
import { useEffect, useState } from "preact/hooks";
import { bundle, opened, sceneTrace, served } from "../state/api";
import { model, origin, text, textFor, trace, type Run } from "../state/runs";
import { asStep } from "../state/url";
import { Alert, Select } from "./controls";
import "./sentence.css";

/**
 * The form with the text. It asks only when it is sent; what is empty or too long is refused here already. `onNew` lets a
 * tab forget what was about the text or the model before.
 */
export function Sentence(props: { busy: boolean; onNew?: (what: "text" | "model") => void }) {
  const from = origin();
  const given =
    from.kind === "model" ? textFor(from.entry) : from.kind === "trace" ? (from.trace.source ?? from.trace.output) : "";
  const [typed, setTyped] = useState(given);
  const [wrong, setWrong] = useState("");
  useEffect(() => {
    setTyped(given);
    setWrong("");
  }, [given]);
  if (sceneTrace.value) return null;
  const send = (event: Event) => {
    event.preventDefault();
    const refused = refusal(typed);
    setWrong(refused);
    if (refused) return;
    asStep(() => {
      text.value = typed;
      props.onNew?.("text");
    });
  };
  return (
    <form class="sentence" onSubmit={send} data-testid="sentence">
      <Sources onNew={() => props.onNew?.("model")} />
      <label class="control sentence-text">
        <span>{from.kind === "model" ? LABELS[from.entry.kind] : "Text of the trace"}</span>
        <input
          type="text"
          dir="auto"
          data-testid="text"
          value={typed}
          readOnly={from.kind !== "model"}
          spellcheck={false}
          onInput={(event) => setTyped(event.currentTarget.value)}
        />
      </label>
      {from.kind === "model" && (
        <button class="button main" data-testid="send" aria-busy={props.busy}>
          {VERBS[from.entry.kind]}
        </button>
      )}
      {wrong && <Alert>{wrong}</Alert>}
    </form>
  );
}

const LABELS = { translator: "Sentence to translate", writer: "How the text begins", embedder: "Text to read" };
const VERBS = { translator: "Translate", writer: "Go on", embedder: "Read" };

function refusal(typed: string): string {
  if (typed.trim() === "") return "There is no text yet: type a sentence first.";
  const most = served.value?.limits.characters ?? Infinity;
  if (typed.length > most) return `The text has ${typed.length} characters, and at most ${most} are taken: shorten it.`;
  return "";
}

/** The models and traces that there are. */
function Sources(props: { onNew: () => void }) {
  const from = origin();
  const models = (served.value?.models ?? []).map((one) => ({ value: `model:${one.name}`, label: one.name }));
  const traces = opened.value.map((one) => ({ value: `trace:${one.name}`, label: `trace: ${one.name}` }));
  const value = from.kind === "model" ? `model:${from.entry.name}` : from.kind === "trace" ? `trace:${from.name}` : "";
  const pick = (chosen: string) =>
    asStep(() => {
      const [kind, name] = [chosen.slice(0, 5), chosen.slice(6)];
      trace.value = kind === "trace" ? name : "";
      if (kind === "model") model.value = name;
      props.onNew();
    });
  return (
    <Select
      label={bundle ? "Trace" : "Model"}
      value={value}
      options={[...models, ...traces]}
      onChange={pick}
      testid="source"
    />
  );
}

/** Says what is the matter, if something is. */
export function Status(props: { run: Run }) {
  const { trace: found, error, waiting } = props.run;
  return (
    <>
      {error && <Alert>{error}</Alert>}
      {waiting && (
        <p class="notice" role="status" data-testid="waiting">
          {waiting}
        </p>
      )}
      {found?.notes.map((note) => (
        <p class="notice" key={note} data-testid="note">
          {note}
        </p>
      ))}
    </>
  );
}
