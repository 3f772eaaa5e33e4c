// The words that one token looks at, each tinted by its weight: a row of a map to read as a sentence.
import { range } from "../maths/grid";
import type { Span } from "../maths/words";
import { runsFromRight } from "../text/direction";
import { shownPiece } from "../text/pieces";
import { colourOf, css, inkOn, scheme } from "./colours";
import "./word_weights.css";

const MOST = 60; // words that are shown; of more, those with the largest weights

export function RowWords(props: { words: Span[]; weights: ArrayLike<number>; label: string; testid: string }) {
  const texts = props.words.map((word) => word.text);
  const order = range(texts.length).sort((i, j) => props.weights[j] - props.weights[i]);
  const kept = order.slice(0, MOST).sort((i, j) => i - j);
  return (
    <>
      <ol
        class="row-words"
        dir={runsFromRight(texts) ? "rtl" : "ltr"}
        aria-label={props.label}
        data-testid={props.testid}>
        {kept.map((i) => {
          const colour = colourOf(props.weights[i], "weights", 1, scheme.value);
          return (
            <li key={i} style={{ background: css(colour), color: inkOn(colour) }} data-weight={props.weights[i]}>
              <bdi>{shownPiece(texts[i])}</bdi>
              <span class="number">{props.weights[i].toFixed(2)}</span>
            </li>
          );
        })}
      </ol>
      {kept.length < texts.length && (
        <p class="aside">
          the {kept.length} largest of {texts.length}
        </p>
      )}
    </>
  );
}
