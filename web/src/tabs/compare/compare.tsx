// Compare: two heads, two texts or two models on one scale, and the difference between them.
import { useState } from "preact/hooks";
import { largest } from "../../chart/canvas";
import { Figure } from "../../chart/figure";
import { Matrix, type Cell } from "../../chart/matrix/matrix";
import { Intro, Select, Toggle } from "../../controls/controls";
import { Output } from "../../controls/output";
import { Sentence, Status } from "../../controls/sentence";
import { HeadSelects, LevelChoice, MapChoice } from "../../controls/weight_controls";
import { difference } from "../../maths/grid";
import { opened, served, shown } from "../../state/api";
import { companion, textFor, useOrigin, useRun, useShown, waitingFor, type Run } from "../../state/runs";
import { mapsOf, MEANINGS, nameChoice, pickWeights, readChoice, type Shown } from "../../state/selection";
import type { MapName, Trace } from "../../state/trace";
import { field } from "../../state/url";
import { fixed } from "../../text/numbers";
import { shownPiece } from "../../text/pieces";
import { call, quoted, script, sliced } from "../../text/python";

const map = field<string>("map", "");
const level = field<string>("level", "word");
const beside = field<string>("beside", ""); // the other model, or trace:name
const text2 = field<string>("text2", "");
const led = field("led", true);
const sides = [
  { layer: field<string>("layer", "0"), head: field<string>("head", "0") },
  { layer: field<string>("layer2", "0"), head: field<string>("head2", "1") },
];

interface Side {
  trace: Trace;
  map: MapName;
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
        Two heads, two texts or two models, on one scale; and what the second has that the first has not.
      </Intro>
      <Sentence busy={first.busy || second.busy} />
      <Settings
        first={first.trace}
        second={second.trace}
        name={name}
        asked={first.origin.kind === "model" ? first.origin.entry.name : null}
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

/** The other side: another model, another text, another trace, or the same run where only the heads differ. */
function useSecond(first: ReturnType<typeof useOrigin>): Run {
  const from = first.origin.kind === "model" ? first.origin.entry : null;
  const entry = from && (served.value!.models.find((one) => one.name === beside.value) ?? from);
  const another = from !== null && (entry !== from || text2.value !== "");
  // Led along the output of the first, the second has the same rows; so it waits for it.
  const along = another && led.value && text2.value === "" && entry!.kind === "translator";
  const ready = another && !(along && (first.busy || !first.trace));
  const target = along ? { target: first.trace?.output } : {};
  const run = useRun(ready ? { model: entry!.name, text: text2.value || textFor(from), ...target } : null);
  if (another) return { ...run, waiting: run.busy ? waitingFor(entry!) : "" };
  const named = opened.value.find((one) => `trace:${one.name}` === beside.value)?.trace ?? companion();
  return { trace: (!from && named) || first.trace, busy: first.busy, waiting: "", error: "" };
}

function pickMap(trace: Trace): MapName | undefined {
  const names = mapsOf(trace);
  return names.find((one) => one === map.value) ?? names.find((one) => one === "cross") ?? names[0];
}

/** The same map of a trace, or the one that serves for it: a recurrent model's map to the source is called rnn. */
function serving(trace: Trace, wanted: MapName): MapName | undefined {
  const names: MapName[] = wanted === "cross" || wanted === "rnn" ? [wanted, "cross", "rnn"] : [wanted];
  return names.find((name) => trace.maps[name]);
}

function makeSide(trace: Trace, wanted: MapName, i: number): Side | null {
  const name = serving(trace, wanted);
  if (!name) return null;
  const choice = readChoice(trace, name, sides[i].layer.value, sides[i].head.value);
  const shown = pickWeights(trace, name, choice, { words: level.value === "word" });
  return { trace, map: name, shown, title: `${trace.model.name}${nameChoice(trace.maps[name]!, choice)}` };
}

function Settings(props: {
  first: Trace | null;
  second: Trace | null;
  name: MapName | undefined;
  asked: string | null;
}) {
  const { first, second, name } = props;
  const [typed, setTyped] = useState(text2.value);
  if (!first || !name) return null;
  const models = (served.value?.models ?? []).filter((one) => one.name !== props.asked).map((one) => one.name);
  const traces = opened.value.map((one) => ({ value: `trace:${one.name}`, label: `trace: ${one.name}` }));
  const others = props.asked === null ? traces : models;
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
          label="Against"
          value={beside.value}
          options={[{ value: "", label: props.asked ?? "the same" }, ...others]}
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
      {props.asked !== null && (
        <label class="control sentence-text">
          <span>Another text for the second (empty: the same)</span>
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
      {beside.value !== "" && text2.value === "" && props.asked !== null && (
        <Toggle
          label="Lead the second along the output of the first"
          value={led.value}
          onChange={(x) => (led.value = x)}
          testid="led"
        />
      )}
    </div>
  );
}

function texts(spans: Shown["rows"]): string[] {
  return spans.map((one) => shownPiece(one.text));
}

function Grid(props: { shown: Shown; label: string; signed?: boolean; testid: string }) {
  const [pin, setPin] = useState<Cell | null>(null);
  const { grid, rows, cols } = props.shown;
  const fitting = pin && pin[0] < grid.rows && pin[1] < grid.cols ? pin : null;
  return (
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
      read={(row, col) => `“${rows[row].text}”, “${cols[col].text}”: ${fixed(grid.values[row * grid.cols + col], 4)}`}
    />
  );
}

function SidePanel(props: { side: Side; id: "a" | "b" }) {
  const { side, id } = props;
  return (
    <Figure title={side.title} name={`compare-${id}`} note={MEANINGS[side.map]}>
      <Output trace={side.trace} testid={`output-${id}`} />
      <Grid shown={side.shown} label={side.title} testid={`map-${id}`} />
    </Figure>
  );
}

/** Second minus first, where both stand between the same tokens. */
function Difference(props: { a: Side; b: Side }) {
  const { a, b } = props;
  const alike = (side: "rows" | "cols") => texts(a.shown[side]).join("\n") === texts(b.shown[side]).join("\n");
  const differing = [...(alike("rows") ? [] : ["rows"]), ...(alike("cols") ? [] : ["columns"])];
  if (differing.length > 0) {
    return (
      <p class="notice" data-testid="no-difference">
        The {differing.join(" and the ")} of the two differ, so there is no cell-by-cell difference. Between words more
        outputs are alike than between pieces.
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

/** Python for this view. */
export function compareCode(): string {
  const traces = [shown.value[0], shown.value[1] ?? shown.value[0]];
  const name = traces[0] && pickMap(traces[0]);
  if (!name) return script([], [], ["print(trace.output)"]);
  const [a, b] = traces.map((trace, i) => {
    const own = serving(trace, name) ?? name;
    const weights = `${i === 0 ? "trace" : "other"}.maps["${own}"].weights`;
    return trace.maps[own]
      ? sliced(weights, readChoice(trace, own, sides[i].layer.value, sides[i].head.value))
      : weights;
  });
  const words = level.value === "word";
  const asked = [
    text2.value ? quoted(text2.value) : "trace.source",
    led.value && !text2.value ? "target=trace.output" : null,
  ];
  const model = beside.value === "" ? "model" : `regard.load(${quoted(beside.value)})`;
  const another = traces[0] === traces[1] ? "trace" : call("trace_text", [model, ...asked]);
  return script([], words ? ["merge_words"] : [], [
    `other = ${another}`,
    ...(words ? ["trace, other = merge_words(trace), merge_words(other)"] : []),
    `print((${b} - ${a}).round(3))`,
  ]);
}
