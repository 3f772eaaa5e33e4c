// Heads: an overview of all heads, one head in large, and the output with some heads switched off.
import { useMemo } from "preact/hooks";
import { largest } from "../../chart/canvas";
import { Figure } from "../../chart/figure";
import { Matrix } from "../../chart/matrix/matrix";
import { Button, Intro, Toggle } from "../../controls/controls";
import { Output } from "../../controls/output";
import { Sentence, Status } from "../../controls/sentence";
import { CutSlider, LevelChoice, MapChoice } from "../../controls/weight_controls";
import { clamp, range, takeGrid } from "../../maths/grid";
import { headStatistics, rollout } from "../../maths/head_statistics";
import { companion, textFor, useOrigin, useRun, useShown, waitingFor } from "../../state/runs";
import {
  arrange,
  AXIS_TITLES,
  mapsOf,
  MEANINGS,
  readCell,
  readPin,
  TITLES,
  writePin,
  type Shown,
} from "../../state/selection";
import type { AttentionMap, MapName, Trace } from "../../state/trace";
import { field } from "../../state/url";
import { shownPiece } from "../../text/pieces";
import { script } from "../../text/python";
import { HowLink } from "../zoom/how_link";
import { HeadButtons, isBetween, oneHead, same, type HeadAddress } from "./head_buttons";
import "./heads.css";

const map = field<string>("map", "");
const layer = field("layer", 0);
const head = field("head", 0);
const level = field<string>("level", "piece");
const hide = field("hide", false);
const stretch = field("stretch", false); // the colour scale ends at the largest weight instead of 1
const cut = field("cut", 0);
const rolled = field("rollout", false);
const off = field<string>("off", ""); // cross.0.1,enc_self.1.3
const pin = field<string>("pin", "");

export function Heads() {
  const run = useOrigin();
  const without = readOff();
  const changed = useRunWithout(run.origin.kind === "model" ? run.origin.entry : null, without);
  useShown([run.trace, changed.trace]);
  // With heads switched off, the maps are those of the changed run.
  const trace = (without.length > 0 && changed.trace) || run.trace;
  const names = trace ? mapsOf(trace) : [];
  const name = names.find((key) => key === map.value) ?? names.find((key) => key === "cross") ?? names[0];
  return (
    <>
      <Intro title="Heads">
        Every head has its own pattern. Select a head to enlarge it; switch it off to see its effect on the output.
      </Intro>
      <Sentence
        busy={run.busy || changed.busy}
        onNew={(what) => {
          pin.value = "";
          if (what === "model") off.value = "";
        }}
      />
      <Status run={run} />
      {without.length > 0 && <Status run={{ ...changed, trace: null }} />}
      {run.trace && <Outputs before={run.trace} after={without.length > 0 ? changed.trace : null} off={without} />}
      {trace && name && (
        <Maps trace={trace} name={name} names={names} off={without} able={run.origin.kind === "model"} />
      )}
    </>
  );
}

function useRunWithout(entry: Parameters<typeof waitingFor>[0] | null, without: HeadAddress[]) {
  const run = useRun(entry && without.length > 0 ? { model: entry.name, text: textFor(entry), off: without } : null);
  if (entry) return { ...run, trace: without.length > 0 ? run.trace : null };
  return { trace: without.length > 0 ? companion() : null, busy: false, waiting: "", error: "" };
}

function readOff(): HeadAddress[] {
  const matches = [...off.value.matchAll(/(?:^|,)(enc_self|dec_self|cross)\.(\d+)\.(\d+)(?=,|$)/g)];
  return matches.map(([, name, l, h]) => ({ map: name as MapName, layer: Number(l), head: Number(h) }));
}

function writeOff(heads: HeadAddress[]): void {
  off.value = heads.map(({ map, layer, head }) => `${map}.${layer}.${head}`).join(",");
}

/** The output of the model, with and without the heads that are switched off. */
function Outputs(props: { before: Trace; after: Trace | null; off: HeadAddress[] }) {
  if (props.off.length === 0) return <Output trace={props.before} />;
  const names = props.off
    .map(({ map, layer, head }) => `${TITLES[map].toLowerCase()} layer ${layer} head ${head}`)
    .join(", ");
  return (
    <div class="columns" data-testid="before-after">
      <div class="panel">
        <Output trace={props.before} label="All heads" testid="before" />
      </div>
      <div class="panel stacked">
        {props.after && <Output trace={props.after} against={props.before} label={`Without ${names}`} testid="after" />}
        <p>
          <Button onClick={() => writeOff([])} testid="all-on">
            Switch all heads on
          </Button>
        </p>
      </div>
    </div>
  );
}

