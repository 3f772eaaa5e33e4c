// Zoom: one attention weight, from the sentence through its head down to the products, and up again to the sum.
import { useEffect, useState } from "preact/hooks";
import { colourOf, css, inkOn, scheme } from "../../chart/colours";
import { Figure } from "../../chart/figure";
import { Button, Choice, Intro } from "../../controls/controls";
import { Sentence, Status } from "../../controls/sentence";
import { MapChoice } from "../../controls/weight_controls";
import { clamp, range, takeGrid, type Grid } from "../../maths/grid";
import { askParameter } from "../../state/api";
import { useAnswer } from "../../state/requests";
import { textFor, useOrigin, useShown, type Origin } from "../../state/runs";
import { aligningMap, cap, mapsOf, MEANINGS, TITLES } from "../../state/selection";
import { headWeights, type AttentionMap, type MapName, type Trace } from "../../state/trace";
import { openInside } from "../inside/state";
import { useWorksheet } from "../inside/worksheet";
import { readComputation } from "./computation";
import { Explanation } from "./explain";
import { meanWeight } from "./how_link";
import { col, head, layer, level, LEVELS, map, row } from "./place";
import { Stage } from "./stage";
import "./zoom.css";

const PAUSE = 3200; // milliseconds at each level while it plays

export function Zoom() {
  const run = useOrigin();
  useShown([run.trace]);
  const { trace } = run;
  const names = trace ? mapsOf(trace).filter((name) => name !== "pointer") : [];
  const wanted = trace && aligningMap(trace);
  const name = names.find((known) => known === map.value) ?? names.find((known) => known === wanted) ?? names[0];
  const forget = () => {
    for (const field of [row, col, layer, head]) field.value = -1;
  };
  return (
    <>
      <Intro title="Zoom">
        One attention weight, from the sentence down to the products and up to the sum. All numbers are the model's own.
      </Intro>
      <Sentence busy={run.busy} onNew={forget} />
      <Status run={run} />
      {trace && !name && <p class="notice">This model has no attention, so there is no weight to take apart.</p>}
      {trace && name && <View trace={trace} origin={run.origin} settled={!run.busy} name={name} names={names} />}
    </>
  );
}

/** The pair of tokens and the head that are shown: those of the address, otherwise where the largest weight is. */
function choosePlace(trace: Trace, name: MapName, overall: Grid) {
  const attention = trace.maps[name]!;
  const special = (axis: string) => trace.axes[axis].tokens.map((token) => token.special);
  const [rowSpecial, colSpecial] = [special(attention.query), special(attention.key)];
  const rows = row.value >= 0 ? [clamp(row.value, attention.rows)] : range(attention.rows);
  const cols = col.value >= 0 ? [clamp(col.value, attention.cols)] : range(attention.cols);
  let best = { row: rows[0], col: cols[0], weight: -1 };
  for (const i of rows) {
    for (const j of cols) {
      const passed = (rows.length > 1 && rowSpecial[i]) || (cols.length > 1 && colSpecial[j]);
      const weight = overall.values[i * overall.cols + j] - (passed ? 1 : 0);
      if (weight > best.weight) best = { row: i, col: j, weight };
    }
  }
  return { row: best.row, col: best.col, ...chooseHead(attention, best.row, best.col) };
}

/** The head of the address, otherwise the one with the largest weight for a pair of tokens. */
function chooseHead(attention: AttentionMap, i: number, j: number): { layer: number; head: number } {
  const { layers, heads } = attention;
  if (layer.value >= 0 && head.value >= 0) return { layer: clamp(layer.value, layers), head: clamp(head.value, heads) };
  const all = range(layers * heads).map((at) => ({ layer: Math.floor(at / heads), head: at % heads }));
  const weight = (place: { layer: number; head: number }) => meanWeight(attention, i, j, place.layer, place.head);
  return all.reduce((best, place) => (weight(place) > weight(best) ? place : best));
}

