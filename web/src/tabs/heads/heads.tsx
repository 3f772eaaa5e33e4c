// Heads: every head of every layer at a glance, one of them large, and what the output is without some of them.
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
import { arrange, mapsOf, MEANINGS, readCell, readPin, TITLES, writePin, type Shown } from "../../state/selection";
import type { AttentionMap, MapName, Trace } from "../../state/trace";
import { field } from "../../state/url";
import { shownPiece } from "../../text/pieces";
import { script } from "../../text/python";
import { isBetween, oneHead, same, Thumbnails, type Off } from "./head_buttons";
import "./heads.css";

const map = field<string>("map", "");
const layer = field("layer", 0);
const head = field("head", 0);
const level = field<string>("level", "piece");
const hide = field("hide", false);
const stretch = field("stretch", false); // colours up to the largest weight instead of 1
const cut = field("cut", 0);
const rolled = field("rollout", false);
const off = field<string>("off", ""); // cross.0.1,enc_self.1.3
const pin = field<string>("pin", "");

export function Heads() {
  const run = useOrigin();
  const without = readOff();
  const changed = useChanged(run.origin.kind === "model" ? run.origin.entry : null, without);
  useShown([run.trace, changed.trace]);
  // The maps are those of what is shown as output: without the heads, where some are off.
  const trace = (without.length > 0 && changed.trace) || run.trace;
  const names = trace ? mapsOf(trace) : [];
  const name = names.find((one) => one === map.value) ?? names.find((one) => one === "cross") ?? names[0];
  return (
    <>
      <Intro title="Heads">
        Every head looks its own way. Pick one to see it large; switch it off to see what it was good for.
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

function useChanged(entry: Parameters<typeof waitingFor>[0] | null, without: Off[]) {
  const run = useRun(entry && without.length > 0 ? { model: entry.name, text: textFor(entry), off: without } : null);
  if (entry) return { ...run, trace: without.length > 0 ? run.trace : null };
  return { trace: without.length > 0 ? companion() : null, busy: false, waiting: "", error: "" };
}

function readOff(): Off[] {
  const found = [...off.value.matchAll(/(?:^|,)(enc_self|dec_self|cross)\.(\d+)\.(\d+)(?=,|$)/g)];
  return found.map(([, name, l, h]) => ({ map: name as MapName, layer: Number(l), head: Number(h) }));
}

function writeOff(heads: Off[]): void {
  off.value = heads.map((one) => `${one.map}.${one.layer}.${one.head}`).join(",");
}

/** What the model writes, and with heads switched off what it writes then. */
function Outputs(props: { before: Trace; after: Trace | null; off: Off[] }) {
  if (props.off.length === 0) return <Output trace={props.before} />;
  const names = props.off.map((one) => `head ${one.head} of ${TITLES[one.map].toLowerCase()} ${one.layer}`).join(", ");
  return (
    <div class="columns" data-testid="before-after">
      <div class="panel">
        <Output trace={props.before} label="All heads" testid="before" />
      </div>
      <div class="panel stacked">
        {props.after && <Output trace={props.after} against={props.before} label={`Without ${names}`} testid="after" />}
        <p>
          <Button onClick={() => writeOff([])} testid="all-on">
            Switch all on again
          </Button>
        </p>
      </div>
    </div>
  );
}

function Maps(props: { trace: Trace; name: MapName; names: MapName[]; off: Off[]; able: boolean }) {
  const { trace, name } = props;
  const one = trace.maps[name]!;
  const [l, h] = [clamp(layer.value, one.layers), clamp(head.value, one.heads)];
  const square = one.rows === one.cols && name === "enc_self";
  const here: Off = { map: name, layer: l, head: h };
  const isOff = props.off.some((other) => same(other, here));
  const toggle = () => writeOff(isOff ? props.off.filter((other) => !same(other, here)) : [...props.off, here]);
  const unpin = () => (pin.value = "");
  const pick = (picked: Off) => {
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
        <Toggle label="Stretch colours" value={stretch.value} onChange={(x) => (stretch.value = x)} testid="stretch" />
        {square && (
          <Toggle label="Rollout" value={rolled.value} onChange={(x) => (rolled.value = x)} testid="rollout" />
        )}
        {props.able && name !== "rnn" && (
          <Toggle label={`Head ${h} of layer ${l} is on`} value={!isOff} onChange={toggle} testid="head-on" />
        )}
      </div>
      <div class="heads-and-map">
        <Thumbnails one={one} name={name} picked={here} off={props.off} onPick={pick} />
        <Large trace={trace} name={name} layer={l} head={h} rolled={square && rolled.value} />
      </div>
    </>
  );
}

/** The statistics of a head in words. */
function tell(one: AttentionMap, i: number): string {
  const found = headStatistics(oneHead(one, i), isBetween(one));
  const share = (x: number) => x.toFixed(2);
  const own = isBetween(one) ? "the place as far along" : "itself";
  const where = [
    `the token before ${share(found.previous)}`,
    `${own} ${share(found.diagonal)}`,
    `the first token ${share(found.first)}`,
  ];
  return `mean entropy ${share(found.entropy)} nats; weight on ${where.join(", on ")}`;
}

/** The picked head, or how much of each token is in each vector after its layer. */
function Large(props: { trace: Trace; name: MapName; layer: number; head: number; rolled: boolean }) {
  const { trace, name, layer: l, head: h } = props;
  const one = trace.maps[name]!;
  const how = { words: level.value === "word", hide: hide.value, cut: cut.value };
  const shown: Shown = useMemo(() => {
    const grid = props.rolled
      ? rollout(range(l + 1).map((i) => takeGrid(one, { layer: i, head: "mean" })))
      : oneHead(one, l * one.heads + h);
    return arrange(trace, name, grid, how);
  }, [trace, name, l, h, props.rolled, how.words, how.hide, how.cut]);
  const { grid, rows, cols } = shown;
  const title = props.rolled ? `Rollout up to layer ${l}` : `${TITLES[name]}, layer ${l}, head ${h}`;
  return (
    <Figure
      title={title}
      name="head"
      note={
        props.rolled
          ? "How much of each token of the input is in each vector after this layer, residual connections counted in."
          : `${MEANINGS[name]}; ${tell(one, l * one.heads + h)}`
      }>
      <Matrix
        values={grid.values}
        mask={grid.mask}
        rows={rows.map((x) => shownPiece(x.text))}
        cols={cols.map((x) => shownPiece(x.text))}
        label={title}
        rowTitle={SIDES[one.query]}
        colTitle={SIDES[one.key]}
        testid="head-map"
        most={stretch.value ? largest(grid.values) : 1}
        read={(row, col) => readCell(shown, row, col)}
        pin={readPin(pin.value, grid)}
        onPin={(next) => (pin.value = writePin(next))}
      />
    </Figure>
  );
}

const SIDES: Record<string, string> = { source: "source", target: "written", read: "read before" };

/** Python for this view. */
export function headsCode(): string {
  const without = readOff().map((one) => `("${one.map}", ${one.layer}, ${one.head})`);
  return script(
    [without.length > 0 ? `off=[${without.join(", ")}]` : null],
    ["head_statistics"],
    [
      "print(trace.output)",
      "for name, one in trace.maps.items():",
      "    found = head_statistics(one)",
      "    for layer in range(one.weights.shape[0]):",
      "        print(name, layer, [found.badges(layer, head) for head in range(one.weights.shape[1])])",
    ],
  );
}
