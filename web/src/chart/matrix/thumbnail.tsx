// A small heat map without labels, for buttons.
import { useLayoutEffect, useRef } from "preact/hooks";
import { paint } from "../canvas";
import { scheme, type Scale } from "../colours";
import "./matrix.css";

/** A small heat map without labels. */
export function Thumbnail(props: {
  values: ArrayLike<number>;
  cols: number;
  scale?: Scale;
  most?: number;
  label: string;
}) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const on = scheme.value;
  useLayoutEffect(
    () => paint(canvas.current!, props.values, props.cols, props.scale ?? "weights", props.most ?? 1, on),
    [props.values, props.cols, props.scale, props.most, on],
  );
  return <canvas class="thumbnail" ref={canvas} role="img" aria-label={props.label} />;
}
