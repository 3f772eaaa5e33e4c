// A vector as a row of coloured cells that can move and change its size.
import { useLayoutEffect, useRef } from "preact/hooks";
import { paint } from "../../chart/canvas";
import { scheme } from "../../chart/colours";
import { short } from "../inside/arithmetic";
import type { Spot } from "./layout";

export function placed(spot: Spot) {
  return {
    left: `${spot.left}px`,
    top: `${spot.top}px`,
    width: `${spot.width}px`,
    height: `${spot.height}px`,
    opacity: spot.opacity,
    visibility: spot.opacity === 0 ? "hidden" : "visible",
  } as const;
}

export function MovingStrip(props: {
  values: ArrayLike<number>;
  most: number; // the number with the darkest colour
  spot: Spot;
  title: string;
  onRead: (text: string) => void;
  testid?: string;
}) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const { values, most } = props;
  const on = scheme.value;
  useLayoutEffect(() => paint(canvas.current!, values, values.length, "signed", most, on), [values, most, on]);
  const read = (event: PointerEvent) => {
    const box = canvas.current!.getBoundingClientRect();
    const at = Math.min(values.length - 1, Math.max(0, Math.floor((values.length * (event.clientX - box.left)) / box.width)));
    props.onRead(`${props.title}[${at}] = ${short(values[at])}`);
  };
  return (
    <canvas
      ref={canvas}
      class="zoom-item zoom-strip"
      role="img"
      aria-label={`${props.title}, ${values.length} numbers`}
      style={placed(props.spot)}
      data-testid={props.testid}
      onPointerMove={read}
    />
  );
}
