// Recurrent: hidden state and gates along a text, the cell, gradients, and the one vector of an encoder-decoder.
import { useDraft } from "../../controls/draft";
import { Alert, Choice, Intro } from "../../controls/controls";
import { ModelSelect, NoModel } from "../../controls/served_model";
import type { ModelEntry } from "../../state/api";
import { useShown, waitingFor } from "../../state/runs";
import { asHistoryEntry, reset } from "../../state/url";
import { HeatMap, NextTokens, OneUnit } from "./along_text";
import { CellFigure } from "./cell_diagram";
import { TrainedGradients, UntrainedGradients } from "./gradients";
import { OneVector } from "./one_vector";
import "./recurrent.css";
import { Shapes } from "./shapes";
import { currentModel, direction, line, lineFor, net, RECURRENT, step, unit, useStates, viewOf, type States } from "./state";

const SELECTION = [step.name, unit.name, direction.name]; // depends on the text and the model

export function Recurrent() {
  useShown([]);
  const model = currentModel();
  const text = model ? lineFor(model) : "";
  const { value, busy, error } = useStates(model?.name ?? "", text);
  return (
    <>
      <Intro title="Recurrent nets">
        Before attention, a sentence was read word by word into one state of fixed size: y(t) = F(x(t), h(t−1)). Follow a
        real text through a trained net, unit by unit and gate by gate (C1 to C4).
      </Intro>
      {model ? <Reader model={model} text={text} busy={busy} /> : <NoModel needs="recurrent nets" />}
      {error && <Alert>{error}</Alert>}
      {model && busy && !value && (
        <p class="notice" role="status">
          {waitingFor(model)}
        </p>
      )}
      {model && value && <Views states={value} model={model.name} busy={busy} />}
      {model && <UntrainedGradients />}
      <OneVector />
      <Shapes />
    </>
  );
}

function Views(props: { states: States; model: string; busy: boolean }) {
  const view = viewOf(props.states);
  const { layers } = props.states;
  const name = (index: number) =>
    `layer ${layers[index].layer}${layers.some(({ backwards }) => backwards) ? (layers[index].backwards ? ", backwards" : ", forwards") : ""}`;
  return (
    <div class="stacked" aria-busy={props.busy}>
      {layers.length > 1 && (
        <Choice
          label="Layer"
          value={layers.indexOf(view.values)}
          options={layers.map((_, index) => ({ value: index, label: name(index) }))}
          onChange={(index) => (direction.value = index)}
          testid="recurrent-layer"
        />
      )}
      <HeatMap view={view} />
      <OneUnit view={view} />
      <div class="columns">
        <CellFigure view={view} />
        <div class="stacked">
          <NextTokens view={view} />
          <TrainedGradients states={props.states} model={props.model} />
        </div>
      </div>
    </div>
  );
}

/** The form for the model and the text. */
function Reader(props: { model: ModelEntry; text: string; busy: boolean }) {
  const [typed, setTyped] = useDraft("recurrent", props.text);
  return (
    <form
      class="sentence"
      data-testid="recurrent-form"
      onSubmit={(event) => {
        event.preventDefault();
        asHistoryEntry(() => {
          line.value = typed;
          reset(SELECTION);
        });
      }}
    >
      <ModelSelect
        architectures={RECURRENT}
        model={props.model}
        onChange={(name) =>
          asHistoryEntry(() => {
            net.value = name;
            reset([...SELECTION, line.name]);
          })
        }
        testid="recurrent-model"
      />
      <label class="control sentence-text">
        <span>Text to read</span>
        <input
          type="text"
          value={typed}
          spellcheck={false}
          data-testid="recurrent-text"
          onInput={(event) => setTyped(event.currentTarget.value)}
        />
      </label>
      <button class="button main" data-testid="recurrent-send" aria-busy={props.busy}>
        Read
      </button>
    </form>
  );
}
