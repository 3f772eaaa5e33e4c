// The form at the top of the model tabs: the model or trace, and the text.
import { useEffect, useState } from "preact/hooks";
import { bundle, opened, sceneTrace, served, textModels } from "../state/api";
import { model, origin, text, textFor, trace, type Run } from "../state/runs";
import { askAgain, cancelRequests } from "../state/requests";
import type { Trace } from "../state/trace";
import { asHistoryEntry } from "../state/url";
import { t } from "../text/messages/messages";
import { Alert, Button, Select } from "./controls";
import { useDraft } from "./draft";
import "./sentence.css";

/**
 * The form for the model and the text. The model runs when the form is submitted. Empty and overlong texts are rejected
 * here. `onNew` lets a tab reset what depends on the previous text or model; `preferred` is its model until one is picked.
 */
export function Sentence(props: {
  busy: boolean;
  preferred?: string;
  onNew?: (what: "text" | "model") => void;
}) {
  const from = origin(props.preferred);
  const currentText =
    from.kind === "model" ? textFor(from.entry) : from.kind === "trace" ? (from.trace.source ?? from.trace.output) : "";
  const [typed, setTyped] = useDraft("sentence", currentText);
  const [problem, setProblem] = useState("");
  useEffect(() => setProblem(""), [currentText]);
  if (sceneTrace.value) return null;
  const label = from.kind === "model" ? t(LABELS[from.entry.kind] ?? t("Text")) : t("Text of the trace");
  const send = (event: Event) => {
    event.preventDefault();
    const problem = problemWith(typed);
    setProblem(problem);
    if (problem) return;
    askAgain(); // the same text, too, if it has no answer yet
    asHistoryEntry(() => {
      text.value = typed;
      props.onNew?.("text");
    });
  };
  return (
    <form class="sentence" onSubmit={send} data-testid="sentence">
      <Sources preferred={props.preferred} onNew={() => props.onNew?.("model")} />
      <label class="control sentence-text">
        <span>{label}</span>
        <textarea
          rows={1}
          dir="auto"
          data-testid="text"
          value={typed}
          placeholder={label}
          readOnly={from.kind !== "model"}
          spellcheck={false}
          onInput={(event) => setTyped(event.currentTarget.value)}
          onKeyDown={(event) => {
            if (event.key === "Enter" && !event.shiftKey) send(event);
          }}
        />
      </label>
      {from.kind === "model" && (
        <button
          class="button main"
          data-testid="send"
          aria-busy={props.busy}
          title={t("Send the text to the model (Enter)")}
        >
          {t(VERBS[from.entry.kind])}
        </button>
      )}
      {from.kind === "model" && props.busy && (
        <Button onClick={cancelRequests} title={t("Stop waiting for the model")} testid="cancel">
          {t("Cancel")}
        </Button>
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
  if (typed.trim() === "") return t("The text is empty: type a sentence first.");
  const most = served.value?.limits.characters ?? Infinity;
  if (typed.length > most)
    return t("The text has {count} characters; the limit is {most}. Please shorten it.", { count: typed.length, most });
  return "";
}

/** The choice of a model or a recorded trace. */
function Sources(props: { preferred?: string; onNew: () => void }) {
  const from = origin(props.preferred);
  const models = textModels().map(({ name }) => ({ value: `model:${name}`, label: name }));
  const traces = opened.value.map(({ name }) => ({ value: `trace:${name}`, label: t("trace: {name}", { name }) }));
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

/** A note on a text that is longer than all texts in training. */
function lengthNote(trace: Trace): string {
  const trained = served.value?.models.find(({ name }) => name === trace.model.name)?.about?.trained_length ?? Infinity;
  const length = trace.axes.source?.tokens.length ?? 0;
  if (length <= trained) return "";
  return `This text has ${length} tokens, and in training no text had more than ${trained}: expect words to be lost or repeated.`;
}

/** Errors, progress and notes of a run. */
export function Status(props: { run: Run }) {
  const { trace, error, waiting } = props.run;
  const tooLong = trace ? lengthNote(trace) : "";
  return (
    <>
      {error && (
        <Alert>
          {error}{" "}
          <Button onClick={askAgain} testid="ask-again">
            {t("Try again")}
          </Button>
        </Alert>
      )}
      {tooLong && (
        <p class="notice" data-testid="too-long">
          {tooLong}
        </p>
      )}
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