interface ViewProps {
  trace: Trace;
  origin: Origin;
  settled: boolean; // whether the trace is that of the origin; while a new one is computed, the previous one is shown
  name: MapName;
  names: MapName[];
}

function View(props: ViewProps) {
  const { trace, origin, name } = props;
  const attention = trace.maps[name]!;
  const aligned = (name === "cross" || name === "rnn") && trace.alignment !== null;
  const single = attention.layers * attention.heads === 1;
  const overall = aligned ? takeGrid(trace.alignment!, { layer: 0, head: 0 }) : takeGrid(attention, { layer: "all", head: "mean" });
  const at = choosePlace(trace, name, overall);
  const here = clamp(level.value, LEVELS.length);
  const entry = origin.kind === "model" ? origin.entry : null;
  const stack = name === "enc_self" ? "encoder" : "decoder";
  const { sheet, error, busy } = useWorksheet(
    entry && props.settled ? { model: entry.name, text: textFor(entry), stack, layer: at.layer, token: at.row, head: at.head } : null,
  );
  const part = name === "enc_self" || name === "dec_self" ? "self" : "cross";
  const computation = sheet && fits(sheet, at, stack) ? readComputation(sheet.boxes, part) : null;
  const calculation = useProduct(entry?.name ?? "", computation, at.col);
  const grid: Grid =
    here === 0
      ? overall
      : { rows: attention.rows, cols: attention.cols, values: headWeights(attention, at.layer, at.head), mask: attention.mask };
  const token = (axis: string, i: number) => trace.axes[axis].tokens[i].text;
  const texts = (axis: string) => trace.axes[axis].tokens.map(({ text }) => text);
  const shownLevel = computation ? here : Math.min(here, 1);
  return (
    <>
      <LevelSteps level={here} />
      {here > 1 && !computation && (
        <p class="notice" role="status" data-testid="zoom-needs-model">
          {entry === null
            ? "This trace contains attention weights, but not the vectors that they are made of: select a model to zoom in further."
            : error || (busy ? "Computing the vectors of this head …" : "The vectors of this kind of attention cannot be shown.")}
        </p>
      )}
      <Figure title={here === 0 && !single ? cap(MEANINGS[name]) : `${TITLES[name]}: ${headTitle(single, at)}`} name="zoom">
        <Stage
          level={shownLevel}
          grid={grid}
          queries={texts(attention.query)}
          keys={texts(attention.key)}
          row={at.row}
          col={at.col}
          computation={computation}
          calculation={calculation}
          onQuery={(i) => pick({ ...at, row: i, col: -1 })}
          onKey={(j) => pick({ ...at, col: j })}
        />
        <Explanation
          level={shownLevel}
          query={token(attention.query, at.row)}
          keyToken={token(attention.key, at.col)}
          writes={attention.query === "target"}
          overall={overall.values[at.row * overall.cols + at.col]}
          overallName={single ? "" : aligned ? ", the mean of the heads that align best" : ", the mean of all heads"}
          headName={single ? "" : `Layer ${at.layer}, head ${at.head}`}
          headWeight={meanWeight(attention, at.row, at.col, at.layer, at.head)}
          col={at.col}
          computation={computation}
          calculation={calculation}
        />
        {shownLevel === 1 && !single && <HeadTable attention={attention} at={at} />}
        {entry && shownLevel > 1 && (
          <p>
            <button
              type="button"
              class="link"
              data-testid="zoom-inside"
              onClick={() =>
                openInside({
                  model: entry.name,
                  stack,
                  layer: at.layer,
                  head: at.head,
                  token: at.row,
                  cell: `${part}.weights:${at.col}`,
                })
              }
            >
              See the whole block in Inside →
            </button>
          </p>
        )}
      </Figure>
      {props.names.length > 1 && (
        <MapChoice
          value={name}
          names={props.names}
          onChange={(next) => {
            map.value = next;
            pick({ row: -1, col: -1, layer: -1, head: -1 });
          }}
        />
      )}
    </>
  );
}

