// A matrix of numbers to look at: cells on a canvas, one pixel a cell; labels, hatches and marks in SVG above it.
//
// The pointer or the arrow keys walk over the cells, a click or Enter pins one, Esc lets it go, and a line under the matrix
// reads it out. Small matrices also are a real table, for those who listen to the page.
import { useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { presenter } from "../../state/preferences";
import { largest, paint } from "../canvas";
import { scheme, type Scale } from "../colours";
import { layout, type Layout } from "./layout";
import { Marks } from "./marks";
import "../axes.css";
import "./matrix.css";

export type Cell = readonly [row: number, col: number];

export interface MatrixProps {
  values: ArrayLike<number>; // row by row
  rows: readonly string[]; // their labels
  cols: readonly string[];
  rowTitle?: string;
  colTitle?: string;
  scale?: Scale;
  most?: number; // the end of the colours; weights: 1
  mask?: ArrayLike<number | boolean> | null; // 0 or false: barred, and drawn hatched
  label: string; // what it is, for those who listen
  read: (row: number, col: number) => string; // what the line below says of a cell
  pin?: Cell | null;
  onPin?: (cell: Cell | null) => void;
  onHover?: (cell: Cell | null) => void;
  maxCell?: number;
  stretch?: boolean; // cells may be wider than high
  digits?: number; // of the numbers in the cells, where there is room for them
  testid: string;
}

const LARGEST_TABLE = 400; // cells

export function Matrix(props: MatrixProps) {
  const frame = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(0);
  const [at, setAt] = useState<Cell | null>(null);
  useLayoutEffect(() => {
    const measure = () => setWidth(frame.current!.clientWidth);
    const watch = new ResizeObserver(measure);
    watch.observe(frame.current!);
    measure();
    return () => watch.disconnect();
  }, []);
  const most = props.most ?? (props.scale === "signed" ? largest(props.values) : 1);
  const large = presenter.value;
  const plan = useMemo(
    () => layout(props, width, large), // measures every label, which is too slow for each move of the pointer
    [props.rows, props.cols, props.rowTitle, props.colTitle, props.maxCell, props.stretch, width, large],
  );
  const pin = props.pin ?? null;
  const fits = (cell: Cell | null) => cell !== null && cell[0] < props.rows.length && cell[1] < props.cols.length;
  const walk = (cell: Cell | null) => {
    setAt(cell);
    props.onHover?.(cell);
  };
  const shown = fits(at) ? at : fits(pin) ? pin : null;
  return (
    <div class="matrix" ref={frame} data-testid={props.testid}>
      <div
        class="matrix-sheet"
        role="group"
        tabIndex={0}
        aria-label={`${props.label}. Arrow keys read the cells, Enter pins one.`}
        onKeyDown={(event) => steer(event, props, shown ?? [0, 0], walk)}
        onBlur={() => walk(null)}
        style={{ width: `${plan.width}px`, height: `${plan.height}px` }}
      >
        <Cells props={props} plan={plan} most={most} onWalk={walk} />
        <Marks props={props} plan={plan} most={most} at={fits(at) ? at : null} pin={fits(pin) ? pin : null} />
      </div>
      <p class="readout" aria-live="polite" data-testid={`${props.testid}-readout`}>
        {shown ? props.read(shown[0], shown[1]) : "Point at a cell, or use the arrow keys."}
      </p>
      {props.values.length <= LARGEST_TABLE && <HiddenTable {...props} />}
    </div>
  );
}

function steer(event: KeyboardEvent, props: MatrixProps, [row, col]: Cell, walk: (cell: Cell | null) => void): void {
  const moves: Record<string, Cell> = {
    ArrowUp: [row - 1, col],
    ArrowDown: [row + 1, col],
    ArrowLeft: [row, col - 1],
    ArrowRight: [row, col + 1],
    Home: [row, 0],
    End: [row, props.cols.length - 1],
  };
  if (event.key in moves) {
    const clamp = (place: number, length: number) => Math.min(length - 1, Math.max(0, place));
    walk([clamp(moves[event.key][0], props.rows.length), clamp(moves[event.key][1], props.cols.length)]);
  } else if (event.key === "Enter" || event.key === " ") props.onPin?.([row, col]);
  else if (event.key === "Escape") {
    walk(null);
    props.onPin?.(null);
  } else return;
  event.preventDefault();
  event.stopPropagation();
}

function Cells(given: { props: MatrixProps; plan: Layout; most: number; onWalk: (cell: Cell | null) => void }) {
  const { props, plan, most } = given;
  const canvas = useRef<HTMLCanvasElement>(null);
  const on = scheme.value;
  // Before the browser shows it, so that the cells never have the colours of another scheme than their numbers.
  useLayoutEffect(
    () => paint(canvas.current!, props.values, props.cols.length, props.scale ?? "weights", most, on),
    [props.values, props.cols.length, props.scale, most, on],
  );
  const cellAt = (event: PointerEvent | MouseEvent): Cell => {
    const box = canvas.current!.getBoundingClientRect();
    const place = (part: number, length: number) => Math.min(length - 1, Math.max(0, Math.floor(part * length)));
    return [
      place((event.clientY - box.top) / box.height, props.rows.length),
      place((event.clientX - box.left) / box.width, props.cols.length),
    ];
  };
  return (
    <canvas
      ref={canvas}
      role="img"
      aria-label={props.label}
      style={{
        left: `${plan.left}px`,
        top: `${plan.top}px`,
        width: `${plan.cellsWidth}px`,
        height: `${plan.cellsHeight}px`,
      }}
      data-testid={`${props.testid}-canvas`}
      onPointerMove={(event) => given.onWalk(cellAt(event))}
      onPointerLeave={() => given.onWalk(null)}
      onClick={(event) => {
        const cell = cellAt(event);
        const same = props.pin && props.pin[0] === cell[0] && props.pin[1] === cell[1];
        props.onPin?.(same ? null : cell);
      }}
    />
  );
}

function HiddenTable(props: MatrixProps) {
  const cols = props.cols.length;
  return (
    <div class="listen">
      <table data-testid={`${props.testid}-table`}>
        <caption>{props.label}</caption>
        <thead>
          <tr>
            <td />
            {props.cols.map((text, j) => (
              <th key={j} scope="col">
                {text}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {props.rows.map((text, i) => (
            <tr key={i}>
              <th scope="row">{text}</th>
              {props.cols.map((_, j) => (
                <td key={j} data-value={props.values[i * cols + j]}>
                  {props.mask && !props.mask[i * cols + j] ? "masked" : props.values[i * cols + j].toFixed(3)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
