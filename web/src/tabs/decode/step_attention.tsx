// The attention weights of a decoding step.
import { WordWeights } from "../../chart/word_weights";
import { HeadSelects } from "../../controls/weight_controls";
import { takeGrid } from "../../maths/grid";
import { pieceSpans } from "../../maths/words";
import { aligningMap, arrange, MEANINGS, nameChoice, readChoice } from "../../state/selection";
import type { Trace } from "../../state/trace";
import { field } from "../../state/url";
import { shownPiece } from "../../text/pieces";
import { headOf, HowLink } from "../zoom/how_link";

const layer = field<string>("layer", "all");
const head = field<string>("head", "best");

export function StepAttention(props: { trace: Trace; step: number }) {
  const name = aligningMap(props.trace);
  if (name === undefined || name === "enc_self") {
    return <p class="notice">This model has no attention.</p>;
  }
  // The step that writes the token: an alignment also has weights of the step after it.
  const choice = { ...readChoice(props.trace, name, layer.value, head.value), aligned: false };
  const { grid, cols } = arrange(props.trace, name, takeGrid(props.trace.maps[name]!, choice), { words: false });
  const token = pieceSpans(props.trace.axes.target)[props.step];
  const weights = grid.values.subarray(props.step * grid.cols, (props.step + 1) * grid.cols);
  // Later tokens are masked.
  const seen = cols.map((_, j) => j).filter((j) => !grid.mask || grid.mask[props.step * grid.cols + j]);
  const strongest = seen.reduce((best, j) => (best < 0 || weights[j] > weights[best] ? j : best), -1);
  return (
    <figure>
      <figcaption>
        <h2>
          Attention at the step of{" "}
          <span class="token">
            <bdi>{shownPiece(token.text)}</bdi>
          </span>
        </h2>
        <span class="aside">
          {MEANINGS[name]}
          {nameChoice(props.trace.maps[name]!, choice)}
        </span>
      </figcaption>
      <WordWeights
        words={seen.map((j) => cols[j])}
        weights={seen.map((j) => weights[j])}
        label="Attention weights of this step"
        testid="step-attention"
      />
      {strongest >= 0 && (
        <HowLink
          trace={props.trace}
          map={name}
          row={token}
          col={cols[strongest]}
          weight={weights[strongest]}
          {...headOf(choice)}
          testid="step-attention"
        />
      )}
      <div class="bar">
        <HeadSelects
          trace={props.trace}
          map={name}
          layer={layer.value}
          head={head.value}
          onLayer={(x) => (layer.value = x)}
          onHead={(x) => (head.value = x)}
        />
      </div>
    </figure>
  );
}