function pick(place: { row: number; col: number; layer: number; head: number }): void {
  row.value = place.row;
  col.value = place.col;
  layer.value = place.layer;
  head.value = place.head;
}

/** Whether a worksheet is that of a place; while a new one is computed, the previous one is still there. */
function fits(sheet: { layer: number; head: number; token: number; stack: string }, at: { row: number; layer: number; head: number }, stack: string): boolean {
  return sheet.layer === at.layer && sheet.head === at.head && sheet.token === at.row && sheet.stack === stack;
}

function headTitle(single: boolean, at: { layer: number; head: number }): string {
  return single ? "its only head" : `layer ${at.layer}, head ${at.head}`;
}

/** The product of a query and a key, term by term; an additive score needs a parameter of the model. */
function useProduct(model: string, computation: ReturnType<typeof readComputation>, key: number) {
  const name = computation?.parameter ?? null;
  const { value } = useAnswer(name ? `parameters ${model} ${name}` : "", async () => ({
    [name!]: await askParameter(model, name!),
  }));
  if (!computation || (name && !value?.[name])) return null;
  return computation.product(key, (wanted) => value![wanted]);
}

function LevelSteps(props: { level: number }) {
  const [playing, setPlaying] = useState(false);
  const go = (next: number) => (level.value = clamp(next, LEVELS.length));
  useEffect(() => {
    if (!playing) return;
    if (props.level === LEVELS.length - 1) return setPlaying(false);
    const timer = setTimeout(() => go(props.level + 1), PAUSE);
    return () => clearTimeout(timer);
  }, [playing, props.level]);
  useEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      const field = (event.target as HTMLElement).closest?.("input, select, textarea, [role=dialog]");
      if (field || event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.key === "ArrowRight") go(level.value + 1);
      else if (event.key === "ArrowLeft") go(level.value - 1);
      else return;
      event.preventDefault();
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, []);
  return (
    <div class="bar zoom-steps">
      <Choice
        label="How far to zoom in"
        bare
        title="From the sentence down to the products and up to the sum (arrow keys)"
        value={props.level}
        options={LEVELS.map((label, value) => ({ value, label }))}
        onChange={go}
        testid="zoom-level"
      />
      <div class="bar">
        <Button onClick={() => go(props.level - 1)} disabled={props.level === 0} title="Zoom out (←)" testid="zoom-out">
          Back
        </Button>
        <Button
          main
          onClick={() => go(props.level + 1)}
          disabled={props.level === LEVELS.length - 1}
          title="Zoom in (→)"
          testid="zoom-in"
        >
          Zoom in
        </Button>
        <Button
          onClick={() => {
            if (!playing && props.level === LEVELS.length - 1) go(0);
            setPlaying(!playing);
          }}
          pressed={playing}
          title="Zoom in step by step"
          testid="zoom-play"
        >
          {playing ? "Pause" : "Play"}
        </Button>
      </div>
    </div>
  );
}

/** The weight of the pair in every head. */
function HeadTable(props: { attention: AttentionMap; at: { row: number; col: number; layer: number; head: number } }) {
  const { attention, at } = props;
  return (
    <div class="scroll">
      <table class="zoom-heads" aria-label="The weight of this pair in every head">
        <thead>
          <tr>
            <td />
            {range(attention.heads).map((h) => (
              <th key={h} scope="col">
                head {h}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {range(attention.layers).map((l) => (
            <tr key={l}>
              <th scope="row">layer {l}</th>
              {range(attention.heads).map((h) => {
                const weight = meanWeight(attention, at.row, at.col, l, h);
                const colour = colourOf(weight, "weights", 1, scheme.value);
                return (
                  <td key={h}>
                    <button
                      type="button"
                      style={{ background: css(colour), color: inkOn(colour) }}
                      aria-pressed={l === at.layer && h === at.head}
                      data-testid="zoom-head"
                      onClick={() => pick({ ...at, layer: l, head: h })}
                    >
                      {weight.toFixed(2)}
                    </button>
                  </td>
                );
              })}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

