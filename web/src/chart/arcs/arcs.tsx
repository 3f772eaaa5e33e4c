// Attention weights as arcs between two lines of words: keys above, queries below.
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import type { RefObject } from "preact";
import { range, type Grid } from "../../maths/grid";
import type { Span } from "../../maths/words";
import { presenter } from "../../state/preferences";
import type { Shown } from "../../state/selection";
import { runsFromRight } from "../../text/direction";
import { shownPiece } from "../../text/pieces";
import { LINES, scheme } from "../colours";
import type { Cell } from "../matrix/matrix";
import { labelSize, shortened, textWidth } from "../text_size";
import { layArcs, lineUp, spread, type Arc, type Label } from "./layout";
import "../axes.css";
import "./arcs.css";

const HEIGHT = 190; // pixels between the two lines
const SIZES = [22, 19, 17, 15, 14, 13]; // of the words, in pixels: the largest that fits
const WORD_DELAY = 170; // milliseconds from one written word to the next
const MAX_DRAWN = 30; // words that appear one by one; all later ones appear together
const MAX_ARCS = 400;
const MIN_WEIGHT = 0.02; // thinner arcs are invisible

const AXIS_ROOM = 90; // pixels beside the words that the names of the lines need
const MAX_WORD = 9; // widths of a letter: longer words are shortened

type Side = "row" | "col";
type Target = { row?: number; col?: number }; // a word, or both ends of an arc

export function Arcs(props: {
  shown: Shown;
  read: (row: number, col: number) => string;
  pin: Cell | null;
  onPin: (cell: Cell | null) => void;
  label: string;
  axes: { above: string; below: string }; // what the two lines are
  drawn: string; // what is shown: when it changes, the arcs draw themselves, word by word
  testid: string;
}) {
  const { grid } = props.shown;
  const [at, setAt] = useState<Target | null>(null);
  const frame = useRef<HTMLDivElement>(null);
  const available = useWidth(frame);
  const { above, below, width, size } = fitWords(props.shown, available);
  const line = size * 2;
  const beside = (available - width) / 2 > AXIS_ROOM;
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
      <div class="scroll" tabIndex={0} role="group" aria-label={props.label} ref={frame}>
        {beside && <AxisNames {...props.axes} top={line - size * 0.7} bottom={line + HEIGHT + size * 1.1} />}
        <svg key={props.drawn} class="drawing" width={width} height={HEIGHT + 2 * line} style={{ "--size": `${size}px` }}>
          <Words labels={above} spans={props.shown.cols} y={line - size * 0.7} side="col" {...common} />
          {layArcs(grid, above, below, line, line + HEIGHT, MIN_WEIGHT, MAX_ARCS).map((arc) => (
            <ArcPath key={`${arc.row}.${arc.column}`} arc={arc} {...common} />
          ))}
          <Words labels={below} spans={props.shown.rows} y={line + HEIGHT + size * 1.1} side="row" {...common} />
        </svg>
      </div>
      <p class="readout" aria-live="polite" data-testid={`${props.testid}-readout`}>
        {cell ? props.read(cell[0], cell[1]) : HINT}
      </p>
    </div>
  );
}

/** The names of the two lines, at the left edge of a wide frame. */
function AxisNames(props: { above: string; below: string; top: number; bottom: number }) {
  return (
    <>
      <span class="arc-axis" style={{ top: `${props.top}px` }}>
        {props.above}
      </span>
      <span class="arc-axis" style={{ top: `${props.bottom}px` }}>
        {props.below}
      </span>
    </>
  );
}

const HINT = matchMedia("(hover: none)").matches
  ? "Tap a word to see where it attends."
  : "Point at a word to see where it attends; click to keep it.";

interface PlacedWords {
  above: Label[];
  below: Label[];
  width: number;
  size: number;
}

/** The words in the largest size that fits; lines that fit in no size are wider than the frame and scroll. */
function fitWords(shown: Shown, available: number): PlacedWords {
  const sizes = presenter.value ? [labelSize(true) + 6, labelSize(true)] : SIZES;
  const placed = sizes.map((size) => placeWords(shown, size));
  return placed.find(({ width }) => width <= available) ?? placed[placed.length - 1];
}

/** The positions of the words; both lines get the width of the wider one. */
function placeWords(shown: Shown, size: number): PlacedWords {
  const layOut = (texts: string[]) =>
    lineUp(
      texts.map((text) => shortened(shownPiece(text), MAX_WORD * size, size)),
      (text) => textWidth(text, size),
      runsFromRight(texts),
      size > 16 ? size : 0.6 * size,
    );
  const [keys, keysWidth] = layOut(shown.cols.map((span) => span.text));
  const [queries, queriesWidth] = layOut(shown.rows.map((span) => span.text));
  const width = Math.max(keysWidth, queriesWidth);
  return { above: spread(keys, keysWidth, width), below: spread(queries, queriesWidth, width), width, size };
}

/** The cell of a target; for a word, the cell with its largest weight. */
function strongest(grid: Grid, { row, col }: Target): Cell {
  const rows = row === undefined ? range(grid.rows) : [row];
  const cols = col === undefined ? range(grid.cols) : [col];
  const cells = rows.flatMap((i) => cols.map((j): Cell => [i, j]));
  const weight = ([i, j]: Cell) => grid.values[i * grid.cols + j];
  return cells.reduce((best, cell) => (weight(cell) > weight(best) ? cell : best));
}

const SPECIAL = "A token that is no word. Attention often rests on the end of the sentence when a word has no counterpart.";

/** A written word and its arcs appear after those before it. */
function delayOf(row: number) {
  return { "--delay": `${Math.min(row, MAX_DRAWN) * WORD_DELAY}ms` };
}

interface Common {
  target: Target | null;
  testid: string;
  onHover: (target: Target | null) => void;
  onPin: (target: Target) => void;
}

function Words(props: Common & { labels: Label[]; spans: Span[]; y: number; side: Side }) {
  const { side, target } = props;
  return (
    <>
      {props.labels.map((label, i) => {
        const word: Target = { [side]: i };
        const written = (
          <text
            key={i}
            class={`axis-label ${side}-word ${target?.[side] === i ? "at" : ""} ${props.spans[i].special ? "special" : ""}`}
            style={side === "row" ? delayOf(i) : undefined}
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
        const full = props.spans[i].special ? SPECIAL : props.spans[i].text;
        if (!props.spans[i].special && label.text === shownPiece(full)) return written;
        return (
          <g key={i}>
            <title>{full}</title>
            {written}
          </g>
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
      pathLength={1}
      style={delayOf(arc.row)}
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

/** The width of an element, which changes with the window. */
function useWidth(frame: RefObject<HTMLElement | null>): number {
  const [width, setWidth] = useState(0);
  useLayoutEffect(() => {
    const look = () => setWidth(frame.current!.clientWidth - 8);
    const watch = new ResizeObserver(look);
    watch.observe(frame.current!);
    look();
    return () => watch.disconnect();
  }, []);
  return width;
}
