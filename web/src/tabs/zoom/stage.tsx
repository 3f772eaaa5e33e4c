// The stage of the Zoom tab: words, vectors and numbers that move from level to level.
import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { largest } from "../../chart/canvas";
import { colourOf, css, inkOn, LINES, scheme } from "../../chart/colours";
import { range, type Grid } from "../../maths/grid";
import { shownPiece } from "../../text/pieces";
import { short, type Calculation } from "../inside/arithmetic";
import type { Computation } from "./computation";
import { layStage, type Spot, type Stage as Plan } from "./layout";
import { MovingStrip, placed } from "./strip";

const MIN_ARC = 0.02;

export interface StageProps {
  level: number;
  grid: Grid; // the weights of the arcs
  queries: string[];
  keys: string[];
  row: number;
  col: number;
  computation: Computation | null;
  calculation: Calculation | null; // of the score of the chosen key
  onQuery: (row: number) => void;
  onKey: (col: number) => void;
}

export function Stage(props: StageProps) {
  const { computation: sheet, level } = props;
  const frame = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(0);
  const [read, setRead] = useState("");
  useLayoutEffect(() => {
    const look = () => setWidth(frame.current!.clientWidth);
    const watch = new ResizeObserver(look);
    watch.observe(frame.current!);
    look();
    return () => watch.disconnect();
  }, []);
  useLayoutEffect(() => setRead(""), [level, props.row, props.col]);
  const steps = sheet?.scores ?? [];
  const weights = steps.length > 0 ? steps[steps.length - 1].values : [];
  const plan = layStage({
    level,
    width,
    queries: props.queries.length,
    keys: props.keys.length,
    row: props.row,
    col: props.col,
    steps: steps.length,
    weight: (j) => weights[j] ?? 0,
  });
  return (
    <>
      <div
        ref={frame}
        class="zoom-stage"
        data-testid="zoom-stage"
        data-level={level}
        style={{ height: `${plan.height}px` }}
      >
        {width > 0 && (
          <>
            <ArcLines {...props} plan={plan} width={width} />
            <Words texts={props.queries} place={plan.queryWord} chosen={props.row} onPick={props.onQuery} side="query" />
            <Words texts={props.keys} place={plan.keyWord} chosen={props.col} onPick={props.onKey} side="key" />
            {sheet && <Vectors {...props} sheet={sheet} plan={plan} onRead={setRead} />}
            {sheet && <Numbers sheet={sheet} plan={plan} col={props.col} level={level} />}
            <Captions level={level} sheet={sheet} plan={plan} />
          </>
        )}
      </div>
      <p class="readout" aria-live="polite" data-testid="zoom-readout">
        {read || (level < 2 ? "Choose another word above or below." : "Point at a cell to read its number.")}
      </p>
    </>
  );
}

function ArcLines({ grid, row, level, plan, width }: StageProps & { plan: Plan; width: number }) {
  const centre = ({ left, width }: Spot) => left + width / 2;
  const top = 38;
  const bottom = plan.height - 42;
  const middle = (top + bottom) / 2;
  const [queries, keys] = [grid.rows, grid.cols];
  return (
    <svg class="zoom-arcs" width={width} height={plan.height} style={{ opacity: plan.arcs }} aria-hidden="true">
      {range(queries * keys).map((at) => {
        const [i, j] = [Math.floor(at / keys), at % keys];
        const weight = grid.values[at];
        if (weight < MIN_ARC) return null;
        const from = ((i + 0.5) * width) / queries;
        const to = centre({ left: (j * width) / keys, width: width / keys, top: 0, height: 0, opacity: 1 });
        const strength = i === row ? 0.25 + 0.75 * weight : level === 0 ? 0.06 + 0.2 * weight : 0.04;
        return (
          <path
            key={at}
            class="zoom-arc"
            d={`M${from} ${bottom}C${from} ${middle} ${to} ${middle} ${to} ${top}`}
            stroke={LINES[scheme.value][0]}
            style={{ strokeWidth: 1 + 6 * weight, strokeOpacity: strength }}
          />
        );
      })}
    </svg>
  );
}

function Words(props: {
  texts: string[];
  place: (i: number) => Spot;
  chosen: number;
  onPick: (i: number) => void;
  side: "query" | "key";
}) {
  return (
    <>
      {props.texts.map((text, i) => {
        const spot = props.place(i);
        return (
          <button
            key={i}
            type="button"
            class="zoom-item zoom-word"
            style={placed(spot)}
            title={text}
            tabIndex={spot.opacity === 0 ? -1 : 0}
            aria-pressed={i === props.chosen}
            data-testid={`zoom-${props.side}`}
            onClick={() => props.onPick(i)}
          >
            <bdi>{shownPiece(text)}</bdi>
          </button>
        );
      })}
    </>
  );
}

