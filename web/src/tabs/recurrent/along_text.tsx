// Gates and states along the text: all units as a heat map, one unit as a coloured text and as curves.
import { colourOf, css, inkOn, scheme } from "../../chart/colours";
import { Figure } from "../../chart/figure";
import { Matrix } from "../../chart/matrix/matrix";
import { Plot } from "../../chart/plot";
import { Choice, NumberInput } from "../../controls/controls";
import { range } from "../../maths/grid";
import { asHistoryEntry } from "../../state/url";
import { fixed } from "../../text/numbers";
import { percent, shownPiece } from "../../text/pieces";
import { at, quantity, QUANTITIES, step, unit, type View } from "./state";

const GATES = ["i", "f", "o", "r", "z"]; // from 0 to 1; the others from −1 to 1, and c has no limit

/** All units: a row for each token, a column for each unit. A click selects both. */
export function HeatMap(props: { view: View }) {
  const { states, values, units } = props.view;
  const names = Object.keys(values.values);
  const name = names.includes(quantity.value) ? quantity.value : "h";
  const numbers = values.values[name].values;
  const gate = GATES.includes(name);
  return (
    <Figure
      title={`All ${units} units along the text`}
      name="recurrent-units"
      note="A row for each token, a column for each unit. Click a cell to follow its unit below."
    >
      <Choice
        label="Values"
        value={name}
        options={names.map((known) => ({ value: known, label: QUANTITIES[known] }))}
        onChange={(value) => (quantity.value = value)}
        testid="recurrent-quantity"
      />
      <Matrix
        testid="recurrent-units"
        label={`${QUANTITIES[name]}: ${states.tokens.length} tokens by ${units} units`}
        values={numbers}
        rows={states.tokens.map(shownPiece)}
        cols={range(units).map(String)}
        rowTitle="token"
        colTitle="unit"
        scale={gate ? "weights" : "signed"}
        most={name === "c" ? undefined : 1}
        stretch
        minRow={10}
        read={(t, u) =>
          `${name} of unit ${u} after “${shownPiece(states.tokens[t])}” (step ${t}) = ${fixed(numbers[t * units + u], 4)}`
        }
        pin={[props.view.step, props.view.unit]}
        onPin={(cell) => cell && asHistoryEntry(() => ([step.value, unit.value] = cell))}
      />
    </Figure>
  );
}

/** One unit: its hidden state as the colour of each token, and all its values as curves. */
export function OneUnit(props: { view: View }) {
  const { view } = props;
  const { states, values } = view;
  const names = Object.keys(values.values);
  const steps = range(states.tokens.length);
  // Four colours of curves: the LSTM's gates and states in two plots, the GRU's in one.
  const groups = names.length > 4 ? [["i", "f", "o"], ["c", "h", "g"]] : [names];
  const curve = (name: string) => ({ name, x: steps, y: steps.map((t) => at(view, name, t)) });
  const read = (t: number) =>
    `step ${t}, “${shownPiece(states.tokens[t])}”: ${names.map((name) => `${name} ${fixed(at(view, name, t))}`).join(", ")}`;
  return (
    <Figure
      title={`Unit ${view.unit} along the text`}
      name="recurrent-unit"
      note="Each token is coloured by the hidden state after it: blue is positive, orange is negative. Click a token to select its step."
    >
      <div class="bar">
        <NumberInput
          label="Unit"
          value={view.unit}
          min={0}
          max={view.units - 1}
          onChange={(value) => (unit.value = value)}
          testid="recurrent-unit-number"
        />
      </div>
      <div class="letters" role="group" aria-label={`The text, coloured by unit ${view.unit}`} data-testid="recurrent-letters">
        {steps.map((t) => (
          <Letter key={t} text={states.tokens[t]} value={at(view, "h", t)} step={t} current={t === view.step} />
        ))}
      </div>
      <div class="columns">
        {groups.map((group) => (
          <Plot
            key={group.join()}
            testid={`recurrent-curves-${group[0]}`}
            label={`${group.map((name) => QUANTITIES[name]).join(", ")} of unit ${view.unit}`}
            curves={group.map(curve)}
            xTitle="step"
            yTitle={group.every((name) => GATES.includes(name)) ? "gate" : "value"}
            from={0}
            read={read}
            at={view.step}
            onAt={(index) => index !== null && (step.value = index)}
            height={220}
          />
        ))}
      </div>
    </Figure>
  );
}

function Letter(props: { text: string; value: number; step: number; current: boolean }) {
  const colour = colourOf(props.value, "signed", 1, scheme.value);
  return (
    <button
      type="button"
      class="letter"
      style={{ background: css(colour), color: inkOn(colour) }}
      aria-current={props.current ? "step" : undefined}
      title={`step ${props.step}: h = ${fixed(props.value)}`}
      onClick={() => (step.value = props.step)}
    >
      {shownPiece(props.text)}
    </button>
  );
}

/** The most probable next tokens of a language model after the selected step. */
export function NextTokens(props: { view: View }) {
  const { states, step } = props.view;
  if (states.predictions.length === 0) return null;
  const next = states.tokens[step + 1];
  return (
    <section class="panel" aria-label="Next token">
      <h2>
        What comes after “{shownPiece(states.tokens.slice(Math.max(1, step - 14), step + 1).join("") || states.tokens[0])}”?
      </h2>
      <p class="note">
        A softmax over all characters at each step (C2).
        {next === undefined ? "" : ` In the text, “${shownPiece(next)}” comes next; in training it is the next input.`}
      </p>
      <ol class="chances" data-testid="recurrent-next">
        {states.predictions[step].map(([text, p]) => (
          <li key={text} class={text === next ? "true" : ""}>
            <span class="chance-text">{shownPiece(text)}</span>
            <span class="chance-bar" style={{ width: `${100 * p}%` }} />
            <span class="number">{percent(p)}</span>
          </li>
        ))}
      </ol>
    </section>
  );
}
