// A series or a spectrogram with time along the x axis, and weights on parts of it as an area below.
import { scaleLinear } from "d3-scale";
import { line } from "d3-shape";
import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { LINES, scheme } from "../../chart/colours";
import { textWidth } from "../../chart/text_size";
import { range } from "../../maths/grid";
import { presenter } from "../../state/preferences";
import { columnName, type InputTrace, type Place } from "../../state/input_trace";

const RIGHT = 14; // pixels beside the plot
const TICK_GAP = 14; // pixels between two tick labels, at least

/** The x axis that the plots above each other share. */
interface Axis {
  x: (column: number) => number;
  columns: number; // with those of a forecast
  left: number;
  width: number;
}

/** The columns of the input, and those of a forecast after it. */
export function columnsOf(trace: InputTrace): number {
  return trace.cols + (trace.continuation?.values.cols ?? 0);
}

/** The input. The pointer or the arrow keys select the query whose place is nearest. */
export function InputPlot(props: {
  trace: InputTrace;
  row: number;
  places: Place[];
  pointed: number | null;
  marked: Place | null;
  onPoint: (place: number | null) => void;
  onPick: (place: number | null) => void;
}) {
  const { trace } = props;
  const height = presenter.value ? 300 : 220;
  const y = trace.form === "lines" ? scaleLinear(valueRange(trace, props.row), [height, 0]).nice(5) : null;
  return (
    <Frame
      {...props}
      height={height}
      ticks={y}
      yTitle={trace.form === "lines" ? (trace.rowRuler.labels[props.row] ?? "value") : trace.rowRuler.title}
      label={`${trace.source}: ${trace.form === "lines" ? "the series and its forecast" : "the spectrogram"}`}
      testid="input-plot"
      draw={(axis) =>
        y ? <Lines trace={trace} row={props.row} axis={axis} y={y} /> : <rect class="plot-edge" x={axis.left} y={0} width={axis.x(trace.cols) - axis.left} height={height} />
      }
      canvas={trace.form === "bands" ? trace : null}
    />
  );
}

/** The weights of the keys, as an area over the input's columns. */
export function WeightPlot(props: {
  trace: InputTrace;
  keys: Place[];
  weights: Float32Array;
  pointed: number | null;
  marked: Place | null;
  onPoint: (place: number | null) => void;
}) {
  const { trace, keys, weights } = props;
  const height = presenter.value ? 170 : 120;
  const spread = spreadWeights(trace.cols, keys, weights);
  const y = scaleLinear([0, Math.max(1e-9, ...spread)], [height, 0]).nice(3);
  return (
    <Frame
      {...props}
      places={keys}
      height={height}
      ticks={y}
      yTitle="weight"
      label="Attention weights over time"
      testid="input-weights"
      draw={(axis) => <path class="weight-area" d={stepArea(spread, axis, y)} />}
      canvas={null}
    />
  );
}

/** The weight at each column: the mean of the keys that contain it. */
export function spreadWeights(columns: number, keys: Place[], weights: ArrayLike<number>): Float32Array {
  const [sums, counts] = [new Float32Array(columns), new Float32Array(columns)];
  keys.forEach(({ box }, i) => {
    if (!box) return;
    for (let column = box.left; column < box.left + box.width; column++) {
      sums[column] += weights[i];
      counts[column] += 1;
    }
  });
  return sums.map((sum, i) => sum / Math.max(1, counts[i]));
}

function stepArea(values: Float32Array, axis: Axis, y: (value: number) => number): string {
  let path = `M${axis.x(0)} ${y(0)}`;
  values.forEach((value, i) => (path += `L${axis.x(i)} ${y(value)}L${axis.x(i + 1)} ${y(value)}`));
  return `${path}L${axis.x(values.length)} ${y(0)}Z`;
}

function rowValues(grid: { cols: number; values: ArrayLike<number> }, row: number): number[] {
  return range(grid.cols).map((column) => grid.values[row * grid.cols + column]);
}

function valueRange(trace: InputTrace, row: number): [number, number] {
  const { continuation } = trace;
  const all = rowValues(trace, row);
  if (continuation) all.push(...rowValues(continuation.values, row));
  if (continuation?.truth) all.push(...rowValues(continuation.truth, row));
  const [low, high] = [Math.min(...all), Math.max(...all)];
  return low < high ? [low, high] : [low - 1, high + 1];
}

