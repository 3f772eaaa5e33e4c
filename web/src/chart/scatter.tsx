// Words in the plane. A click selects a word; forms around the plane do the same by keyboard.
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { scaleLinear } from "d3-scale";
import { presenter } from "../state/preferences";
import { textWidth } from "./text_size";
import "./scatter.css";

const MARGIN = 14;

export function Scatter(props: {
  words: readonly string[];
  points: readonly (readonly [number, number])[];
  chosen: string;
  near: readonly string[]; // words to highlight besides the chosen one
  onChoose: (word: string) => void;
  label: string;
  testid: string;
}) {
  const frame = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(0);
  useLayoutEffect(() => {
    const watch = new ResizeObserver(() => setWidth(frame.current!.clientWidth));
    watch.observe(frame.current!);
    setWidth(frame.current!.clientWidth);
    return () => watch.disconnect();
  }, []);
  const height = Math.max(320, Math.min(620, Math.round(0.62 * width)));
  const size = presenter.value ? 16 : 12;
  const sides = Math.max(...props.words.map((word) => textWidth(word, size))) / 2 + MARGIN;
  const extent = (axis: 0 | 1): [number, number] => {
    const values = props.points.map((point) => point[axis]);
    return [Math.min(...values), Math.max(...values)];
  };
  const x = scaleLinear(extent(0), [sides, width - sides]);
  const y = scaleLinear(extent(1), [height - MARGIN - size / 2, MARGIN + size / 2]);
  const rank = (word: string) => (word === props.chosen ? 2 : props.near.includes(word) ? 1 : 0);
  // What is highlighted is drawn last, so that nothing covers it.
  const order = props.words.map((_, i) => i).sort((i, j) => rank(props.words[i]) - rank(props.words[j]));
  return (
    <div ref={frame} data-testid={props.testid}>
      {width > 0 && (
        <svg class="scatter" width={width} height={height} viewBox={`0 0 ${width} ${height}`} role="img" aria-label={props.label}>
          <rect class="plot-ground" width={width} height={height} />
          {order.map((i) => (
            <text
              key={props.words[i]}
              class={["scatter-word", "scatter-word near", "scatter-word chosen"][rank(props.words[i])]}
              x={x(props.points[i][0])}
              y={y(props.points[i][1])}
              font-size={size}
              text-anchor="middle"
              dominant-baseline="central"
              onClick={() => props.onChoose(props.words[i])}
            >
              {props.words[i]}
            </text>
          ))}
        </svg>
      )}
    </div>
  );
}
