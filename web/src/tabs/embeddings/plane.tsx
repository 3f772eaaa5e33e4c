// The token vectors of a model in the plane, and the nearest words of a word; A1, A2.
import { useEffect, useState } from "preact/hooks";
import { Figure } from "../../chart/figure";
import { Scatter } from "../../chart/scatter";
import { Alert, Slider } from "../../controls/controls";
import { ModelSelect, NoModel } from "../../controls/served_model";
import { ask, type ModelEntry } from "../../state/api";
import { useAnswer } from "../../state/requests";
import { waitingFor } from "../../state/runs";
import { fixed } from "../../text/numbers";
import { shownPiece } from "../../text/pieces";
import { count, TABLED, tabled, tableModel, target } from "./state";

interface Words {
  words: string[]; // the first ones, then the chosen one and its nearest
  fitted: number; // how many first words the plane is fitted to
  all: number; // how many words the model has
  width: number;
  points: [number, number][];
  explained: number;
  nearest: [string, number][] | null;
}

export function WordPlane() {
  const model = tableModel();
  return model ? <Plane model={model} /> : <NoModel needs="its token vectors" />;
}

function Plane(props: { model: ModelEntry }) {
  const { model } = props;
  const request = { model: model.name, count: count.value, word: target.value || null };
  const { value, busy, error } = useAnswer(`words ${JSON.stringify(request)}`, (stop) =>
    ask<Words>("api/embeddings", request, stop),
  );
  const choose = (word: string) => (target.value = word);
  const [typed, setTyped] = useState(target.value);
  useEffect(() => setTyped(target.value), [target.value]);
  const characters = value !== null && value.words.some((word) => word.length === 1);
  return (
    <Figure
      title="Token vectors in the plane"
      name="word-plane"
      note={
        value
          ? `The first ${value.fitted} of ${value.all} ${characters ? "characters" : "words"} of ${model.name}. The plane is spanned by the two principal components; it has ${(100 * value.explained).toFixed(0)}% of the variance of their ${value.width} dimensions, so distances in it are only a hint. A dot is a word whose label would cover another one.`
          : waitingFor(model)
      }
    >
      <form
        class="bar"
        onSubmit={(event) => {
          event.preventDefault();
          choose(typed.trim());
        }}
      >
        <ModelSelect
          architectures={TABLED}
          model={model}
          onChange={(name) => {
            tabled.value = name;
            target.value = "";
          }}
          testid="plane-model"
        />
        <Slider
          label="Words"
          value={count.value}
          min={20}
          max={300}
          step={20}
          onChange={(value) => (count.value = value)}
          testid="plane-count"
        />
        <label class="control">
          <span>Nearest words of</span>
          <input
            type="text"
            value={typed}
            spellcheck={false}
            data-testid="plane-word"
            onInput={(event) => setTyped(event.currentTarget.value)}
          />
        </label>
        <button class="button main" data-testid="plane-send">
          Find
        </button>
      </form>
      {error && <Alert>{error}</Alert>}
      {value && (
        <div aria-busy={busy}>
          <Scatter
            testid="word-plane"
            label={`${value.words.length} words of ${model.name} in the plane. Type a word above to list its nearest words.`}
            words={value.words.map(shownPiece)}
            points={value.points}
            chosen={shownPiece(target.value)}
            near={(value.nearest ?? []).map(([word]) => shownPiece(word))}
            onChoose={choose}
          />
          {value.nearest ? (
            <>
              <p class="readout">Cosine similarity with “{target.value}”, among all {value.all}:</p>
              <ol class="neighbours" data-testid="nearest">
                {value.nearest.map(([word, cosine]) => (
                  <li key={word}>
                    <button type="button" class="piece" onClick={() => choose(word)}>
                      {shownPiece(word)} <span class="number aside">{fixed(cosine, 2)}</span>
                    </button>
                  </li>
                ))}
              </ol>
            </>
          ) : (
            <p class="readout">Click a word to list its nearest words.</p>
          )}
        </div>
      )}
    </Figure>
  );
}
