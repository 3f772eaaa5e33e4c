// The line on top of the model tabs: which model or trace, which text, and what came of it.
import { useEffect, useRef, useState } from "preact/hooks";
import { bundle, opened, sceneTrace, served, shown } from "./api";
import { Alert, Select } from "./controls";
import { range } from "./grids";
import { model, origin, text, textFor, trace, type Run } from "./runs";
import { asStep } from "./state";
import type { Trace } from "./trace";

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

/** Tells the exports what is on the page. */
export function useShown(traces: (Trace | null)[]): void {
  useEffect(() => {
    shown.value = traces.filter((one) => one !== null);
  }, traces);
}

const MOST = 100; // tokens that are shown at once

/** The output, token by token, with the probability of each; what differs from another output stands out. */
export function Output(props: {
  trace: Trace;
  label?: string;
  against?: Trace | null;
  step?: number;
  onStep?: (step: number) => void;
  testid?: string;
}) {
  const { trace: found, step, testid = "output" } = props;
  const tokens = found.axes.target?.tokens ?? [];
  const list = useRef<HTMLOListElement>(null);
  const first = Math.min(Math.max((step ?? 0) - MOST / 2, 0), Math.max(tokens.length - MOST, 0));
  useEffect(() => {
    // Many tokens scroll in a box of their own; the page itself stays where it is.
    const current = list.current?.querySelector<HTMLElement>("[aria-current]");
    if (current) list.current!.scrollTop = current.offsetTop - list.current!.offsetTop - list.current!.clientHeight / 2;
  }, [step, found]);
  if (tokens.length === 0) return null;
  const last = Math.min(first + MOST, tokens.length);
  return (
    <div class="output" data-testid={testid}>
      {props.label && <h3>{props.label}</h3>}
      <p class="output-text" dir="auto" data-testid={`${testid}-text`}>
        {found.output}
      </p>
      <ol class="pieces" ref={list} aria-label="Tokens and their probabilities">
        {first > 0 && <li class="aside">{first} before …</li>}
        {range(last - first).map((k) => {
          const i = first + k;
          const changed = props.against ? props.against.axes.target?.tokens[i]?.text !== tokens[i].text : false;
          const later = step !== undefined && i > step;
          return (
            <Piece
              key={i}
              trace={found}
              i={i}
              looks={`${changed ? "changed" : ""} ${later ? "later" : ""}`}
              current={i === step}
              onStep={props.onStep}
            />
          );
        })}
        {last < tokens.length && <li class="aside">… {tokens.length - last} more</li>}
      </ol>
    </div>
  );
}

function Piece(props: { trace: Trace; i: number; looks: string; current: boolean; onStep?: (step: number) => void }) {
  const { trace: found, i } = props;
  const token = found.axes.target.tokens[i];
  const step = found.steps[i];
  const chosen = step?.candidates.find((one) => one.token === step.chosen);
  const looks = `piece ${token.special ? "special" : ""} ${step?.given ? "given" : ""} ${props.looks}`;
  const inner = (
    <>
      <bdi>{shownPiece(token.text)}</bdi>
      {chosen && <Share value={Math.exp(chosen.logp)} />}
    </>
  );
  return (
    <li>
      {props.onStep ? (
        <button
          type="button"
          class={looks}
          aria-current={props.current ? "step" : undefined}
          onClick={() => props.onStep!(i)}
          data-testid="piece">
          {inner}
        </button>
      ) : (
        <span class={looks} data-testid="piece">
          {inner}
        </span>
      )}
    </li>
  );
}

/** A probability as a number over a bar. */
function Share(props: { value: number }) {
  return (
    <span class="share">
      <span class="share-number" data-testid="probability">
        {percent(props.value)}
      </span>
      <span class="share-bar" style={{ width: `${100 * props.value}%` }} />
    </span>
  );
}

/** A piece as it is read: spaces (of SentencePiece too) and line ends are made visible. */
export function shownPiece(piece: string): string {
  return piece.replace(/[▁ ]/g, "·").replaceAll("\n", "⏎").replaceAll("\t", "⇥");
}

/** A probability with as many digits as it needs. */
export function percent(p: number): string {
  const hundredth = 100 * p;
  if (p >= 0.001 || p === 0) return `${hundredth.toFixed(1)} %`;
  return hundredth >= 1e-4 ? `${Number(hundredth.toPrecision(1))} %` : "<0.0001 %";
}
