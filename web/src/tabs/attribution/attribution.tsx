// Attribution beside attention: what each input token contributed to the probability of each output token.
import { useState } from "preact/hooks";
import { largest } from "../../chart/canvas";
import { Figure } from "../../chart/figure";
import { Matrix, type Cell } from "../../chart/matrix/matrix";
import { Alert, Choice } from "../../controls/controls";
import { ask, site, type ModelEntry } from "../../state/api";
import { useAnswer } from "../../state/requests";
import { readPin, writePin } from "../../state/selection";
import { field } from "../../state/url";
import { fixed } from "../../text/numbers";
import { shownPiece } from "../../text/pieces";
import "./attribution.css";

type Method = "occlusion" | "integrated_gradients" | "gradient_times_input";

interface Answer {
  method: Method;
  inputs: string[];
  outputs: string[];
  output: string;
  values: number[][];
  logps: number[];
  gap: number;
  attention?: number[][];
  agreement?: number;
}

const opened = field("attribution", false);
const method = field<Method>("by", "occlusion");
const pin = field<string>("contribution", "");
const KINDS = ["translator", "writer", "classifier"];

const METHODS: { value: Method; label: string }[] = [
  { value: "occlusion", label: "occlusion" },
  { value: "integrated_gradients", label: "integrated gradients" },
  { value: "gradient_times_input", label: "gradient × input" },
];

/** What a method says, and what it cannot say. */
const WORDS: Record<Method, [says: string, cannot: string]> = {
  occlusion: [
    "How much the log-probability of an output falls when one input token is replaced by the mean of all token vectors.",
    "Two tokens that say the same hide each other: taking one away changes nothing. And a text with a hole is a text that the model was never trained on.",
  ],
  integrated_gradients: [
    "How the log-probability grows on a straight way from the mean vector to the real tokens, divided among the tokens. Each row adds up to the whole change.",
    "Another starting point gives other numbers. Where the model changes abruptly on the way, the sum of its steps is inexact.",
  ],
  gradient_times_input: [
    "How the log-probability would change if a token vector were scaled a little.",
    "It is true only for small changes. Where the model is sure of its output, it is flat, and the numbers are close to zero although the tokens matter.",
  ],
};

export function Attribution(props: { model: ModelEntry; text: string; output: string }) {
  if (!KINDS.includes(props.model.kind) || site) return null; // a site without a server computes no gradients
  return (
    <details
      class="panel attribution"
      data-testid="attribution"
      open={opened.value}
      onToggle={(event) => (opened.value = event.currentTarget.open)}
    >
      <summary>Attention is not the whole explanation: which tokens does the output depend on?</summary>
      {opened.value && <Contributions {...props} />}
    </details>
  );
}

function Contributions(props: { model: ModelEntry; text: string; output: string }) {
  const classifier = props.model.kind === "classifier";
  const request = {
    model: props.model.name,
    text: props.text,
    method: method.value,
    ...(classifier ? {} : { target: generated(props) }),
  };
  const { value, busy, error } = useAnswer(`attribution ${JSON.stringify(request)}`, (stop) =>
    ask<Answer>("api/attribution", request, stop),
  );
  const [says, cannot] = WORDS[method.value];
  return (
    <div class="stacked attribution-body">
      <p>
        A weight says how a layer mixed its vectors. It does not say what the model would have written without a word: other
        layers and the residual connections carry information past it. Attribution asks the output itself.
      </p>
      <Choice
        label="Method"
        value={method.value}
        options={METHODS}
        onChange={(next) => (method.value = next)}
        testid="attribution-method"
      />
      <p>
        <b>It says:</b> {says} <b>It cannot say:</b> {cannot}
      </p>
      {error && <Alert>{error}</Alert>}
      {busy && !value && (
        <p class="notice" role="status">
          Computing …
        </p>
      )}
      {value && (
        <div class="stacked" aria-busy={busy}>
          <Contribution answer={value} />
        </div>
      )}
    </div>
  );
}

/** The text that the model generated after its input, which is then attributed token by token. */
function generated(props: { model: ModelEntry; text: string; output: string }): string {
  return props.model.kind === "writer" && props.output.startsWith(props.text)
    ? props.output.slice(props.text.length)
    : props.output;
}

function Contribution({ answer }: { answer: Answer }) {
  const [hovered, setHovered] = useState<Cell | null>(null);
  const { inputs, outputs, attention, agreement } = answer;
  const values = Float64Array.from(answer.values.flat());
  const weights = attention && Float64Array.from(attention.flat());
  const [rows, cols] = [outputs.map(shownPiece), inputs.map(shownPiece)];
  const size = { rows: rows.length, cols: cols.length };
  const shared = { rows, cols, rowTitle: "output", colTitle: "input", pin: hovered ?? readPin(pin.value, size) };
  const onPin = (cell: Cell | null) => (pin.value = writePin(cell));
  const read = (i: number, j: number) => {
    const beside = attention ? `; attention weight ${fixed(attention[i][j], 3)}` : "";
    return `Without “${cols[j]}”, the log-probability of “${rows[i]}” is lower by about ${fixed(answer.values[i][j], 3)}${beside}`;
  };
  return (
    <>
      <div class="columns">
        {weights && (
          <Figure title="Attention weights" name="attribution-attention">
            <Matrix
              {...shared}
              testid="attribution-attention"
              label="Attention weights"
              values={weights}
              read={read}
              onPin={onPin}
              onHover={setHovered}
            />
          </Figure>
        )}
        <Figure title="Contributions, in nats" name="attribution-values">
          <Matrix
            {...shared}
            testid="attribution-values"
            label="Contributions of input tokens to output tokens"
            values={values}
            scale="signed"
            most={largest(values)}
            digits={1}
            read={read}
            onPin={onPin}
            onHover={setHovered}
          />
        </Figure>
      </div>
      {agreement !== undefined && agreement !== null && (
        <p class="note" data-testid="attribution-agreement">
          Rank correlation of weights and contributions, averaged over the rows: <b>{fixed(agreement, 2)}</b> (1: both rank
          the tokens alike, 0: unrelated). Largest difference between the sum of a row and what all tokens together change:{" "}
          {fixed(answer.gap, 2)} nats.
        </p>
      )}
    </>
  );
}