function Vectors(props: StageProps & { sheet: Computation; plan: Plan; onRead: (text: string) => void }) {
  const { sheet, plan, calculation, onRead } = props;
  const [query, keys] = sheet.operands!;
  const products = calculation?.terms.map(({ value }) => value) ?? [];
  // The vector that all keys are multiplied with; of an additive score, the parameter w.
  const shared = query.values.length > 0 ? query.values : (calculation?.terms.map(({ factors }) => factors[1]) ?? []);
  const above = props.level < 3 && sheet.query ? sheet.query : { title: query.title, values: shared };
  const mostKey = Math.max(...keys.rows.map((values) => largest(values)));
  const mostValue = Math.max(...sheet.values.rows.map((values) => largest(values)));
  return (
    <>
      {above.values.length > 0 && (
        <MovingStrip
          values={above.values}
          most={largest(above.values)}
          spot={plan.queryStrip}
          title={above.title}
          onRead={onRead}
          testid="zoom-query-strip"
        />
      )}
      {keys.rows.map((values, j) => (
        <MovingStrip
          key={j}
          values={values}
          most={mostKey}
          spot={plan.keyStrip(j)}
          title={`${keys.title} of ${props.keys[j]}`}
          onRead={onRead}
          testid="zoom-key-strip"
        />
      ))}
      {products.length > 0 && (
        <MovingStrip
          values={products}
          most={largest(products)}
          spot={plan.products}
          title="product"
          onRead={onRead}
          testid="zoom-products"
        />
      )}
      {sheet.values.rows.map((values, j) => (
        <MovingStrip
          key={`v${j}`}
          values={values}
          most={mostValue}
          spot={plan.valueStrip(j)}
          title={`value of ${props.keys[j]}`}
          onRead={onRead}
        />
      ))}
      <MovingStrip
        values={sheet.sum.values}
        most={largest(sheet.sum.values)}
        spot={plan.sum}
        title="weighted sum"
        onRead={onRead}
        testid="zoom-sum"
      />
    </>
  );
}

/** The numbers from the scores to the weights; the weights have a bar. */
function Numbers(props: { sheet: Computation; plan: Plan; col: number; level: number }) {
  const { sheet, plan, col } = props;
  const last = sheet.scores.length - 1;
  return (
    <>
      {sheet.scores.map(({ values }, k) =>
        Array.from(values, (value, j) => {
          const isWeight = k === last;
          const colour = colourOf(isWeight ? value : 0, "weights", 1, scheme.value);
          return (
            <span
              key={`${k}.${j}`}
              class={`zoom-item zoom-number ${j === col ? "chosen" : ""}`}
              style={{
                ...placed(plan.step(j, k)),
                ...(isWeight ? { background: css(colour), color: inkOn(colour) } : {}),
              }}
              data-testid={isWeight ? "zoom-weight" : "zoom-step"}
              data-value={Number.isNaN(value) ? "-inf" : value}
            >
              {isWeight ? value.toFixed(3) : short(value)}
            </span>
          );
        }),
      )}
    </>
  );
}

/** What the rows and columns of the stage are. */
function Captions(props: { level: number; sheet: Computation | null; plan: Plan }) {
  const { level, sheet, plan } = props;
  if (!sheet) return null;
  const titles: [Spot, ComponentChildren][] = [];
  if (level === 2) titles.push([plan.queryStrip, (sheet.query ?? sheet.operands![0]).title], [plan.keyStrip(0), "keys"]);
  if (level === 3) {
    titles.push([plan.queryStrip, sheet.operands![0].title], [plan.products, "products, one for each dimension"]);
    const shownKey = plan.keyStrip(plan.chosen);
    titles.push([shownKey, sheet.operands![1].title]);
  }
  if (level === 4) sheet.scores.forEach(({ title }, k) => titles.push([plan.step(0, k), title]));
  if (level === 5) titles.push([plan.step(0, 0), "weight"], [plan.valueStrip(0), "times value"], [plan.sum, "sum"]);
  return (
    <>
      {titles.map(([spot, title]) => (
        <span key={`${level} ${title}`} class="zoom-caption" style={{ left: `${spot.left}px`, top: `${spot.top - 19}px` }}>
          {title}
        </span>
      ))}
    </>
  );
}
