// A row of attention weights as a sentence: each word is tinted by its weight.
import { range } from "../maths/grid";
import type { Span } from "../maths/words";
import { runsFromRight } from "../text/direction";
import { shownPiece } from "../text/pieces";
import { colourOf, css, inkOn, scheme } from "./colours";
import "./word_weights.css";

const MAX_WORDS = 60; // if there are more, those with the largest weights are shown

export function WordWeights(props: { words: Span[]; weights: ArrayLike<number>; label: string; testid: string }) {
  const texts = props.words.map((word) => word.text);
  const order = range(texts.length).sort((i, j) => props.weights[j] - props.weights[i]);
  const visible = order.slice(0, MAX_WORDS).sort((i, j) => i - j);
  return (
    <>
      <ol
        class="word-weights"
        dir={runsFromRight(texts) ? "rtl" : "ltr"}
        aria-label={props.label}
        data-testid={props.testid}>
        {visible.map((i) => {
          const colour = colourOf(props.weights[i], "weights", 1, scheme.value);
          return (
            <li key={i} style={{ background: css(colour), color: inkOn(colour) }} data-weight={props.weights[i]}>
              <bdi>{shownPiece(texts[i])}</bdi>
              <span class="number">{props.weights[i].toFixed(2)}</span>
            </li>
          );
        })}
      </ol>
      {visible.length < texts.length && (
        <p class="aside">
          the {visible.length} largest of {texts.length} weights
        </p>
      )}
    </>
  );
}
