// A line plot with ticks and a cursor that reads out the curves.
import { scaleLinear, scaleLog } from "d3-scale";
import { area, line } from "d3-shape";
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { presenter } from "../state/preferences";
import { LINES, scheme } from "./colours";
import { textWidth } from "./text_size";
import "./axes.css";
import "./plot.css";

const MAX_TABLE_POINTS = 128;

export interface Curve {
  name: string;
  x: ArrayLike<number>;
  y: ArrayLike<number>;
  low?: ArrayLike<number>; // lower and upper edge of a band
  high?: ArrayLike<number>;
  dashed?: boolean; // a reference line
}

export interface PlotProps {
  curves: readonly Curve[];
  xTitle: string;
  yTitle: string;
  label: string;
  read: (index: number) => string;
  at?: number | null; // the resting position of the cursor
  onAt?: (index: number | null) => void;
  yTick?: (value: number) => string;
  from?: number; // the y axis starts at this value or below
  logarithmic?: boolean; // both axes
  height?: number;
  testid: string;
}

export function Plot(props: PlotProps) {
  const frame = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(0);
  const [hover, setHover] = useState<number | null>(null);
  useLayoutEffect(() => {
    const watch = new ResizeObserver(() => setWidth(frame.current!.clientWidth));
    watch.observe(frame.current!);
    setWidth(frame.current!.clientWidth);
    return () => watch.disconnect();
  }, []);
  const points = props.curves[0].x.length;
  const at = hover ?? props.at ?? null;
  const shown = at !== null && at < points ? at : null;
  const handleKey = (event: KeyboardEvent) => {
    const moves: Record<string, number> = {
      ArrowLeft: (shown ?? 1) - 1,
      ArrowRight: (shown ?? -1) + 1,
      Home: 0,
      End: points - 1,
    };
    if (event.key in moves) setHover(Math.min(points - 1, Math.max(0, moves[event.key])));
    else if (event.key === "Enter") props.onAt?.(shown);
    else if (event.key === "Escape") {
      setHover(null);
      props.onAt?.(null);
    } else return;
    event.preventDefault();
    event.stopPropagation();
  };
  return (
    <div class="plot-frame" ref={frame} data-testid={props.testid}>
      <div
        role="group"
        tabIndex={0}
        aria-label={`${props.label}. Use the arrow keys to read the curve.`}
        onKeyDown={handleKey}
        onBlur={() => setHover(null)}
      >
        {width > 0 && <Drawing {...props} width={width} cursor={shown} onHover={setHover} />}
      </div>
      <p class="readout" aria-live="polite" data-testid={`${props.testid}-readout`}>
        {shown === null ? "Point at the curve, or use the arrow keys." : props.read(shown)}
      </p>
      {points <= MAX_TABLE_POINTS && <HiddenTable {...props} />}
    </div>
  );
}

/** The curves as a table for screen readers. */
function HiddenTable(props: PlotProps) {
  return (
    <div class="listen">
      <table data-testid={`${props.testid}-table`}>
        <caption>{props.label}</caption>
        {props.curves.map((curve) => (
          <tbody key={curve.name}>
            {Array.from(curve.y, (value, i) => (
              <tr key={i}>
                <th scope="row">
                  {props.xTitle} {curve.x[i]}
                </th>
                <td data-value={value}>{value.toFixed(3)}</td>
              </tr>
            ))}
          </tbody>
        ))}
      </table>
    </div>
  );
}

/** Where the names of the curves end, from the right; those that do not fit begin another row. */
function placedNames(names: readonly string[], width: number, size: number): { end: number; row: number }[] {
  let [end, row] = [width - 18, 0];
  return names.map((name) => {
    const length = 1.15 * textWidth(name, size + 1);
    if (end - length < 0 && end < width - 18) [end, row] = [width - 18, row + 1];
    const placed = { end, row };
    end -= length + size;
    return placed;
  });
}

function extent(curves: readonly Curve[], of: (curve: Curve) => ArrayLike<number>[]): [number, number] {
  let [low, high] = [Infinity, -Infinity];
  for (const values of curves.flatMap(of)) {
    for (let i = 0; i < values.length; i++) {
      low = Math.min(low, values[i]);
      high = Math.max(high, values[i]);
    }
  }
  return low < high ? [low, high] : [low - 1, high + 1];
}

/** Ticks of a logarithmic axis: powers of ten, and multiples of them if the range is small. */
function roundNumbers(low: number, high: number): number[] {
  const factors = high / low < 50 ? [1, 2, 5] : high / low < 3000 ? [1, 3] : [1];
  const powers = Array.from(
    { length: Math.ceil(Math.log10(high / low)) + 2 },
    (_, i) => Math.floor(Math.log10(low)) + i,
  );
  // Parsed from text because 10 ** -2 * 5 is not exactly 0.05.
  const numbers = powers.flatMap((power) => factors.map((factor) => Number(`${factor}e${power}`)));
  const inside = numbers.filter((value) => value >= low && value <= high);
  const every = Math.ceil(inside.length / 7);
  return inside.filter((_, i) => i % every === 0);
}

