// Inside: a token on its way through a block, with every number and its calculation.
import { Alert, Button, Choice, Intro, Select } from "../../controls/controls";
import { Sentence } from "../../controls/sentence";
import { range } from "../../maths/grid";
import type { ModelEntry } from "../../state/api";
import { askAgain } from "../../state/requests";
import { origin, textFor, useRun, waitingFor } from "../../state/runs";
import { shownPiece } from "../../text/pieces";
import { quoted } from "../../text/python";
import { BoxCard } from "./box";
import { ModelMap } from "./model_map";
import { head, layer, resetPlace, stack, token } from "./state";
import { useWorksheet, type Worksheet } from "./worksheet";
import "./inside.css";

const SLIDES = "lecture"; // the shipped Transformer as on the slides: positions added to the embedding, then Add & Norm
const PARTS: Record<string, string> = {
  input: "Input",
  self: "Self-attention",
  cross: "Cross-attention",
  feed: "Feed-forward",
  output: "Output",
};

export function Inside() {
  const from = origin(SLIDES);
  return (
    <>
      <Intro title="Inside">
        Follow one token through a block, with the model's actual numbers. Click a number to see its calculation.
      </Intro>
      <Sentence busy={false} preferred={SLIDES} onNew={resetPlace} />
      {from.kind === "model" &&
        (from.entry.about?.heads === 0 ? (
          <p class="notice" data-testid="note">
            This model has no attention, so it has no attention block to show. The Decode tab shows its decoding steps.
          </p>
        ) : (
          <Block entry={from.entry} />
        ))}
      {from.kind === "trace" && (
        <p class="notice" data-testid="needs-model">
          A trace contains attention weights, but not all numbers of a block. Select a model, or start `regard explore`
          with one.
        </p>
      )}
    </>
  );
}

/** The stacks that can be shown; of a recurrent translator, only the decoder. */
function stacksOf(entry: ModelEntry): string[] {
  const { kind, layers } = entry.about!;
  return Object.keys(layers).filter((name) => layers[name] > 0 && !(kind.startsWith("rnn") && name === "encoder"));
}

function Block(props: { entry: ModelEntry }) {
  const { entry } = props;
  const stacks = entry.about ? stacksOf(entry) : [];
  const which = stacks.find((name) => name === stack.value) ?? stacks[0];
  // The blocks of a model are known once it is loaded; requesting a trace loads it.
  const loading = useRun(which ? null : { model: entry.name, text: textFor(entry) });
  const place = { layer: layer.value, token: token.value, head: head.value };
  const answer = useWorksheet(which ? { model: entry.name, text: textFor(entry), stack: which, ...place } : null);
  const { sheet } = answer;
  const [busy, error] = [answer.busy || loading.busy, answer.error || loading.error];
  const parts = [...new Set(sheet?.boxes.map(({ part }) => part) ?? [])];
  const moveTo = (next: { stack: string; layer: number }) => {
    if (next.stack !== which) resetPlace();
    stack.value = next.stack;
    layer.value = next.layer;
  };
  return (
    <>
      {entry.about && which && (
        <ModelMap entry={entry} here={{ stack: which, layer: layer.value }} parts={parts} onPick={moveTo} />
      )}
      <div class="bar">
        {stacks.length > 1 && (
          <Choice
            label="Stack"
            value={which!}
            options={stacks}
            onChange={(x) => {
              stack.value = x;
              resetPlace();
            }}
            testid="stack"
          />
        )}
        {sheet && sheet.layers > 1 && (
          <Select
            label="Layer"
            value={sheet.layer}
            options={range(sheet.layers)}
            onChange={(x) => (layer.value = x)}
            testid="layer"
          />
        )}
        {sheet && sheet.heads > 1 && (
          <Select
            label="Head"
            value={sheet.head}
            options={range(sheet.heads)}
            onChange={(x) => (head.value = x)}
            testid="head"
          />
        )}
      </div>
      {error && (
        <Alert>
          {error} {/* for example a token that the new text does not have */}
          <Button onClick={askAgain}>Try again</Button> <Button onClick={resetPlace}>Go to the first token</Button>
        </Alert>
      )}
      {busy && !sheet && (
        <p class="notice" role="status" data-testid="waiting">
          {waitingFor(entry)}
        </p>
      )}
      {sheet && (
        <div class="inside" aria-busy={busy} data-testid="inside">
          <Tokens sheet={sheet} />
          <Flow sheet={sheet} model={entry.name} />
        </div>
      )}
    </>
  );
}

/** The choice of the token. */
function Tokens(props: { sheet: Worksheet }) {
  const { tokens, token: at, stack: which } = props.sheet;
  return (
    <fieldset class="choice" data-testid="tokens">
      <legend>{which === "encoder" ? "Source token" : "Last token read by the decoder"}</legend>
      <div class="token-row" dir="auto">
        {tokens.map((item, i) => (
          <button
            key={i}
            type="button"
            class={item.special ? "piece special" : "piece"}
            aria-pressed={i === at}
            data-testid="token"
            onClick={() => (token.value = i)}>
            <bdi>{shownPiece(item.text)}</bdi>
          </button>
        ))}
      </div>
    </fieldset>
  );
}

function Flow(props: { sheet: Worksheet; model: string }) {
  const { boxes } = props.sheet;
  const parts = Object.keys(PARTS).filter((part) => boxes.some((box) => box.part === part));
  return (
    <>
      {parts.map((part) => (
        <section key={part} class="flow" data-part={part} aria-label={PARTS[part]}>
          <h2>
            {PARTS[part]}
            {(part === "self" || part === "cross") && props.sheet.heads > 1 ? `, head ${props.sheet.head}` : ""}
          </h2>
          <ol class="boxes">
            {boxes
              .filter((box) => box.part === part)
              .map((box) => (
                <BoxCard key={box.id} box={box} boxes={boxes} model={props.model} />
              ))}
          </ol>
        </section>
      ))}
    </>
  );
}

/** The Python code that reproduces this view. */
export function insideCode(): string {
  const from = origin(SLIDES);
  if (from.kind !== "model") return "# A trace does not contain the numbers inside a block: select a model.\n";
  const stacks = from.entry.about ? stacksOf(from.entry) : [];
  const which = stacks.find((name) => name === stack.value) ?? stacks[0] ?? "decoder";
  return [
    "import regard",
    "from regard.look import inside_block",
    "",
    `model = regard.load(${quoted(from.entry.name)})`,
    `position = {"layer": ${layer.value}, "token": ${token.value}, "head": ${head.value}}`,
    `sheet = inside_block(model, ${quoted(textFor(from.entry))}, stack=${quoted(which)}, **position)`,
    'for box in sheet["boxes"]:',
    '    print(box["id"], box["shape"], box["how"])',
    "",
  ].join("\n");
}
