// Words in the plane. A click selects a word; forms around the plane do the same by keyboard. A word that would cover
// another one is a dot, whose title is the word.
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { scaleLinear } from "d3-scale";
import { presenter } from "../state/preferences";
import { textWidth } from "./text_size";
import "./scatter.css";

const MARGIN = 14;

interface Place {
  x: number;
  y: number;
}

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
  const at = (i: number): Place => ({ x: x(props.points[i][0]), y: y(props.points[i][1]) });
  const byRank = props.words.map((_, i) => i).sort((i, j) => rank(props.words[j]) - rank(props.words[i]));
  const written = separateLabels(byRank, at, (i) => textWidth(props.words[i], size), size);
  return (
    <div ref={frame} data-testid={props.testid}>
      {width > 0 && (
        <svg class="scatter" width={width} height={height} viewBox={`0 0 ${width} ${height}`} role="img" aria-label={props.label}>
          <rect class="plot-ground" width={width} height={height} />
          {order.map((i) => {
            const shared = {
              class: ["scatter-word", "scatter-word near", "scatter-word chosen"][rank(props.words[i])],
              onClick: () => props.onChoose(props.words[i]),
            };
            return written.has(i) ? (
              <text
                key={props.words[i]}
                {...shared}
                {...at(i)}
                font-size={size}
                text-anchor="middle"
                dominant-baseline="central"
              >
                {props.words[i]}
              </text>
            ) : (
              <circle key={props.words[i]} {...shared} cx={at(i).x} cy={at(i).y} r={size / 4}>
                <title>{props.words[i]}</title>
              </circle>
            );
          })}
        </svg>
      )}
    </div>
  );
}

/** The words, in this order of preference, whose labels cover no other label. */
function separateLabels(
  order: readonly number[],
  at: (i: number) => Place,
  widthOf: (i: number) => number,
  height: number,
): Set<number> {
  const labels: { i: number; place: Place; width: number }[] = [];
  for (const i of order) {
    const [place, width] = [at(i), widthOf(i)];
    const covers = labels.some(
      (other) =>
        Math.abs(other.place.x - place.x) < (other.width + width) / 2 && Math.abs(other.place.y - place.y) < height,
    );
    if (!covers) labels.push({ i, place, width });
  }
  return new Set(labels.map(({ i }) => i));
}
