// Weights as arcs between two lines of words: keys above, queries below.
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

const HEIGHT = 190; // between the two lines
const MOST = 400; // arcs
const LEAST = 0.02; // what is thinner than this cannot be seen

type Side = "row" | "col";
type Meant = { row?: number; col?: number }; // a word, or both ends of an arc

export function Arcs(props: {
  shown: Shown;
  read: (row: number, col: number) => string;
  pin: Cell | null;
  onPin: (cell: Cell | null) => void;
  label: string;
  testid: string;
}) {
  const { grid } = props.shown;
  const [at, setAt] = useState<Meant | null>(null);
  const size = labelSize(presenter.value);
  const line = size * 2;
  const { above, below, width } = placeWords(props.shown, size);
  const meant: Meant | null = at ?? (props.pin && { row: props.pin[0], col: props.pin[1] });
  const cell = meant && strongest(grid, meant);
  const common = {
    meant,
    testid: props.testid,
    onMean: setAt,
    onPin: (one: Meant) => props.onPin(strongest(grid, one)),
  };
  return (
    <div class="arcs" data-testid={props.testid} onKeyDown={(event) => event.key === "Escape" && props.onPin(null)}>
      <div class="scroll" tabIndex={0} role="group" aria-label={props.label}>
        <svg width={width} height={HEIGHT + 2 * line}>
          <Words labels={above} y={line - size * 0.7} side="col" {...common} />
          {layArcs(grid, above, below, line, line + HEIGHT, LEAST, MOST).map((arc) => (
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

/** The places of the words; both lines are as wide as the wider one. */
function placeWords(shown: Shown, size: number): { above: Label[]; below: Label[]; width: number } {
  const place = (texts: string[]) =>
    lineUp(texts.map(shownPiece), (text) => textWidth(text, size), runsFromRight(texts));
  const [keys, keysWidth] = place(shown.cols.map((one) => one.text));
  const [queries, queriesWidth] = place(shown.rows.map((one) => one.text));
  const width = Math.max(keysWidth, queriesWidth);
  return { above: spread(keys, keysWidth, width), below: spread(queries, queriesWidth, width), width };
}

/** The cell that is meant; of a word, the one with its largest weight. */
function strongest(grid: Grid, { row, col }: Meant): Cell {
  const rows = row === undefined ? range(grid.rows) : [row];
  const cols = col === undefined ? range(grid.cols) : [col];
  const cells = rows.flatMap((i) => cols.map((j): Cell => [i, j]));
  const weight = ([i, j]: Cell) => grid.values[i * grid.cols + j];
  return cells.reduce((best, one) => (weight(one) > weight(best) ? one : best));
}

interface Common {
  meant: Meant | null;
  testid: string;
  onMean: (meant: Meant | null) => void;
  onPin: (meant: Meant) => void;
}

function Words(props: Common & { labels: Label[]; y: number; side: Side }) {
  const { side, meant } = props;
  return (
    <>
      {props.labels.map((label, i) => {
        const one: Meant = { [side]: i };
        return (
          <text
            key={i}
            class={meant?.[side] === i ? "axis-label at" : "axis-label"}
            x={label.x}
            y={props.y}
            text-anchor="middle"
            role="button"
            tabIndex={0}
            data-testid={`${props.testid}-${side}-word`}
            onPointerEnter={() => props.onMean(one)}
            onPointerLeave={() => props.onMean(null)}
            onFocus={() => props.onMean(one)}
            onBlur={() => props.onMean(null)}
            onClick={() => props.onPin(one)}
            onKeyDown={(event) => event.key === "Enter" && props.onPin(one)}>
            {label.text}
          </text>
        );
      })}
    </>
  );
}

function ArcPath(props: Common & { arc: Arc }) {
  const { arc, meant } = props;
  const one = { row: arc.row, col: arc.column };
  const bright = !meant || ((meant.row ?? one.row) === one.row && (meant.col ?? one.col) === one.col);
  return (
    <path
      class="arc"
      d={arc.path}
      stroke={LINES[scheme.value][0]}
      stroke-width={1 + 6 * arc.weight}
      stroke-opacity={bright ? 0.15 + 0.85 * arc.weight : 0.02 + 0.08 * arc.weight}
      data-weight={arc.weight}
      data-testid={`${props.testid}-arc`}
      onPointerEnter={() => props.onMean(one)}
      onPointerLeave={() => props.onMean(null)}
      onClick={() => props.onPin(one)}
    />
  );
}
