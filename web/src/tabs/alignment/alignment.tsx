// Alignment, the front page: which source words the model attended to for each word of its output.
import { Arcs } from "../../chart/arcs/arcs";
import { largest } from "../../chart/canvas";
import { Figure } from "../../chart/figure";
import { Matrix, type Cell } from "../../chart/matrix/matrix";
import { WordWeights } from "../../chart/word_weights";
import { Choice, Intro, Select, Toggle } from "../../controls/controls";
import { Output } from "../../controls/output";
import { Sentence, Status } from "../../controls/sentence";
import { UsedSentences } from "../../controls/used_sentences";
import { CutSlider, HeadSelects, LevelChoice } from "../../controls/weight_controls";
import { served, shown } from "../../state/api";
import { companion, textFor, useOrigin, useRun, useShown, waitingFor, type Run } from "../../state/runs";
import {
  aligningMap,
  AXIS_TITLES,
  MEANINGS,
  nameChoice,
  pickWeights,
  readCell,
  readChoice,
  readPin,
  writePin,
  type Shown,
} from "../../state/selection";
import type { Trace } from "../../state/trace";
import { field } from "../../state/url";
import { shownPiece } from "../../text/pieces";
import { script, sliced } from "../../text/python";
import { Attribution } from "../attribution/attribution";
import "./alignment.css";

const layer = field<string>("layer", "all");
const head = field<string>("head", "best");
const level = field<string>("level", "word");
const view = field<string>("view", "matrix");
const hide = field("hide", false);
const stretch = field("stretch", false); // the colour scale ends at the largest weight instead of 1
const cut = field("cut", 0);
const beside = field<string>("beside", "");
const pins = [field<string>("pin", ""), field<string>("pin2", "")];

/** Unpins everything: with other rows and columns, a pin would point at another cell. */
function unpin(): void {
  for (const pin of pins) pin.value = "";
}

