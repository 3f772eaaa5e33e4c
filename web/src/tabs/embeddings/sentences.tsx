// Sentence vectors: the cosine similarity of each pair of sentences; A3.
import { useEffect, useState } from "preact/hooks";
import { Figure } from "../../chart/figure";
import { Matrix } from "../../chart/matrix/matrix";
import { Alert } from "../../controls/controls";
import { ModelSelect, NoModel, pickModel } from "../../controls/served_model";
import { ask, type Json, type ModelEntry } from "../../state/api";
import { useAnswer } from "../../state/requests";
import { waitingFor } from "../../state/runs";
import { decodeArray } from "../../state/trace";
import { fixed } from "../../text/numbers";
import { encoder, ENCODERS, sentenceField, sentences } from "./state";

const MAX_LABEL = 40;

export function Sentences() {
  const model = pickModel(encoder.value, ENCODERS);
  return model ? <Similarity model={model} /> : <NoModel needs="a sentence encoder" />;
}

function Similarity(props: { model: ModelEntry }) {
  const { model } = props;
  const texts = sentences.value;
  const request = { model: model.name, texts };
  const { value, busy, error } = useAnswer(texts.length === 0 ? "" : `similarity ${JSON.stringify(request)}`, async (stop) => ({
    texts,
    cosines: decodeArray((await ask<Json>("api/similarity", request, stop)).cosines, "cosines"),
  }));
  const [typed, setTyped] = useState(sentenceField.value);
  useEffect(() => setTyped(sentenceField.value), [sentenceField.value]);
  return (
    <Figure
      title="Similarity of sentences"
      name="sentence-similarity"
      note="A sentence encoder turns the token vectors of a sentence into one vector (A3). This one was trained to give a sentence and its translation similar vectors; the matrix shows the cosine of each pair."
    >
      <form
        class="stacked"
        onSubmit={(event) => {
          event.preventDefault();
          sentenceField.value = typed;
        }}
      >
        <div class="bar">
          <ModelSelect
            architectures={ENCODERS}
            model={model}
            onChange={(name) => (encoder.value = name)}
            testid="similarity-model"
          />
          <button class="button main" data-testid="similarity-send">
            Compare
          </button>
        </div>
        <label class="control">
          <span>Sentences, one per line</span>
          <textarea
            rows={6}
            class="sentences"
            value={typed}
            spellcheck={false}
            data-testid="similarity-text"
            onInput={(event) => setTyped(event.currentTarget.value)}
          />
        </label>
      </form>
      {error && <Alert>{error}</Alert>}
      {!value && busy && <p class="notice">{waitingFor(model)}</p>}
      {texts.length === 0 && <Alert>There are no sentences: type one per line.</Alert>}
      {value && (
        <div aria-busy={busy}>
          <Matrix
            testid="similarity"
            label={`Cosine similarity of ${value.texts.length} sentences`}
            values={value.cosines.values}
            rows={value.texts.map((text, i) => `${i + 1} ${shortened(text)}`)}
            cols={value.texts.map((_, i) => String(i + 1))}
            scale="signed"
            most={1}
            maxCell={64}
            digits={2}
            read={(i, j) => `“${value.texts[i]}” and “${value.texts[j]}”: ${fixed(value.cosines.values[i * value.texts.length + j])}`}
          />
        </div>
      )}
    </Figure>
  );
}

function shortened(text: string): string {
  return text.length <= MAX_LABEL ? text : `${text.slice(0, MAX_LABEL - 1)}…`;
}
