// A matrix as a heat map: cells on a canvas, one pixel per cell; labels, hatching and marks in SVG on top.
//
// The pointer or the arrow keys move over the cells, a click or Enter pins a cell, Esc unpins it, and a line below the
// matrix reads out the current cell. For screen readers, small matrices are also a table.
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
  values: ArrayLike<number>; // in row-major order
  rows: readonly string[]; // labels
  cols: readonly string[];
  rowTitle?: string;
  colTitle?: string;
  scale?: Scale;
  most?: number; // the end of the colour scale; for weights 1
  mask?: ArrayLike<number | boolean> | null; // 0 or false: masked, drawn hatched
  label: string; // for screen readers
  read: (row: number, col: number) => string; // the read-out of a cell
  pin?: Cell | null;
  onPin?: (cell: Cell | null) => void;
  onHover?: (cell: Cell | null) => void;
  maxCell?: number;
  stretch?: boolean; // cells may be wider than they are high
  minRow?: number; // the least height of a row, if all rows fit on a screen with it
  digits?: number; // decimals of the numbers in the cells, if they fit
  testid: string;
}

const MAX_TABLE_CELLS = 400;

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
    () => layout(props, width, large), // measures all labels, which is too slow for every pointer move
    [props.rows, props.cols, props.rowTitle, props.colTitle, props.maxCell, props.stretch, props.minRow, width, large],
  );
  const pin = props.pin ?? null;
  const fits = (cell: Cell | null) => cell !== null && cell[0] < props.rows.length && cell[1] < props.cols.length;
  const moveTo = (cell: Cell | null) => {
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
        aria-label={`${props.label}. Use the arrow keys to read the cells and Enter to pin a cell.`}
        onKeyDown={(event) => handleKey(event, props, shown ?? [0, 0], moveTo)}
        onBlur={() => moveTo(null)}
        style={{ width: `${plan.width}px`, height: `${plan.height}px` }}
      >
        <Cells props={props} plan={plan} most={most} onMove={moveTo} />
        <Marks props={props} plan={plan} most={most} at={fits(at) ? at : null} pin={fits(pin) ? pin : null} />
      </div>
      <p class="readout" aria-live="polite" data-testid={`${props.testid}-readout`}>
        {shown ? props.read(shown[0], shown[1]) : "Point at a cell, or use the arrow keys."}
      </p>
      {props.values.length <= MAX_TABLE_CELLS && <HiddenTable {...props} />}
    </div>
  );
}

function handleKey(event: KeyboardEvent, props: MatrixProps, [row, col]: Cell, moveTo: (cell: Cell | null) => void): void {
  const moves: Record<string, Cell> = {
    ArrowUp: [row - 1, col],
    ArrowDown: [row + 1, col],
    ArrowLeft: [row, col - 1],
    ArrowRight: [row, col + 1],
    Home: [row, 0],
    End: [row, props.cols.length - 1],
  };
  if (event.key in moves) {
    const clamp = (index: number, length: number) => Math.min(length - 1, Math.max(0, index));
    moveTo([clamp(moves[event.key][0], props.rows.length), clamp(moves[event.key][1], props.cols.length)]);
  } else if (event.key === "Enter" || event.key === " ") props.onPin?.([row, col]);
  else if (event.key === "Escape") {
    moveTo(null);
    props.onPin?.(null);
  } else return;
  event.preventDefault();
  event.stopPropagation();
}

function Cells(outer: { props: MatrixProps; plan: Layout; most: number; onMove: (cell: Cell | null) => void }) {
  const { props, plan, most } = outer;
  const canvas = useRef<HTMLCanvasElement>(null);
  const on = scheme.value;
  // A layout effect, so that cells and numbers always switch their colour scheme together.
  useLayoutEffect(
    () => paint(canvas.current!, props.values, props.cols.length, props.scale ?? "weights", most, on),
    [props.values, props.cols.length, props.scale, most, on],
  );
  const cellAt = (event: PointerEvent | MouseEvent): Cell => {
    const box = canvas.current!.getBoundingClientRect();
    const indexAt = (part: number, length: number) => Math.min(length - 1, Math.max(0, Math.floor(part * length)));
    return [
      indexAt((event.clientY - box.top) / box.height, props.rows.length),
      indexAt((event.clientX - box.left) / box.width, props.cols.length),
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
      onPointerMove={(event) => outer.onMove(cellAt(event))}
      onPointerLeave={() => outer.onMove(null)}
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
