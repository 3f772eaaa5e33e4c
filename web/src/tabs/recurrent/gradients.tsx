// The gradient against the distance: of untrained nets, and of the model on its text; C3.
import { Figure } from "../../chart/figure";
import { Plot } from "../../chart/plot";
import { Alert } from "../../controls/controls";
import { range } from "../../maths/grid";
import { ask } from "../../state/api";
import { useAnswer } from "../../state/requests";
import { shownPiece } from "../../text/pieces";
import type { States } from "./state";

interface Untrained {
  width: number;
  seeds: number;
  curves: { name: string; median: number[]; low: number[]; high: number[] }[];
}

const SHORT_NAMES: Record<string, string> = { "RNN, recurrent weights × 4": "RNN × 4" };
const log = (values: number[]) => values.map(Math.log10);
const power = (exponent: number) => (Number.isInteger(exponent) ? `1e${exponent}`.replace("-", "−") : "");

export function UntrainedGradients() {
  const { value, error } = useAnswer("gradients", (stop) => ask<Untrained>("api/gradients", undefined, stop));
  if (error) return <Alert>{error}</Alert>;
  if (!value) return null;
  const read = (k: number) =>
    `distance ${k}: ${value.curves.map(({ name, median }) => `${SHORT_NAMES[name] ?? name} ${scientific(median[k])}`).join(", ")}`;
  return (
    <Figure
      title="Gradients vanish or explode with the distance"
      name="recurrent-gradients"
      note={`Untrained nets of width ${value.width}: how strongly the last output depends on the input k steps earlier. Line: median of ${value.seeds} seeds; band: their range. Of the two LSTMs, one has its forget bias raised by 1. “RNN × 4” has recurrent weights four times as large.`}
    >
      <Plot
        testid="recurrent-gradients"
        label="Norm of the gradient by distance, untrained nets"
        curves={value.curves.map(({ name, median, low, high }) => ({
          name: SHORT_NAMES[name] ?? name,
          x: range(median.length),
          y: log(median),
          low: log(low),
          high: log(high),
        }))}
        xTitle="distance k"
        yTitle="norm of ∂y(T) / ∂x(T−k)"
        yTick={power}
        read={read}
        height={320}
      />
    </Figure>
  );
}

export function TrainedGradients(props: { states: States; model: string }) {
  const { gradients, tokens } = props.states;
  if (gradients.length === 0)
    return (
      <p class="notice">{props.model} also reads backwards, so every token is near one of the two ends of its state.</p>
    );
  const last = tokens.length - 1;
  const most = gradients.indexOf(Math.max(...gradients));
  return (
    <Figure
      title="Which tokens the last state depends on"
      name="recurrent-reach"
      note={`${props.model}, after training, on the text above: the norm of ∂h(T) / ∂x(T−k). It is largest at distance ${most}, for “${shownPiece(tokens[last - most])}”.`}
    >
      <Plot
        testid="recurrent-reach"
        label="Norm of the gradient by distance, trained model"
        curves={[{ name: "trained", x: range(gradients.length), y: log(gradients) }]}
        xTitle="distance k"
        yTitle="norm of ∂h(T) / ∂x(T−k)"
        yTick={power}
        read={(k) => `distance ${k}, “${shownPiece(tokens[last - k])}”: ${scientific(gradients[k])}`}
        height={320}
      />
    </Figure>
  );
}

function scientific(value: number): string {
  return value >= 0.01 && value < 1000 ? value.toFixed(3) : value.toExponential(1).replace("-", "−");
}