function Maps(props: { trace: Trace; name: MapName; names: MapName[]; off: HeadAddress[]; able: boolean }) {
  const { trace, name } = props;
  const attention = trace.maps[name]!;
  const [l, h] = [clamp(layer.value, attention.layers), clamp(head.value, attention.heads)];
  const square = attention.rows === attention.cols && name === "enc_self";
  const here: HeadAddress = { map: name, layer: l, head: h };
  const isOff = props.off.some((other) => same(other, here));
  const toggle = () => writeOff(isOff ? props.off.filter((other) => !same(other, here)) : [...props.off, here]);
  const unpin = () => (pin.value = "");
  const pick = (picked: HeadAddress) => {
    layer.value = picked.layer;
    head.value = picked.head;
  };
  return (
    <>
      <div class="bar">
        <MapChoice
          value={name}
          names={props.names}
          onChange={(x) => {
            map.value = x;
            unpin();
          }}
        />
        <LevelChoice
          value={level.value}
          onChange={(x) => {
            level.value = x;
            unpin();
          }}
        />
        <CutSlider value={cut.value} onChange={(x) => (cut.value = x)} />
        <Toggle
          label="Hide special tokens and padding"
          value={hide.value}
          onChange={(x) => {
            hide.value = x;
            unpin();
          }}
          testid="hide"
        />
        <Toggle
          label="Stretch colour scale"
          value={stretch.value}
          onChange={(x) => (stretch.value = x)}
          testid="stretch"
        />
        {square && (
          <Toggle label="Rollout" value={rolled.value} onChange={(x) => (rolled.value = x)} testid="rollout" />
        )}
        {props.able && name !== "rnn" && name !== "pointer" && (
          <Toggle label={`Layer ${l}, head ${h} on`} value={!isOff} onChange={toggle} testid="head-on" />
        )}
      </div>
      <div class="heads-and-map">
        <HeadButtons attention={attention} name={name} picked={here} off={props.off} onPick={pick} />
        <Large
          trace={trace}
          name={name}
          layer={l}
          head={h}
          rolled={square && rolled.value}
          unchanged={props.off.length === 0}
        />
      </div>
    </>
  );
}

/** The statistics of a head in words. */
function describeHead(attention: AttentionMap, i: number): string {
  const statistics = headStatistics(oneHead(attention, i), isBetween(attention));
  const share = (x: number) => x.toFixed(2);
  const diagonal = isBetween(attention) ? "the same relative position" : "the token itself";
  const where = [
    `the previous token ${share(statistics.previous)}`,
    `${diagonal} ${share(statistics.diagonal)}`,
    `the first token ${share(statistics.first)}`,
  ];
  return `mean entropy ${share(statistics.entropy)} nats; mean weight on ${where.join(", on ")}`;
}

/** The selected head, or the attention rollout up to its layer. */
function Large(props: {
  trace: Trace;
  name: MapName;
  layer: number;
  head: number;
  rolled: boolean;
  unchanged: boolean; // whether no head is switched off
}) {
  const { trace, name, layer: l, head: h } = props;
  const attention = trace.maps[name]!;
  const options = { words: level.value === "word", hide: hide.value, cut: cut.value };
  const shown: Shown = useMemo(() => {
    const grid = props.rolled
      ? rollout(range(l + 1).map((i) => takeGrid(attention, { layer: i, head: "mean" })))
      : oneHead(attention, l * attention.heads + h);
    return arrange(trace, name, grid, options);
  }, [trace, name, l, h, props.rolled, options.words, options.hide, options.cut]);
  const { grid, rows, cols } = shown;
  const pinned = readPin(pin.value, grid);
  const title = props.rolled ? `Rollout up to layer ${l}` : `${TITLES[name]}, layer ${l}, head ${h}`;
  return (
    <Figure
      title={title}
      name="head"
      note={
        props.rolled
          ? "Attention rollout: the share of each input token in each vector after this layer, including residual connections."
          : `${MEANINGS[name]}; ${describeHead(attention, l * attention.heads + h)}`
      }>
      <Matrix
        values={grid.values}
        mask={grid.mask}
        rows={rows.map((x) => shownPiece(x.text))}
        cols={cols.map((x) => shownPiece(x.text))}
        label={title}
        rowTitle={AXIS_TITLES[attention.query]}
        colTitle={AXIS_TITLES[attention.key]}
        testid="head-map"
        most={stretch.value ? largest(grid.values) : 1}
        read={(row, col) => readCell(shown, row, col)}
        pin={pinned}
        onPin={(next) => (pin.value = writePin(next))}
      />
      {pinned && !props.rolled && props.unchanged && (
        <HowLink
          trace={trace}
          map={name}
          row={rows[pinned[0]]}
          col={cols[pinned[1]]}
          weight={grid.values[pinned[0] * grid.cols + pinned[1]]}
          layer={l}
          head={h}
          testid="head-map"
        />
      )}
    </Figure>
  );
}

/** The Python code that reproduces this view. */
export function headsCode(): string {
  const without = readOff().map(({ map, layer, head }) => `("${map}", ${layer}, ${head})`);
  return script(
    [without.length > 0 ? `off=[${without.join(", ")}]` : null],
    ["head_statistics"],
    [
      "print(trace.output)",
      "for name, attention in trace.maps.items():",
      "    statistics = head_statistics(attention)",
      "    for layer in range(attention.weights.shape[0]):",
      "        print(name, layer, [statistics.badges(layer, head) for head in range(attention.weights.shape[1])])",
    ],
  );
}