export function Alignment() {
  const run = useOrigin();
  const other = useBeside(run.origin.kind === "model" ? run.origin.entry.name : null);
  useShown([run.trace, other?.trace ?? null]);
  return (
    <>
      <Intro title="Alignment">
        Each row shows which source words (columns) the model attends to for a word of its output.
      </Intro>
      <Sentence busy={run.busy} onNew={unpin} />
      <Controls trace={run.trace} name={run.origin.kind === "model" ? run.origin.entry.name : null} />
      <div class={other ? "columns" : ""}>
        <Panel run={run} side={0} alone={!other} />
        {other && <Panel run={other} side={1} alone={false} />}
      </div>
      {run.origin.kind === "model" && run.trace && (
        <Attribution model={run.origin.entry} text={textFor(run.origin.entry)} output={run.trace.output} />
      )}
    </>
  );
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

function Controls(props: { trace: Trace | null; name: string | null }) {
  const map = props.trace ? aligningMap(props.trace) : undefined;
  const others = (served.value?.models ?? []).filter(({ kind, name }) => kind === "translator" && name !== props.name);
  const relevel = (next: string) => {
    level.value = next;
    unpin();
  };
  if (!map) return null;
  return (
    <div class="bar">
      <Choice
        label="Show"
        value={view.value}
        options={["matrix", "arcs"]}
        onChange={(x) => (view.value = x)}
        testid="view"
      />
      <LevelChoice value={level.value} onChange={relevel} />
      <HeadSelects
        trace={props.trace!}
        map={map}
        layer={layer.value}
        head={head.value}
        onLayer={(x) => (layer.value = x)}
        onHead={(x) => (head.value = x)}
      />
      <CutSlider value={cut.value} onChange={(x) => (cut.value = x)} />
      <Toggle
        label="Hide special tokens"
        value={hide.value}
        onChange={(x) => {
          hide.value = x;
          unpin();
        }}
        testid="hide"
      />
      <Toggle label="Stretch colour scale" value={stretch.value} onChange={(x) => (stretch.value = x)} testid="stretch" />
      {props.name !== null && others.length > 0 && (
        <Select
          label="Compare with"
          value={beside.value}
          options={[{ value: "", label: "none" }, ...others.map(({ name }) => name)]}
          onChange={(x) => (beside.value = x)}
          testid="beside"
        />
      )}
    </div>
  );
}

function Panel(props: { run: Run; side: 0 | 1; alone: boolean }) {
  const { trace } = props.run;
  const id = props.side === 0 ? "alignment" : "beside";
  return (
    <div class="stacked" data-testid={`${id}-panel`} aria-busy={props.run.busy}>
      {trace && !props.alone && (
        <h2>
          {trace.model.name} <span class="aside">{trace.model.kind}</span>
        </h2>
      )}
      <Status run={props.run} />
      {trace && <Output trace={trace} testid={props.side === 0 ? "output" : "beside-output"} />}
      {trace && <UsedSentences trace={trace} />}
      {trace && aligningMap(trace) && <Weights trace={trace} pin={pins[props.side]} id={id} />}
    </div>
  );
}

function Weights(props: { trace: Trace; pin: { value: string }; id: string }) {
  const { trace, pin, id } = props;
  const name = aligningMap(trace)!;
  const choice = readChoice(trace, name, layer.value, head.value);
  const shown = pickWeights(trace, name, choice, { words: level.value === "word", hide: hide.value, cut: cut.value });
  const { grid, rows, cols } = shown;
  const texts = (side: typeof rows) => side.map((span) => shownPiece(span.text));
  const fitting = readPin(pin.value, grid);
  const read = (row: number, col: number) => readCell(shown, row, col);
  const label = `Attention weights: ${MEANINGS[name]}${nameChoice(trace.maps[name]!, choice)}`;
  const common = {
    read,
    pin: fitting,
    onPin: (next: Cell | null) => (pin.value = writePin(next)),
    label,
    testid: id === "alignment" ? "weights" : "beside-weights",
  };
  return (
    <Figure title={`${cap(MEANINGS[name])}${nameChoice(trace.maps[name]!, choice)}`} name={common.testid}>
      <div class="side-by-side">
        {view.value === "arcs" ? (
          <Arcs shown={shown} {...common} />
        ) : (
          <Matrix
            values={grid.values}
            mask={grid.mask}
            rows={texts(rows)}
            cols={texts(cols)}
            rowTitle={AXIS_TITLES[trace.maps[name]!.query]}
            colTitle={AXIS_TITLES[trace.maps[name]!.key]}
            maxCell={60}
            most={stretch.value ? largest(grid.values) : 1}
            {...common}
          />
        )}
        {fitting ? (
          <div class="reading">
            <p>
              Attention of{" "}
              <b>
                <bdi>{rows[fitting[0]].text}</bdi>
              </b>{" "}
              <span class="aside">(Esc unpins)</span>
            </p>
            <WordWeights
              words={cols}
              weights={grid.values.subarray(fitting[0] * grid.cols, (fitting[0] + 1) * grid.cols)}
              label={`Weights of ${rows[fitting[0]].text}`}
              testid={`${common.testid}-row`}
            />
          </div>
        ) : (
          <Strongest shown={shown} query={trace.maps[name]!.query} />
        )}
      </div>
    </Figure>
  );
}

const MAX_ROWS = 20; // rows listed beside the matrix

/** The column with the largest weight, for each row. */
function Strongest(props: { shown: Shown; query: string }) {
  const { query } = props;
  const { grid, rows, cols } = props.shown;
  const best = rows.slice(0, MAX_ROWS).map((_, i) => {
    const row = grid.values.subarray(i * grid.cols, (i + 1) * grid.cols);
    return row.indexOf(Math.max(...row));
  });
  return (
    <table class="reading links" data-testid="links">
      <thead>
        <tr>
          <th>{AXIS_TITLES[query]}</th>
          <th>attends most to</th>
          <th>weight</th>
        </tr>
      </thead>
      <tbody>
        {best.map((j, i) => (
          <tr key={i}>
            <th scope="row">
              <bdi>{shownPiece(rows[i].text)}</bdi>
            </th>
            <td>
              <bdi>{shownPiece(cols[j].text)}</bdi>
            </td>
            <td class="number">{grid.values[i * grid.cols + j].toFixed(2)}</td>
          </tr>
        ))}
      </tbody>
      {rows.length > MAX_ROWS && (
        <tfoot>
          <tr>
            <td colSpan={3} class="aside">
              … and {rows.length - MAX_ROWS} more
            </td>
          </tr>
        </tfoot>
      )}
    </table>
  );
}

function cap(text: string): string {
  return text[0].toUpperCase() + text.slice(1);
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
