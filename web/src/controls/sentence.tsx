// The form at the top of the model tabs: the model or trace, and the text.
import { useEffect, useState } from "preact/hooks";
import { bundle, opened, sceneTrace, served, textModels } from "../state/api";
import { model, origin, text, textFor, trace, type Run } from "../state/runs";
import { asHistoryEntry } from "../state/url";
import { Alert, Select } from "./controls";
import "./sentence.css";

/**
 * The form for the model and the text. The model runs when the form is submitted. Empty and overlong texts are rejected
 * here. `onNew` lets a tab reset what depends on the previous text or model; `preferred` is its model until one is picked.
 */
export function Sentence(props: {
  busy: boolean;
  preferred?: string;
  compact?: boolean; // without labels above the fields
  onNew?: (what: "text" | "model") => void;
}) {
  const from = origin(props.preferred);
  const currentText =
    from.kind === "model" ? textFor(from.entry) : from.kind === "trace" ? (from.trace.source ?? from.trace.output) : "";
  const [typed, setTyped] = useState(currentText);
  const [problem, setProblem] = useState("");
  useEffect(() => {
    setTyped(currentText);
    setProblem("");
  }, [currentText]);
  if (sceneTrace.value) return null;
  const send = (event: Event) => {
    event.preventDefault();
    const problem = problemWith(typed);
    setProblem(problem);
    if (problem) return;
    asHistoryEntry(() => {
      text.value = typed;
      props.onNew?.("text");
    });
  };
  return (
    <form class={props.compact ? "sentence compact" : "sentence"} onSubmit={send} data-testid="sentence">
      <Sources preferred={props.preferred} onNew={() => props.onNew?.("model")} />
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
      {problem && <Alert>{problem}</Alert>}
    </form>
  );
}

const LABELS: Record<string, string> = {
  translator: "Sentence to translate", writer: "Prompt", embedder: "Text to encode", classifier: "Text to classify",
  summarizer: "Text to summarize",
  answerer: "A story, and the question as its last sentence",
};
const VERBS: Record<string, string> = {
  translator: "Translate", writer: "Generate", embedder: "Encode", classifier: "Encode",
  summarizer: "Summarize",
  answerer: "Answer",
};

function problemWith(typed: string): string {
  if (typed.trim() === "") return "The text is empty: type a sentence first.";
  const most = served.value?.limits.characters ?? Infinity;
  if (typed.length > most) return `The text has ${typed.length} characters; the limit is ${most}. Please shorten it.`;
  return "";
}

/** The choice of a model or a recorded trace. */
function Sources(props: { preferred?: string; onNew: () => void }) {
  const from = origin(props.preferred);
  const models = textModels().map(({ name }) => ({ value: `model:${name}`, label: name }));
  const traces = opened.value.map(({ name }) => ({ value: `trace:${name}`, label: `trace: ${name}` }));
  const value = from.kind === "model" ? `model:${from.entry.name}` : from.kind === "trace" ? `trace:${from.name}` : "";
  const pick = (chosen: string) =>
    asHistoryEntry(() => {
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

/** Errors, progress and notes of a run. */
export function Status(props: { run: Run }) {
  const { trace, error, waiting } = props.run;
  return (
    <>
      {error && <Alert>{error}</Alert>}
      {waiting && (
        <p class="notice" role="status" data-testid="waiting">
          {waiting}
        </p>
      )}
      {trace?.notes.map((note) => (
        <p class="notice" key={note} data-testid="note">
          {note}
        </p>
      ))}
    </>
  );
}
