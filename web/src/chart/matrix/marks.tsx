// The SVG layer on top of a matrix: labels, hatching, numbers, cursor, pin and colour legend.
import { useId } from "preact/hooks";
import { fixed } from "../../text/numbers";
import { colourOf, css, inkOn, scheme, type Scale } from "../colours";
import type { Layout } from "./layout";
import type { Cell, MatrixProps } from "./matrix";

export function Marks(outer: { props: MatrixProps; plan: Layout; most: number; at: Cell | null; pin: Cell | null }) {
  const { props, plan, at, pin } = outer;
  const id = useId();
  const right = plan.left + plan.cellsWidth;
  const bottom = plan.top + plan.cellsHeight;
  return (
    <svg
      class="matrix-marks"
      width={plan.width}
      height={plan.height}
      viewBox={`0 0 ${plan.width} ${plan.height}`}
      aria-hidden="true"
    >
      <defs>
        <pattern id={`${id}-hatch`} width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
          <rect class="hatch-ground" width="6" height="6" />
          <rect class="hatch-line" width="2" height="6" />
        </pattern>
      </defs>
      {props.mask && (
        <path
          d={maskedPath(props.mask, props.cols.length, plan)}
          fill={`url(#${id}-hatch)`}
          data-testid={`${props.testid}-masked`}
        />
      )}
      <rect class="matrix-edge" x={plan.left} y={plan.top} width={plan.cellsWidth} height={plan.cellsHeight} />
      {plan.rowTitle && (
        <text class="axis-title" transform={`translate(${plan.rowTitle.x} ${plan.rowTitle.y}) rotate(-90)`}>
          {props.rowTitle}
        </text>
      )}
      {plan.colTitle && (
        <text class="axis-title" x={plan.colTitle.x} y={plan.colTitle.y}>
          {props.colTitle}
        </text>
      )}
      {plan.rowLabels.map(({ index, text, y }) => (
        <text
          key={`r${index}`}
          class={at?.[0] === index ? "axis-label at" : "axis-label"}
          x={plan.left - 6}
          y={y}
          text-anchor="end"
          dominant-baseline="central"
        >
          {text}
        </text>
      ))}
      {plan.colLabels.map(({ index, text, x }) => (
        <text
          key={`c${index}`}
          class={at?.[1] === index ? "axis-label at" : "axis-label"}
          {...(plan.rotation
            ? {
                transform: `translate(${x} ${plan.top - 6}) rotate(${-plan.rotation})`,
                "text-anchor": "start",
                "dominant-baseline": plan.rotation === 90 ? "central" : "auto",
              }
            : { x, y: plan.top - 7, "text-anchor": "middle" })}
        >
          {text}
        </text>
      ))}
      {plan.numbers && <CellNumbers {...outer} />}
      {at && (
        <rect
          class="at-row"
          x={plan.left}
          y={plan.top + at[0] * plan.cellHeight}
          width={plan.cellsWidth}
          height={plan.cellHeight}
        />
      )}
      {at && (
        <rect
          class="at-row"
          x={plan.left + at[1] * plan.cellWidth}
          y={plan.top}
          width={plan.cellWidth}
          height={plan.cellsHeight}
        />
      )}
      {pin && (
        <rect
          class="pin"
          x={plan.left + pin[1] * plan.cellWidth}
          y={plan.top + pin[0] * plan.cellHeight}
          width={plan.cellWidth}
          height={plan.cellHeight}
          data-testid={`${props.testid}-pin`}
        />
      )}
      <Legend id={id} scale={props.scale ?? "weights"} most={outer.most} right={right} top={bottom + 12} />
    </svg>
  );
}

function CellNumbers({ props, plan, most }: { props: MatrixProps; plan: Layout; most: number }) {
  const cols = props.cols.length;
  return (
    <g class="cell-numbers">
      {Array.from(props.values, (value, i) => {
        if (props.mask && !props.mask[i]) return null;
        const ink = inkOn(colourOf(value, props.scale ?? "weights", most, scheme.value));
        const x = plan.left + ((i % cols) + 0.5) * plan.cellWidth;
        const y = plan.top + (Math.floor(i / cols) + 0.5) * plan.cellHeight;
        return (
          <text key={i} x={x} y={y} fill={ink} text-anchor="middle" dominant-baseline="central">
            {fixed(value, props.digits ?? 2)}
          </text>
        );
      })}
    </g>
  );
}

/** The colour scale with its lowest and highest value. */
function Legend(props: { id: string; scale: Scale; most: number; right: number; top: number }) {
  const low = props.scale === "signed" ? -1 : 0;
  const stops = Array.from({ length: 9 }, (_, i) => low + ((1 - low) * i) / 8);
  const width = 120;
  const left = Math.max(4, props.right - width);
  const number = (value: number) => String(Number(value.toPrecision(3))).replace("-", "−");
  return (
    <g class="legend">
      <linearGradient id={`${props.id}-legend`}>
        {stops.map((stop, i) => (
          <stop
            key={i}
            offset={i / 8}
            stop-color={css(colourOf(stop * props.most, props.scale, props.most, scheme.value))}
          />
        ))}
      </linearGradient>
      <rect x={left} y={props.top} width={width} height={8} rx={2} fill={`url(#${props.id}-legend)`} />
      <text x={left} y={props.top + 20} text-anchor="start">
        {number(low * props.most)}
      </text>
      <text x={left + width} y={props.top + 20} text-anchor="end">
        {number(props.most)}
      </text>
    </g>
  );
}

/** A single path around all masked cells, run by run: even a causal mask of 512 rows is one SVG element. */
function maskedPath(mask: ArrayLike<number | boolean>, cols: number, plan: Layout): string {
  let path = "";
  for (let start = 0; start < mask.length; start++) {
    if (mask[start]) continue;
    let stop = start + 1;
    while (stop % cols !== 0 && !mask[stop]) stop++;
    const x = plan.left + (start % cols) * plan.cellWidth;
    const y = plan.top + Math.floor(start / cols) * plan.cellHeight;
    path += `M${x} ${y}h${(stop - start) * plan.cellWidth}v${plan.cellHeight}h${(start - stop) * plan.cellWidth}z`;
    start = stop - 1;
  }
  return path;
}