/** The history, what really came, and the forecast. */
function Lines(props: { trace: InputTrace; row: number; axis: Axis; y: Scale }) {
  const { trace, row, axis, y } = props;
  const [truthColour, forecastColour] = LINES[scheme.value];
  const path = (values: number[], start: number) =>
    line<number>(
      (_, i) => axis.x(start + i + 0.5),
      (value) => y(value),
    )(values) ?? "";
  const history = rowValues(trace, row);
  const { continuation } = trace;
  const from = (grid: Parameters<typeof rowValues>[0]) => [history[history.length - 1], ...rowValues(grid, row)];
  return (
    <>
      <path class="curve history" d={path(history, 0)} />
      {continuation && (
        <>
          <line class="now" x1={axis.x(trace.cols)} x2={axis.x(trace.cols)} y1={0} y2={y.range()[0]} />
          {continuation.truth && <path class="curve" stroke={truthColour} d={path(from(continuation.truth), trace.cols - 1)} />}
          <path class="curve forecast" stroke={forecastColour} d={path(from(continuation.values), trace.cols - 1)} />
        </>
      )}
    </>
  );
}

interface Scale {
  (value: number): number;
  ticks: (count: number) => number[];
  range: () => number[];
}

function Frame(props: {
  trace: InputTrace;
  places: Place[];
  pointed: number | null;
  marked: Place | null;
  onPoint: (place: number | null) => void;
  onPick?: (place: number | null) => void;
  height: number;
  ticks: Scale | null; // of the y axis
  yTitle: string;
  label: string;
  testid: string;
  draw: (axis: Axis) => ComponentChildren;
  canvas: InputTrace | null;
}) {
  const { trace, places, height, ticks: y } = props;
  const frame = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(0);
  useLayoutEffect(() => {
    const measure = () => setWidth(frame.current!.clientWidth);
    const watch = new ResizeObserver(measure);
    watch.observe(frame.current!);
    measure();
    return () => watch.disconnect();
  }, []);
  const size = presenter.value ? 16 : 12;
  const left = 4.5 * size + 8; // the same for all plots, so that their x axes agree
  const x = scaleLinear([0, columnsOf(trace)], [left, Math.max(left + 1, width - RIGHT)]);
  const axis: Axis = { x, columns: columnsOf(trace), left, width };
  const nearest = (event: PointerEvent | MouseEvent): number | null => {
    const column = x.invert(event.clientX - frame.current!.getBoundingClientRect().left);
    return column > trace.cols ? null : nearestPlace(places, column);
  };
  const step = (by: number) => {
    const first = places.findIndex(({ box }) => box);
    const next = props.pointed === null ? first : props.pointed + by;
    if (places[next]?.box) props.onPoint(next);
  };
  const handleKey = (event: KeyboardEvent) => {
    if (event.key === "ArrowLeft") step(-1);
    else if (event.key === "ArrowRight") step(1);
    else if (event.key === "Enter" || event.key === " ") props.onPick?.(props.pointed);
    else if (event.key === "Escape") {
      props.onPoint(null);
      props.onPick?.(null);
    } else return;
    event.preventDefault();
    event.stopPropagation();
  };
  const pointed = props.pointed === null ? null : places[props.pointed];
  const canvasBox = { left: `${left}px`, top: "0", width: `${x(trace.cols) - left}px`, height: `${height}px` };
  return (
    <div
      class="timeline"
      ref={frame}
      role="group"
      tabIndex={0}
      aria-label={`${props.label}. Use the left and right arrow keys${props.onPick ? " and Enter to keep a query" : ""}.`}
      data-testid={props.testid}
      onKeyDown={handleKey}
      onBlur={() => props.onPoint(null)}
    >
      {width > 0 && props.canvas && <Bands trace={props.canvas} box={canvasBox} label={props.label} />}
      {width > 0 && (
        <svg
          class="plot"
          width={width}
          height={height + 2 * size + 12}
          viewBox={`0 0 ${width} ${height + 2 * size + 12}`}
          role="img"
          aria-label={props.label}
          onPointerMove={(event) => props.onPoint(nearest(event))}
          onPointerLeave={() => props.onPoint(null)}
          onClick={(event) => props.onPick?.(nearest(event))}
        >
          <rect class="plot-ground" x={left} y={0} width={Math.max(0, width - left - RIGHT)} height={height} />
          {y?.ticks(height < 200 ? 3 : 5).map((value) => (
            <g key={value}>
              <line class="gridline" x1={left} x2={width - RIGHT} y1={y(value)} y2={y(value)} />
              <text class="tick" x={left - 6} y={y(value)} text-anchor="end" dominant-baseline="central">
                {String(value).replace("-", "−")}
              </text>
            </g>
          ))}
          {props.marked?.box && <Span place={props.marked} axis={axis} height={height} name="query-span" />}
          {props.draw(axis)}
          {pointed?.box && <Span place={pointed} axis={axis} height={height} name="pointed-span" />}
          <TimeTicks trace={trace} axis={axis} at={height + size + 6} size={size} />
          <text class="tick axis" transform={`translate(${size} ${height / 2}) rotate(-90)`} text-anchor="middle">
            {props.yTitle}
          </text>
        </svg>
      )}
    </div>
  );
}

