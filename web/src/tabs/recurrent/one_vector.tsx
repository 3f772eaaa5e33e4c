// The encoder-decoder without attention: one vector holds the whole sentence; C4.
import { useState } from "preact/hooks";
import { Strip } from "../../chart/strip";
import { Alert } from "../../controls/controls";
import { ModelSelect, pickModel } from "../../controls/served_model";
import { field } from "../../state/url";
import { fixed } from "../../text/numbers";
import { useStates } from "./state";

const WITHOUT_ATTENTION = ["rnn-seq2seq"] as const;
/** Sentences of the demo grammar, which are not in its training part, with their translations. */
const SENTENCES: readonly [source: string, reference: string][] = [
  ["Victor a souvent peur.", "Victor is often afraid."],
  ["Le professeur travaille à la vieille bibliothèque.", "The teacher works at the old library."],
  [
    "En juillet, il joue de la guitare, mais il préfère courir devant la gare tranquille.",
    "In July, he plays the guitar, but he prefers to run in front of the quiet station.",
  ],
  [
    "Six petits lapins ont dormi dans le bureau en juin, Thomas est retourné à Lyon et Pierre m'a offert les tables jaunes d'Anne parce qu'il pleuvait.",
    "Six small rabbits slept in the office in June, Thomas returned to Lyon and Pierre offered me Anne's yellow tables because it was raining.",
  ],
];

const coder = field("coder", "");
const mine = field("mine", "");

export function OneVector() {
  const model = pickModel(coder.value, WITHOUT_ATTENTION);
  const [typed, setTyped] = useState(mine.value);
  if (!model) return null;
  const sentences: [string, string | null][] = [...SENTENCES, ...(mine.value ? [[mine.value, null] as [string, null]] : [])];
  return (
    <section class="panel stacked" data-testid="one-vector">
      <div>
        <h2>One vector for the whole sentence</h2>
        <p class="note">
          An encoder-decoder without attention reads the source to its end. Its last state is all that the decoder gets:
          as many numbers for thirty words as for three (C4). Compare what comes out of the vector with the right
          translation: the longer the sentence, the more is lost.
        </p>
      </div>
      <form
        class="bar"
        onSubmit={(event) => {
          event.preventDefault();
          mine.value = typed.trim();
        }}
      >
        <ModelSelect
          architectures={WITHOUT_ATTENTION}
          model={model}
          onChange={(name) => (coder.value = name)}
          testid="one-vector-model"
        />
        <label class="control sentence-text">
          <span>Another sentence to translate</span>
          <input
            type="text"
            value={typed}
            data-testid="one-vector-text"
            spellcheck={false}
            onInput={(event) => setTyped(event.currentTarget.value)}
          />
        </label>
        <button class="button main" data-testid="one-vector-send">
          Translate
        </button>
      </form>
      {sentences.map(([source, reference]) => (
        <Sentence key={source} model={model.name} source={source} reference={reference} />
      ))}
    </section>
  );
}

function Sentence(props: { model: string; source: string; reference: string | null }) {
  const { value, busy, error } = useStates(props.model, props.source);
  const [opened, setOpened] = useState<number | null>(null);
  const words = props.source.split(/\s+/).length;
  return (
    <article class="stacked one-vector" aria-busy={busy}>
      <p>
        <span lang="fr">{props.source}</span> <span class="aside nowrap">{words} words</span>
      </p>
      {error && <Alert>{error}</Alert>}
      {value?.vector && (
        <>
          <Strip
            values={value.vector.values}
            cols={56}
            names={null}
            scale="signed"
            label={`The vector of this sentence, ${value.vector.values.length} numbers`}
            read={(i) => `number ${i} of ${value.vector!.values.length}: ${fixed(value.vector!.values[i])}`}
            opened={opened}
            onOpen={setOpened}
            testid="one-vector-strip"
          />
          <p>
            <span class="aside">From this vector:</span>{" "}
            <b lang="en" data-testid="one-vector-output">
              {value.output}
            </b>
          </p>
          {props.reference && (
            <p>
              <span class="aside">Right:</span> <span lang="en">{props.reference}</span>
            </p>
          )}
        </>
      )}
    </article>
  );
}
