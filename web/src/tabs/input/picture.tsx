// An image or the frames of a video, with weights over their cells. The pointer or the arrow keys select a cell.
import { useEffect, useRef } from "preact/hooks";
import { weightColour, scheme, type Scheme } from "../../chart/colours";
import { range } from "../../maths/grid";
import type { InputTrace, Place } from "../../state/input_trace";

const PICTURE_SHARE = 0.4; // of the picture below the weights
const PALE = { light: [170, 255], dark: [0, 130] }; // black and white of that picture, so that it does not hide weights

export interface Shade {
  keys: Place[];
  weights: ArrayLike<number>;
  most: number; // the weight with the strongest colour
}

/** Paints a frame, one canvas pixel per pixel; with a shade, grey below the colours of the weights. */
export function paintFrame(canvas: HTMLCanvasElement, trace: InputTrace, frames: number[], shade: Shade | null, on: Scheme): void {
  const { rows, cols, channels, values } = trace;
  canvas.width = cols * frames.length;
  canvas.height = rows;
  const pen = canvas.getContext("2d")!;
  const [black, white] = PALE[on];
  frames.forEach((frame, position) => {
    const pixels = new ImageData(cols, rows);
    const shares = shade && sharesOf(trace, frame, shade);
    for (let i = 0; i < rows * cols; i++) {
      const start = (frame * rows * cols + i) * channels;
      const [r, g, b] = [0, 1, 2].map((c) => values[start + (channels > 2 ? c : 0)]);
      if (shares) {
        const grey = black + ((white - black) * (r + g + b)) / (3 * 255);
        const colour = weightColour(shares[i], on).map((c) => c * (1 - PICTURE_SHARE) + grey * PICTURE_SHARE);
        pixels.data.set([...colour, 255], 4 * i);
      } else pixels.data.set([r, g, b, 255], 4 * i);
    }
    pen.putImageData(pixels, position * cols, 0);
  });
}

/** The weight at each pixel of a frame as a share of the largest one. */
function sharesOf({ rows, cols }: InputTrace, frame: number, { keys, weights, most }: Shade): Float32Array {
  const shares = new Float32Array(rows * cols);
  keys.forEach(({ box }, i) => {
    if (box?.frame !== frame) return;
    for (let y = Math.round(box.top); y < Math.round(box.top + box.height); y++) {
      shares.fill(weights[i] / most, y * cols + Math.round(box.left), y * cols + Math.round(box.left + box.width));
    }
  });
  return shares;
}

/** The index of the place that contains a point of a frame; null if none does. */
function placeAt(places: Place[], frame: number, x: number, y: number): number | null {
  const index = places.findIndex(
    ({ box }) =>
      box?.frame === frame && x >= box.left && x < box.left + box.width && y >= box.top && y < box.top + box.height,
  );
  return index < 0 ? null : index;
}

/** Where an arrow key leads from a place; null if it leads nowhere. */
function neighbour(places: Place[], from: number | null, key: string): number | null {
  const first = places.findIndex(({ box }) => box);
  const here = from === null || !places[from].box ? first : from;
  if (from !== here) return here < 0 ? null : here;
  const { frame, left, top, width, height } = places[here].box!;
  if (key === "ArrowLeft" || key === "ArrowRight") {
    const next = here + (key === "ArrowLeft" ? -1 : 1);
    return places[next]?.box ? next : null;
  }
  return placeAt(places, frame, left + width / 2, top + height / 2 + (key === "ArrowUp" ? -height : height));
}

export function Picture(props: {
  trace: InputTrace;
  shade: Shade | null;
  places: Place[]; // that the pointer selects
  pointed: number | null;
  marked: Place | null; // outlined: the query
  onPoint: (place: number | null) => void;
  onPick?: (place: number | null) => void;
  label: string;
  testid: string;
}) {
  const { trace, places, pointed } = props;
  const handleKey = (event: KeyboardEvent) => {
    if (event.key.startsWith("Arrow")) props.onPoint(neighbour(places, pointed, event.key) ?? pointed);
    else if (event.key === "Enter" || event.key === " ") props.onPick?.(pointed);
    else if (event.key === "Escape") {
      props.onPoint(null);
      props.onPick?.(null);
    } else return;
    event.preventDefault();
    event.stopPropagation();
  };
  const keys = props.onPick ? "Use the arrow keys to move and Enter to keep a query." : "Use the arrow keys to read the weights.";
  return (
    <div
      class={trace.frames > 1 ? "picture video" : "picture"}
      style={{ "--frames": trace.frames }}
      role="group"
      tabIndex={0}
      aria-label={`${props.label}. ${keys}`}
      data-testid={props.testid}
      onKeyDown={handleKey}
      onBlur={() => props.onPoint(null)}
    >
      {range(trace.frames).map((frame) => (
        <Frame key={frame} {...props} frame={frame} />
      ))}
    </div>
  );
}

type FrameProps = Parameters<typeof Picture>[0] & { frame: number };

function Frame(props: FrameProps) {
  const { trace, frame, shade, places, pointed, marked } = props;
  const canvas = useRef<HTMLCanvasElement>(null);
  const on = scheme.value;
  useEffect(() => paintFrame(canvas.current!, trace, [frame], shade, on), [trace, frame, shade, on]);
  const at = (event: PointerEvent | MouseEvent) => {
    const box = canvas.current!.getBoundingClientRect();
    const inside = (share: number, length: number) => Math.min(length - 1e-6, Math.max(0, share * length));
    return placeAt(
      places,
      frame,
      inside((event.clientX - box.left) / box.width, trace.cols),
      inside((event.clientY - box.top) / box.height, trace.rows),
    );
  };
  const pointedPlace = pointed === null ? null : places[pointed];
  return (
    <div class="frame" style={{ aspectRatio: `${trace.cols} / ${trace.rows}` }}>
      <canvas
        ref={canvas}
        role="img"
        aria-label={trace.frames > 1 ? `${props.label}, frame ${frame}` : props.label}
        onPointerMove={(event) => props.onPoint(at(event))}
        onPointerLeave={() => props.onPoint(null)}
        onClick={(event) => props.onPick?.(at(event))}
      />
      <svg viewBox={`0 0 ${trace.cols} ${trace.rows}`} preserveAspectRatio="none" aria-hidden="true">
        <path class="patch-lines" d={gridLines(places, frame)} vector-effect="non-scaling-stroke" />
        {marked?.box?.frame === frame && <Outline place={marked} name="query-mark" />}
        {pointedPlace?.box?.frame === frame && <Outline place={pointedPlace} name="pointed-mark" />}
      </svg>
    </div>
  );
}

function Outline(props: { place: Place; name: string }) {
  const { left, top, width, height } = props.place.box!;
  return (
    <rect class={props.name} x={left} y={top} width={width} height={height} vector-effect="non-scaling-stroke" />
  );
}

/** The left and upper edges of all places of a frame. */
function gridLines(places: Place[], frame: number): string {
  return places
    .filter(({ box }) => box?.frame === frame)
    .map(({ box }) => `M${box!.left} ${box!.top + box!.height}V${box!.top}H${box!.left + box!.width}`)
    .join("");
}
