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

/**
 * Paints frames side by side, one canvas pixel for `step` x `step` pixels; with a shade, grey below the colours of the
 * weights.
 */
export function paintFrames(
  canvas: HTMLCanvasElement,
  trace: InputTrace,
  frames: number[],
  shade: Shade | null,
  on: Scheme,
  step = 1,
): void {
  const [width, height] = [Math.max(1, Math.floor(trace.cols / step)), Math.max(1, Math.floor(trace.rows / step))];
  canvas.width = width * frames.length;
  canvas.height = height;
  const pen = canvas.getContext("2d")!;
  frames.forEach((frame, position) => {
    const pixels = new ImageData(width, height);
    copyFrame(pixels, trace, frame, step);
    if (shade) shadeFrame(pixels, frame, shade, on, step);
    pen.putImageData(pixels, position * width, 0);
  });
}

function copyFrame({ data, width, height }: ImageData, trace: InputTrace, frame: number, step: number): void {
  const { rows, cols, channels, values } = trace;
  const [green, blue] = channels > 2 ? [1, 2] : [0, 0];
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++) {
      const from = ((frame * rows + y * step) * cols + x * step) * channels;
      const to = 4 * (y * width + x);
      data[to] = values[from];
      data[to + 1] = values[from + green];
      data[to + 2] = values[from + blue];
      data[to + 3] = 255;
    }
  }
}

/** Mixes a pale grey picture with the colours of the weights; what belongs to no key gets the colour of 0. */
function shadeFrame({ data, width, height }: ImageData, frame: number, shade: Shade, on: Scheme, step: number): void {
  const [black, white] = PALE[on];
  for (let at = 0; at < data.length; at += 4) {
    const grey = black + ((white - black) * (data[at] + data[at + 1] + data[at + 2])) / (3 * 255);
    data[at] = data[at + 1] = data[at + 2] = grey;
  }
  const mix = (left: number, top: number, right: number, bottom: number, weight: number) => {
    const [r, g, b] = weightColour(weight, on).map((part) => part * (1 - PICTURE_SHARE));
    for (let y = top; y < bottom; y++) {
      for (let at = 4 * (y * width + left); at < 4 * (y * width + right); at += 4) {
        const grey = data[at] * PICTURE_SHARE;
        data[at] = r + grey;
        data[at + 1] = g + grey;
        data[at + 2] = b + grey;
      }
    }
  };
  const placed = shade.keys.flatMap(({ box }, i) => (box?.frame === frame ? [{ box, i }] : []));
  for (const { box, i } of placed) {
    const at = (column: number) => Math.round(column / step);
    const [right, bottom] = [Math.min(width, at(box.left + box.width)), Math.min(height, at(box.top + box.height))];
    mix(at(box.left), at(box.top), right, bottom, shade.weights[i] / shade.most);
  }
  if (placed.length === 0) mix(0, 0, width, height, 0);
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
  useEffect(() => paintFrames(canvas.current!, trace, [frame], shade, on), [trace, frame, shade, on]);
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
