// Attention weights as arcs between two lines of words: keys above, queries below.
import { useState } from "preact/hooks";
import { range, type Grid } from "../../maths/grid";
import { presenter } from "../../state/preferences";
import type { Shown } from "../../state/selection";
import { runsFromRight } from "../../text/direction";
import { shownPiece } from "../../text/pieces";
import { LINES, scheme } from "../colours";
import type { Cell } from "../matrix/matrix";
import { labelSize, textWidth } from "../text_size";
import { layArcs, lineUp, spread, type Arc, type Label } from "./layout";
import "../axes.css";
import "./arcs.css";

const HEIGHT = 190; // pixels between the two lines
const MAX_ARCS = 400;
const MIN_WEIGHT = 0.02; // thinner arcs are invisible

type Side = "row" | "col";
type Target = { row?: number; col?: number }; // a word, or both ends of an arc

export function Arcs(props: {
  shown: Shown;
  read: (row: number, col: number) => string;
  pin: Cell | null;
  onPin: (cell: Cell | null) => void;
  label: string;
  testid: string;
}) {
  const { grid } = props.shown;
  const [at, setAt] = useState<Target | null>(null);
  const size = labelSize(presenter.value);
  const line = size * 2;
  const { above, below, width } = placeWords(props.shown, size);
  const target: Target | null = at ?? (props.pin && { row: props.pin[0], col: props.pin[1] });
  const cell = target && strongest(grid, target);
  const common = {
    target,
    testid: props.testid,
    onHover: setAt,
    onPin: (selected: Target) => props.onPin(strongest(grid, selected)),
  };
  return (
    <div class="arcs" data-testid={props.testid} onKeyDown={(event) => event.key === "Escape" && props.onPin(null)}>
      <div class="scroll" tabIndex={0} role="group" aria-label={props.label}>
        <svg width={width} height={HEIGHT + 2 * line}>
          <Words labels={above} y={line - size * 0.7} side="col" {...common} />
          {layArcs(grid, above, below, line, line + HEIGHT, MIN_WEIGHT, MAX_ARCS).map((arc) => (
            <ArcPath key={`${arc.row}.${arc.column}`} arc={arc} {...common} />
          ))}
          <Words labels={below} y={line + HEIGHT + size * 1.1} side="row" {...common} />
        </svg>
      </div>
      <p class="readout" aria-live="polite" data-testid={`${props.testid}-readout`}>
        {cell ? props.read(cell[0], cell[1]) : "Point at a word or an arc."}
      </p>
    </div>
  );
}

/** The positions of the words; both lines get the width of the wider one. */
function placeWords(shown: Shown, size: number): { above: Label[]; below: Label[]; width: number } {
  const layOut = (texts: string[]) =>
    lineUp(texts.map(shownPiece), (text) => textWidth(text, size), runsFromRight(texts));
  const [keys, keysWidth] = layOut(shown.cols.map((span) => span.text));
  const [queries, queriesWidth] = layOut(shown.rows.map((span) => span.text));
  const width = Math.max(keysWidth, queriesWidth);
  return { above: spread(keys, keysWidth, width), below: spread(queries, queriesWidth, width), width };
}

/** The cell of a target; for a word, the cell with its largest weight. */
function strongest(grid: Grid, { row, col }: Target): Cell {
  const rows = row === undefined ? range(grid.rows) : [row];
  const cols = col === undefined ? range(grid.cols) : [col];
  const cells = rows.flatMap((i) => cols.map((j): Cell => [i, j]));
  const weight = ([i, j]: Cell) => grid.values[i * grid.cols + j];
  return cells.reduce((best, cell) => (weight(cell) > weight(best) ? cell : best));
}

interface Common {
  target: Target | null;
  testid: string;
  onHover: (target: Target | null) => void;
  onPin: (target: Target) => void;
}

function Words(props: Common & { labels: Label[]; y: number; side: Side }) {
  const { side, target } = props;
  return (
    <>
      {props.labels.map((label, i) => {
        const word: Target = { [side]: i };
        return (
          <text
            key={i}
            class={target?.[side] === i ? "axis-label at" : "axis-label"}
            x={label.x}
            y={props.y}
            text-anchor="middle"
            role="button"
            tabIndex={0}
            data-testid={`${props.testid}-${side}-word`}
            onPointerEnter={() => props.onHover(word)}
            onPointerLeave={() => props.onHover(null)}
            onFocus={() => props.onHover(word)}
            onBlur={() => props.onHover(null)}
            onClick={() => props.onPin(word)}
            onKeyDown={(event) => event.key === "Enter" && props.onPin(word)}>
            {label.text}
          </text>
        );
      })}
    </>
  );
}

function ArcPath(props: Common & { arc: Arc }) {
  const { arc, target } = props;
  const ends = { row: arc.row, col: arc.column };
  const bright = !target || ((target.row ?? ends.row) === ends.row && (target.col ?? ends.col) === ends.col);
  return (
    <path
      class="arc"
      d={arc.path}
      stroke={LINES[scheme.value][0]}
      stroke-width={1 + 6 * arc.weight}
      stroke-opacity={bright ? 0.15 + 0.85 * arc.weight : 0.02 + 0.08 * arc.weight}
      data-weight={arc.weight}
      data-testid={`${props.testid}-arc`}
      onPointerEnter={() => props.onHover(ends)}
      onPointerLeave={() => props.onHover(null)}
      onClick={() => props.onPin(ends)}
    />
  );
}