/** The place whose centre is nearest to a column; null if none has one. */
function nearestPlace(places: Place[], column: number): number | null {
  let [best, least] = [-1, Infinity];
  places.forEach(({ box }, i) => {
    const distance = box ? Math.abs(box.left + box.width / 2 - column) : Infinity;
    if (distance < least) [best, least] = [i, distance];
  });
  return best < 0 ? null : best;
}

function Span(props: { place: Place; axis: Axis; height: number; name: string }) {
  const { left, width } = props.place.box!;
  const { x } = props.axis;
  return <rect class={props.name} x={x(left)} y={0} width={x(left + width) - x(left)} height={props.height} />;
}

/** Labels below the plot, as many as fit. */
function TimeTicks(props: { trace: InputTrace; axis: Axis; at: number; size: number }) {
  const { trace, axis } = props;
  const ruler = trace.columnRuler;
  const labelled = ruler.labels.length > 0;
  const end = ruler.start + axis.columns * ruler.step;
  const toColumn = scaleLinear([ruler.start, end], [0, axis.columns]);
  const name = (column: number) => shortTime(columnName(trace, column));
  const widest = labelled ? textWidth(name(0), props.size) : textWidth(String(Math.round(end)), props.size) + 16;
  const count = Math.max(2, Math.floor((axis.width - axis.left) / (widest + TICK_GAP)));
  const ticks = labelled
    ? timeTicks(ruler.labels, Math.min(count, 9)).map((column) => ({ at: axis.x(column + 0.5), text: name(column) }))
    : toColumn.ticks(Math.min(count, 10)).map((value) => ({ at: axis.x(toColumn(value)), text: String(value) }));
  return (
    <>
      {ticks
        .filter(({ at }) => at - widest / 2 >= 0 && at + widest / 2 <= axis.width)
        .map(({ at, text }) => (
          <text key={text} class="tick" x={at} y={props.at} text-anchor="middle">
            {text}
          </text>
        ))}
      {!labelled && (
        <text class="tick axis" x={(axis.left + axis.width) / 2} y={props.at + props.size + 4} text-anchor="middle">
          {ruler.title}
        </text>
      )}
    </>
  );
}

/** The columns that get a label: equally far apart, at the beginning of days if there are enough of them. */
function timeTicks(labels: string[], count: number): number[] {
  const columns = range(labels.length);
  const days = columns.filter((i) => /[T ]00:00(:00)?$/.test(labels[i]));
  const candidates = days.length >= 3 ? days : columns;
  const every = Math.ceil(candidates.length / count);
  return candidates.filter((_, i) => i % every === 0);
}

/** A time without its year and without seconds, and a day without its hour. */
function shortTime(label: string): string {
  const parts = /^\d{4}-(\d\d-\d\d)(?:[T ](\d\d:\d\d)(?::\d\d)?)?$/.exec(label);
  if (!parts) return label.length > 16 ? `${label.slice(0, 15)}…` : label;
  return parts[2] && parts[2] !== "00:00" ? `${parts[1]} ${parts[2]}` : parts[1];
}

/** A spectrogram: the lowest band at the bottom, loud is dark (bright in the dark scheme). */
function Bands(props: { trace: InputTrace; box: Record<string, string>; label: string }) {
  const { trace } = props;
  const canvas = useRef<HTMLCanvasElement>(null);
  const on = scheme.value;
  useEffect(() => {
    const { rows, cols, values } = trace;
    let [low, high] = [Infinity, -Infinity];
    for (let i = 0; i < values.length; i++) [low, high] = [Math.min(low, values[i]), Math.max(high, values[i])];
    const pixels = new ImageData(cols, rows);
    for (let i = 0; i < rows * cols; i++) {
      const share = (values[i] - low) / (high - low || 1);
      const shade = on === "light" ? 250 - 225 * share : 24 + 215 * share;
      const [row, col] = [rows - 1 - Math.floor(i / cols), i % cols];
      pixels.data.set([shade, shade, shade, 255], 4 * (row * cols + col));
    }
    Object.assign(canvas.current!, { width: cols, height: rows });
    canvas.current!.getContext("2d")!.putImageData(pixels, 0, 0);
  }, [trace, on]);
  return <canvas ref={canvas} role="img" aria-label={props.label} style={props.box} />;
}
