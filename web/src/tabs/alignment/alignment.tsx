// Alignment, the start page: which source words the model attended to for each word of its output.
import { Button, Choice, Intro } from "../../controls/controls";
import { OutputText, Tokens } from "../../controls/output";
import { Sentence, Status } from "../../controls/sentence";
import { UsedSentences } from "../../controls/used_sentences";
import { served, shown } from "../../state/api";
import { companion, textFor, useOrigin, useRun, useShown, waitingFor, type Origin, type Run } from "../../state/runs";
import { aligningMap, readChoice } from "../../state/selection";
import type { MapName, Trace } from "../../state/trace";
import { script, sliced } from "../../text/python";
import { Attribution } from "../attribution/attribution";
import { Invitation } from "../../tour/tour";
import { Examples, Notice } from "./examples";
import { Options } from "./options";
import { useRecorded } from "./recorded";
import { beside, chooseView, chosenView, head, layer, level, more, pins, unpin } from "./state";
import { Weights } from "./weights";
import "./alignment.css";

export function Alignment() {
  const run = useRecorded(useOrigin());
  const other = useBeside(run.origin.kind === "model" ? run.origin.entry.name : null);
  useShown([run.trace, other?.trace ?? null]);
  const entry = run.origin.kind === "model" ? run.origin.entry : null;
  const map = run.trace ? aligningMap(run.trace) : "cross";
  return (
    <div class="first-screen">
      <Intro title="Alignment" beside={<Invitation />}>
        {whatOneSees(map, chosenView(run.trace))}
      </Intro>
      <Sentence busy={run.busy} onNew={unpin} />
      {entry && <Examples entry={entry} />}
      <div class={other ? "columns" : ""}>
        <Panel run={run} side={0} alone={!other} />
        {other && <Panel run={other} side={1} alone={false} />}
      </div>
    </div>
  );
}

/** One sentence that says what the picture shows. */
function whatOneSees(map: MapName | undefined, view: string): string {
  const arcs = view === "arcs";
  if (map === undefined) return "This model has no attention: there is nothing to align.";
  if (map === "dec_self")
    return arcs
      ? "Each arc leads from a token (below) to an earlier token that it attends to (above): the thicker, the more weight."
      : "Each row is a token, and its columns are the tokens up to it that it attends to: the darker, the more weight.";
  if (map === "enc_self")
    return arcs
      ? "Each arc leads from a token (below) to a token of the same text that it attends to (above)."
      : "Each row is a token, and its columns are the tokens of the same text that it attends to.";
  return arcs
    ? "Above is what the model reads, below what it writes. Arcs show where each written word attends: the thicker, the more weight."
    : "Each row is a word that the model writes, each column a word that it reads: the darker, the more it attends to it.";
}

/** The run of the second model on the same text; null if no second model is chosen. */
function useBeside(name: string | null): Run | null {
  const entry = served.value?.models.find((model) => model.name === beside.value && model.name !== name);
  const requested = entry && name !== null;
  const run = useRun(requested ? { model: entry.name, text: textFor(entry) } : null);
  const second = companion();
  if (requested) return { ...run, waiting: run.busy ? waitingFor(entry) : "" };
  return name === null && beside.value && second ? { trace: second, busy: false, waiting: "", error: "" } : null;
}

function Panel(props: { run: Run & { origin?: Origin; recorded?: boolean }; side: 0 | 1; alone: boolean }) {
  const { run, side, alone } = props;
  const { trace } = run;
  const entry = run.origin?.kind === "model" ? run.origin.entry : null;
  const testid = side === 0 ? "output" : "beside-output";
  return (
    <div class="stacked" data-testid={`${side === 0 ? "alignment" : "beside"}-panel`} aria-busy={run.busy}>
      {trace && !alone && (
        <h2>
          {trace.model.name} <span class="aside">{trace.model.kind}</span>
        </h2>
      )}
      <Status run={run} />
      {trace && (
        <div class="written">
          <OutputText trace={trace} testid={testid} />
          {side === 0 && aligningMap(trace) && <ViewControls trace={trace} />}
        </div>
      )}
      {trace && side === 0 && more.value && <Options trace={trace} name={entry?.name ?? null} />}
      {trace && aligningMap(trace) && (
        <Weights trace={trace} pin={pins[side]} side={side}>
          {entry && <Notice entry={entry} output={trace.output} />}
        </Weights>
      )}
      {trace && <UsedSentences trace={trace} />}
      {trace && <Tokens trace={trace} testid={testid} titled />}
      {trace && entry && side === 0 && <Attribution model={entry} text={textFor(entry)} output={trace.output} />}
    </div>
  );
}

function ViewControls(props: { trace: Trace }) {
  return (
    <div class="view-controls">
      <Choice
        label="Show"
        bare
        value={chosenView(props.trace)}
        options={[
          { value: "arcs", label: "arcs", title: "Curves between the words: the thicker, the more weight" },
          { value: "matrix", label: "matrix", title: "A row for each written word, a column for each word that is read" },
        ]}
        onChange={chooseView}
        testid="view"
      />
      <Button
        onClick={() => (more.value = !more.value)}
        expanded={more.value}
        title="Words or subwords, layer and head, a second model, thresholds"
        testid="more"
      >
        {more.value ? "Less" : "More"}
      </Button>
    </div>
  );
}

/** The Python code that reproduces this view. */
export function alignmentCode(): string {
  const words = level.value === "word";
  const trace = shown.value[0];
  const name = trace && aligningMap(trace);
  if (!name) return script([], [], ["print(trace.output)"]);
  const weights = sliced("trace", name, readChoice(trace, name, layer.value, head.value));
  return script([], words ? ["merge_words"] : [], [
    ...(words ? ["trace = merge_words(trace)"] : []),
    `weights = ${weights}  # [rows, columns]`,
    `print([token.text for token in trace.axes["${trace.maps[name]!.query}"].tokens])`,
    "print(weights.round(3))",
  ]);
}
