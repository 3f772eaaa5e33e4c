// Compare: two heads, two texts or two models on the same colour scale, and their difference.
import { useState } from "preact/hooks";
import { largest } from "../../chart/canvas";
import { Figure } from "../../chart/figure";
import { Matrix, type Cell } from "../../chart/matrix/matrix";
import { Intro, Select, Toggle } from "../../controls/controls";
import { useDraft } from "../../controls/draft";
import { Output } from "../../controls/output";
import { Sentence, Status } from "../../controls/sentence";
import { HeadSelects, LevelChoice, MapChoice } from "../../controls/weight_controls";
import { difference, type Choice } from "../../maths/grid";
import { opened, served, shown, textModels } from "../../state/api";
import { companion, textFor, useOrigin, useRun, useShown, waitingFor, type Run } from "../../state/runs";
import { mapsOf, MEANINGS, nameChoice, pickWeights, readChoice, type Shown } from "../../state/selection";
import type { MapName, Trace } from "../../state/trace";
import { field } from "../../state/url";
import { fixed } from "../../text/numbers";
import { shownPiece } from "../../text/pieces";
import { call, quoted, script, sliced } from "../../text/python";
import { headOf, HowLink } from "../zoom/how_link";

const map = field<string>("map", "");
const level = field<string>("level", "word");
const beside = field<string>("beside", ""); // the second model, or trace:name
const text2 = field<string>("text2", "");
const led = field("led", true);
const sides = [
  { layer: field<string>("layer", "all"), head: field<string>("head", "best") },
  { layer: field<string>("layer2", "all"), head: field<string>("head2", "max") },
];

interface Side {
  trace: Trace;
  map: MapName;
  choice: Choice;
  shown: Shown;
  title: string;
}

export function Compare() {
  const first = useOrigin();
  const second = useSecond(first);
  useShown([first.trace, second.trace === first.trace ? null : second.trace]);
  const name = first.trace ? pickMap(first.trace) : undefined;
  const [a, b] = [first.trace, second.trace].map((trace, i) => (trace && name ? makeSide(trace, name, i) : null));
  return (
    <>
      <Intro title="Compare">
        Two heads, two texts or two models on the same colour scale, and their difference (second minus first).
      </Intro>
      <Sentence busy={first.busy || second.busy} />
      <Settings
        first={first.trace}
        second={second.trace}
        name={name}
        model={first.origin.kind === "model" ? first.origin.entry.name : null}
      />
      <Status run={first} />
      {second.trace !== first.trace && <Status run={second} />}
      {first.trace && !name && <Output trace={first.trace} />}
      <div class="columns three">
        {a && <SidePanel side={a} id="a" />}
        {b && <SidePanel side={b} id="b" />}
        {a && b && <Difference a={a} b={b} />}
      </div>
    </>
  );
}

/** The second side: another model, another text, another trace, or the same run with another head. */
function useSecond(first: ReturnType<typeof useOrigin>): Run {
  const from = first.origin.kind === "model" ? first.origin.entry : null;
  const entry = from && (served.value!.models.find(({ name }) => name === beside.value) ?? from);
  const another = from !== null && (entry !== from || text2.value !== "");
  // With forced decoding along the first output both sides have the same rows, so the second side waits for the first.
  const forced = another && led.value && text2.value === "" && entry!.kind === "translator";
  const ready = another && !(forced && (first.busy || !first.trace));
  const target = forced ? { target: first.trace?.output } : {};
  const run = useRun(ready ? { model: entry!.name, text: text2.value || textFor(from), ...target } : null);
  if (another) return { ...run, waiting: run.busy ? waitingFor(entry!) : "" };
  const named = opened.value.find(({ name }) => `trace:${name}` === beside.value)?.trace ?? companion();
  return { trace: (!from && named) || first.trace, busy: first.busy, waiting: "", error: "" };
}

function pickMap(trace: Trace): MapName | undefined {
  const names = mapsOf(trace);
  return names.find((name) => name === map.value) ?? names.find((name) => name === "cross") ?? names[0];
}

/** The corresponding map of a trace: cross-attention of a recurrent model is called rnn. */
function matchingMap(trace: Trace, wanted: MapName): MapName | undefined {
  const names: MapName[] = wanted === "cross" || wanted === "rnn" ? [wanted, "cross", "rnn"] : [wanted];
  return names.find((name) => trace.maps[name]);
}

function makeSide(trace: Trace, wanted: MapName, i: number): Side | null {
  const name = matchingMap(trace, wanted);
  if (!name) return null;
  const choice = readChoice(trace, name, sides[i].layer.value, sides[i].head.value);
  const shown = pickWeights(trace, name, choice, { words: level.value === "word" });
  return { trace, map: name, choice, shown, title: `${trace.model.name}${nameChoice(trace.maps[name]!, choice)}` };
}

