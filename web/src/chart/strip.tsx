// Numbers as coloured cells without axes: a vector over several lines, or named rows. Light enough for many on a page.
import { useEffect, useRef, useState } from "preact/hooks";
import { shownPiece } from "../text/pieces";
import { largest, paint } from "./canvas";
import { scheme, type Scale } from "./colours";
import "./strip.css";

/** The pointer or the arrow keys read out a cell; a click or Enter opens it. */
export function Strip(props: {
  values: ArrayLike<number>;
  cols: number;
  names: readonly string[] | null; // of the rows
  scale: Scale;
  label: string;
  read: (at: number) => string;
  opened: number | null;
  onOpen: (at: number | null) => void;
  testid: string;
}) {
  const { values, cols, opened } = props;
  const canvas = useRef<HTMLCanvasElement>(null);
  const [at, setAt] = useState<number | null>(null);
  const rows = Math.ceil(values.length / cols);
  const on = scheme.value;
  useEffect(() => {
    const filled = Float32Array.from({ length: rows * cols }, (_, i) => values[i] || 0); // masked numbers (NaN) become 0
    paint(canvas.current!, filled, cols, props.scale, props.scale === "weights" ? 1 : largest(filled), on);
  }, [values, cols, props.scale, on]);
  const cellAt = (event: MouseEvent): number | null => {
    const box = canvas.current!.getBoundingClientRect();
    const indexAt = (share: number, length: number) => Math.min(length - 1, Math.max(0, Math.floor(share * length)));
    const index =
      indexAt((event.clientY - box.top) / box.height, rows) * cols +
      indexAt((event.clientX - box.left) / box.width, cols);
    return index < values.length ? index : null;
  };
  const handleKey = (event: KeyboardEvent) => {
    const here = at ?? opened ?? 0;
    const moves: Record<string, number> = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -cols, ArrowDown: cols };
    if (event.key in moves) setAt(Math.min(values.length - 1, Math.max(0, here + moves[event.key])));
    else if (event.key === "Enter" || event.key === " ") props.onOpen(here);
    else if (event.key === "Escape") props.onOpen(null);
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  const read = at ?? opened;
  return (
    <div class="strip-box" data-testid={props.testid}>
      <div
        class="strip"
        role="group"
        tabIndex={0}
        aria-label={`${props.label}. Use the arrow keys to read the numbers and Enter to open one.`}
        onKeyDown={handleKey}
        onBlur={() => setAt(null)}>
        {props.names && (
          <ul class="strip-names" aria-hidden="true">
            {props.names.map((name, i) => (
              <li key={i}>
                <bdi>{shownPiece(name)}</bdi>
              </li>
            ))}
          </ul>
        )}
        <div class="strip-cells" style={{ "--rows": rows, "--cols": cols }}>
          <canvas
            ref={canvas}
            role="img"
            aria-label={props.label}
            onPointerMove={(event) => setAt(cellAt(event))}
            onPointerLeave={() => setAt(null)}
            onClick={(event) => props.onOpen(cellAt(event) === opened ? null : cellAt(event))}
          />
          {opened !== null && <Mark at={opened} rows={rows} cols={cols} kind="pinned" />}
          {at !== null && <Mark at={at} rows={rows} cols={cols} kind="pointed" />}
        </div>
      </div>
      <p class="readout" aria-live="polite">
        {read === null ? " " : props.read(read)}
      </p>
    </div>
  );
}

function Mark(props: { at: number; rows: number; cols: number; kind: string }) {
  const { at, rows, cols } = props;
  const box = {
    left: `${(100 * (at % cols)) / cols}%`,
    top: `${(100 * Math.floor(at / cols)) / rows}%`,
    width: `${100 / cols}%`,
    height: `${100 / rows}%`,
  };
  return <span class={`strip-mark ${props.kind}`} style={box} />;
}