function Drawing(props: PlotProps & { width: number; cursor: number | null; onHover: (index: number | null) => void }) {
  const { curves, width, cursor } = props;
  const large = presenter.value;
  const size = large ? 16 : 12;
  const height = props.height ?? (large ? 320 : 240);
  const names = placedNames(curves.map(({ name }) => name), width, size);
  const top = curves.length > 1 ? (1 + names[names.length - 1].row) * (size + 6) + 10 : 10;
  const [lowest, highest] = extent(curves, (curve) => [
    curve.y,
    ...(curve.low && curve.high ? [curve.low, curve.high] : []),
  ]);
  const yRange = [height - 3 * size - 8, top];
  const y = props.logarithmic
    ? scaleLog([lowest, highest], yRange)
    : scaleLinear([Math.min(lowest, props.from ?? lowest), highest], yRange).nice(5);
  const yTicks = props.logarithmic ? roundNumbers(lowest, highest) : y.ticks(5);
  const tick = props.yTick ?? ((value: number) => String(value).replace("-", "−"));
  const left = Math.ceil(Math.max(...yTicks.map((value) => textWidth(tick(value), size)))) + size + 20;
  const xExtent = extent(curves, (curve) => [curve.x]);
  const x = (props.logarithmic ? scaleLog(xExtent, [0, 0]).base(2) : scaleLinear(xExtent, [0, 0])).range([
    left,
    width - 14,
  ]);
  const bottom = y.range()[0];
  const linePath = (values: ArrayLike<number>, curve: Curve) =>
    line<number>(
      (_, i) => x(curve.x[i]),
      (value) => y(value),
    )(Array.from(values)) ?? "";
  const bandPath = (curve: Curve) =>
    area<number>(
      (_, i) => x(curve.x[i]),
      (_, i) => y(curve.low![i]),
      (_, i) => y(curve.high![i]),
    )(Array.from(curve.y)) ?? "";
  const nearest = (event: PointerEvent) => {
    const pointerX = event.clientX - (event.currentTarget as Element).getBoundingClientRect().left;
    const distances = Array.from(curves[0].x, (value) => Math.abs(x(value) - pointerX));
    return distances.indexOf(Math.min(...distances));
  };
  const colours = LINES[scheme.value];
  return (
    <svg
      class="plot"
      width={width}
      height={height}
      viewBox={`0 0 ${width} ${height}`}
      role="img"
      aria-label={props.label}
      onPointerMove={(event) => props.onHover(nearest(event))}
      onPointerLeave={() => props.onHover(null)}
      onClick={() => props.onAt?.(cursor)}
    >
      <rect class="plot-ground" x={left} y={0} width={Math.max(0, width - left - 14)} height={bottom} />
      {yTicks.map((value) => (
        <g key={`y${value}`}>
          <line class="gridline" x1={left} x2={width - 14} y1={y(value)} y2={y(value)} />
          <text class="tick" x={left - 6} y={y(value)} text-anchor="end" dominant-baseline="central">
            {tick(value)}
          </text>
        </g>
      ))}
      {x
        .ticks(Math.max(2, Math.floor(width / 90)))
        .filter(Number.isInteger)
        .map((value) => (
          <text key={`x${value}`} class="tick" x={x(value)} y={bottom + size + 6} text-anchor="middle">
            {value}
          </text>
        ))}
      <text class="tick axis" x={(left + width - 14) / 2} y={height - 4} text-anchor="middle">
        {props.xTitle}
      </text>
      <text class="tick axis" transform={`translate(${size} ${(10 + bottom) / 2}) rotate(-90)`} text-anchor="middle">
        {props.yTitle}
      </text>
      {curves.map(
        (curve, i) =>
          curve.low && <path key={`b${i}`} class="band" d={bandPath(curve)} fill={colours[i % colours.length]} />,
      )}
      {curves.map((curve, i) => (
        <path
          key={i}
          class={curve.dashed ? "curve dashed" : "curve"}
          d={linePath(curve.y, curve)}
          stroke={colours[i % colours.length]}
        />
      ))}
      {curves.length > 1 &&
        curves.map((curve, i) => (
          <text
            key={`n${i}`}
            class="curve-name"
            x={names[i].end}
            y={size + names[i].row * (size + 6)}
            text-anchor="end"
            fill={colours[i % colours.length]}
          >
            {curve.name}
          </text>
        ))}
      {cursor !== null && (
        <g>
          <line class="cursor" x1={x(curves[0].x[cursor])} x2={x(curves[0].x[cursor])} y1={top} y2={bottom} />
          {curves.map(
            (curve, i) =>
              cursor < curve.y.length && (
                <circle
                  key={i}
                  class="dot"
                  cx={x(curve.x[cursor])}
                  cy={y(curve.y[cursor])}
                  r={5}
                  fill={colours[i % colours.length]}
                />
              ),
          )}
        </g>
      )}
    </svg>
  );
}