function Settings(props: {
  first: Trace | null;
  second: Trace | null;
  name: MapName | undefined;
  model: string | null; // of the first side; null for a recorded trace
}) {
  const { first, second, name } = props;
  const [typed, setTyped] = useDraft("text2", text2.value);
  if (!first || !name) return null;
  const models = textModels().map(({ name }) => name).filter((name) => name !== props.model);
  const traces = opened.value.map(({ name }) => ({ value: `trace:${name}`, label: `trace: ${name}` }));
  const others = props.model === null ? traces : models;
  const other = makeSide(second ?? first, name, 1)?.map;
  return (
    <div class="bar">
      <MapChoice value={name} names={mapsOf(first)} onChange={(x) => (map.value = x)} />
      <LevelChoice value={level.value} onChange={(x) => (level.value = x)} />
      <HeadSelects
        trace={first}
        map={name}
        layer={sides[0].layer.value}
        head={sides[0].head.value}
        onLayer={(x) => (sides[0].layer.value = x)}
        onHead={(x) => (sides[0].head.value = x)}
        name="First"
        prefix="a-"
      />
      {others.length > 0 && (
        <Select
          label="Compare with"
          value={beside.value}
          options={[{ value: "", label: props.model ?? "the same trace" }, ...others]}
          onChange={(x) => (beside.value = x)}
          testid="against"
        />
      )}
      {second && other && (
        <HeadSelects
          trace={second}
          map={other}
          layer={sides[1].layer.value}
          head={sides[1].head.value}
          onLayer={(x) => (sides[1].layer.value = x)}
          onHead={(x) => (sides[1].head.value = x)}
          name="Second"
          prefix="b-"
        />
      )}
      {props.model !== null && (
        <label class="control sentence-text">
          <span>Text for the second (empty = same text)</span>
          <input
            type="text"
            dir="auto"
            data-testid="text2"
            value={typed}
            onInput={(event) => setTyped(event.currentTarget.value)}
            onChange={() => (text2.value = typed.trim())}
          />
        </label>
      )}
      {beside.value !== "" && text2.value === "" && props.model !== null && (
        <Toggle
          label="Force the second to write the output of the first"
          value={led.value}
          onChange={(x) => (led.value = x)}
          testid="led"
        />
      )}
    </div>
  );
}

function texts(spans: Shown["rows"]): string[] {
  return spans.map(({ text }) => shownPiece(text));
}

function Grid(props: { shown: Shown; label: string; side?: Side; signed?: boolean; testid: string }) {
  const [pin, setPin] = useState<Cell | null>(null);
  const { grid, rows, cols } = props.shown;
  const fitting = pin && pin[0] < grid.rows && pin[1] < grid.cols ? pin : null;
  return (
    <>
    <Matrix
      values={grid.values}
      mask={grid.mask}
      rows={texts(rows)}
      cols={texts(cols)}
      label={props.label}
      scale={props.signed ? "signed" : "weights"}
      most={props.signed ? largest(grid.values) : 1}
      testid={props.testid}
      pin={fitting}
      onPin={setPin}
      read={(row, col) => `“${shownPiece(rows[row].text)}”, “${shownPiece(cols[col].text)}”: ${fixed(grid.values[row * grid.cols + col], props.shown.digits)}`}
    />
      {fitting && props.side && (
        <HowLink
          trace={props.side.trace}
          map={props.side.map}
          row={rows[fitting[0]]}
          col={cols[fitting[1]]}
          weight={grid.values[fitting[0] * grid.cols + fitting[1]]}
          {...headOf(props.side.choice)}
          testid={props.testid}
        />
      )}
    </>
  );
}

function SidePanel(props: { side: Side; id: "a" | "b" }) {
  const { side, id } = props;
  return (
    <Figure title={side.title} name={`compare-${id}`} note={MEANINGS[side.map]}>
      <Output trace={side.trace} testid={`output-${id}`} />
      <Grid shown={side.shown} side={side} label={side.title} testid={`map-${id}`} />
    </Figure>
  );
}

/** Second minus first, if both have the same rows and columns. */
function Difference(props: { a: Side; b: Side }) {
  const { a, b } = props;
  const alike = (side: "rows" | "cols") => texts(a.shown[side]).join("\n") === texts(b.shown[side]).join("\n");
  const differing = [...(alike("rows") ? [] : ["rows"]), ...(alike("cols") ? [] : ["columns"])];
  if (differing.length > 0) {
    return (
      <p class="notice" data-testid="no-difference">
        The two maps have different {differing.join(" and ")}, so there is no cell-by-cell difference. If only the
        tokenization differs, choose words as units.
      </p>
    );
  }
  const shown = { ...a.shown, grid: difference(b.shown.grid, a.shown.grid) };
  return (
    <Figure title="Difference" name="difference" note={`${b.title} minus ${a.title}`}>
      <Grid shown={shown} label="Difference of the weights, second minus first" signed testid="difference" />
    </Figure>
  );
}

/** The Python code that reproduces this view. */
export function compareCode(): string {
  const traces = [shown.value[0], shown.value[1] ?? shown.value[0]];
  const name = traces[0] && pickMap(traces[0]);
  if (!name) return script([], [], ["print(trace.output)"]);
  const [a, b] = traces.map((trace, i) => {
    const matching = matchingMap(trace, name) ?? name;
    const variable = i === 0 ? "trace" : "other";
    return trace.maps[matching]
      ? sliced(variable, matching, readChoice(trace, matching, sides[i].layer.value, sides[i].head.value))
      : `${variable}.maps["${matching}"].weights`;
  });
  const words = level.value === "word";
  const args = [
    text2.value ? quoted(text2.value) : "trace.source",
    led.value && !text2.value ? "target=trace.output" : null,
  ];
  const model = beside.value === "" ? "model" : `regard.load(${quoted(beside.value)})`;
  const another = traces[0] === traces[1] ? "trace" : call("trace_text", [model, ...args]);
  return script([], words ? ["merge_words"] : [], [
    `other = ${another}`,
    ...(words ? ["trace, other = merge_words(trace), merge_words(other)"] : []),
    `print((${b} - ${a}).round(3))`,
  ]);
}
