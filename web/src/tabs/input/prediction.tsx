// What the model says: the classes with their probabilities, the text, or how good the forecast is.
import { range } from "../../maths/grid";
import type { InputTrace } from "../../state/input_trace";
import { percent } from "../../text/pieces";

const MAX_SCORES = 10;

export function Prediction(props: { trace: InputTrace; row: number }) {
  const { trace, row } = props;
  const { scores, output, continuation } = trace;
  if (continuation) return <ForecastError trace={trace} row={row} />;
  if (scores.length === 0) {
    return output ? (
      <p class="output-text" dir="auto" data-testid="input-output">
        {output}
      </p>
    ) : null;
  }
  return (
    <>
      <p class="output-text" data-testid="input-output">
        {output}
      </p>
      <ol class="scores" data-testid="input-scores">
        {scores.slice(0, MAX_SCORES).map(({ text, probability }, i) => (
          <li key={text} class={i === 0 ? "best" : ""} data-p={probability}>
            <bdi class="score-text" title={text}>
              {text}
            </bdi>
            <span class="score-track">
              <span class="chance-bar" style={{ width: `${100 * probability}%` }} />
            </span>
            <span class="number">{percent(probability)}</span>
          </li>
        ))}
      </ol>
      {scores.length > MAX_SCORES && <p class="hint">… and {scores.length - MAX_SCORES} more classes</p>}
    </>
  );
}

/** The mean absolute error of a forecast, beside that of repeating the last value. */
function ForecastError(props: { trace: InputTrace; row: number }) {
  const { trace, row } = props;
  const { values, truth } = trace.continuation!;
  if (!truth) {
    return (
      <p class="hint" data-testid="input-error">
        These rows are after the end of the series, so there is no truth to compare with.
      </p>
    );
  }
  const last = trace.values[(row + 1) * trace.cols - 1];
  const errors = (forecast: (i: number) => number) =>
    range(truth.cols).reduce((sum, i) => sum + Math.abs(forecast(i) - truth.values[row * truth.cols + i]), 0) / truth.cols;
  const own = errors((i) => values.values[row * values.cols + i]);
  const repeated = errors(() => last);
  return (
    <p class="hint" data-testid="input-error">
      Mean absolute error of the {truth.cols} forecast rows: <b class="number">{own.toPrecision(3)}</b>. Repeating the last
      value: <span class="number">{repeated.toPrecision(3)}</span>.
    </p>
  );
}
