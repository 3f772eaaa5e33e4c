// Inside: one token on its way through one block, every number of it, and how each came about.
import { Alert, Choice, Intro, Select } from "../../controls/controls";
import { Sentence } from "../../controls/sentence";
import { range } from "../../maths/grid";
import { askInside, type ModelEntry } from "../../state/api";
import { useAnswer } from "../../state/requests";
import { origin, textFor, useRun, waitingFor } from "../../state/runs";
import type { Json } from "../../state/trace";
import { field } from "../../state/url";
import { shownPiece } from "../../text/pieces";
import { quoted } from "../../text/python";
import { BoxCard, cell, readBoxes, type Box } from "./box";
import "./inside.css";

const stack = field<string>("stack", "");
const layer = field("layer", 0);
const token = field("token", 0);
const head = field("head", 0);

interface Sheet {
  stack: string;
  layer: number;
  token: number;
  head: number;
  layers: number;
  heads: number;
  tokens: { text: string; special: boolean }[];
  boxes: Box[];
}

const PARTS: Record<string, string> = {
  input: "What comes in",
  self: "Self-attention",
  cross: "Attention to the source",
  feed: "Feed-forward",
  output: "What goes out",
};

/** Another text or stack has other tokens, layers and heads. */
function begin(): void {
  layer.value = 0;
  token.value = 0;
  head.value = 0;
  cell.value = "";
}

export function Inside() {
  const from = origin();
  return (
    <>
      <Intro title="Inside">
        One token through one block, with the model's own numbers. Click a number to see how it is made.
      </Intro>
      <Sentence busy={false} onNew={begin} />
      {from.kind === "model" &&
        (from.entry.about?.heads === 0 ? (
          <p class="notice" data-testid="note">
            This model has no attention, so there is no block to look into. The tab Decode shows its steps.
          </p>
        ) : (
          <Block entry={from.entry} />
        ))}
      {from.kind === "trace" && (
        <p class="notice" data-testid="needs-model">
          A trace holds where a model looked, not all of its numbers: pick a model to look inside, or start `regard
          explore` with one.
        </p>
      )}
    </>
  );
}

/** The stacks whose blocks have boxes: of recurrent translators the decoder alone. */
function stacksOf(entry: ModelEntry): string[] {
  const { kind, layers } = entry.about!;
  return Object.keys(layers).filter((name) => layers[name] > 0 && !(kind.startsWith("rnn") && name === "encoder"));
}

function Block(props: { entry: ModelEntry }) {
  const { entry } = props;
  const stacks = entry.about ? stacksOf(entry) : [];
  const which = stacks.find((one) => one === stack.value) ?? stacks[0];
  // Which blocks there are is known when the model is loaded, and asking for a trace loads it.
  const loading = useRun(which ? null : { model: entry.name, text: textFor(entry) });
  const request = {
    model: entry.name,
    text: textFor(entry),
    stack: which,
    layer: layer.value,
    token: token.value,
    head: head.value,
  };
  const answer = useAnswer(which ? `inside ${JSON.stringify(request)}` : "", (stop) => askSheet(request, stop));
  const [found, busy, error] = [answer.found, answer.busy || loading.busy, answer.error || loading.error];
  return (
    <>
      <div class="bar">
        {stacks.length > 1 && (
          <Choice
            label="Stack"
            value={which!}
            options={stacks}
            onChange={(x) => {
              stack.value = x;
              begin();
            }}
            testid="stack"
          />
        )}
        {found && found.layers > 1 && (
          <Select
            label="Layer"
            value={found.layer}
            options={range(found.layers)}
            onChange={(x) => (layer.value = x)}
            testid="layer"
          />
        )}
        {found && found.heads > 1 && (
          <Select
            label="Head"
            value={found.head}
            options={range(found.heads)}
            onChange={(x) => (head.value = x)}
            testid="head"
          />
        )}
      </div>
      {error && (
        <Alert>
          {error} {/* A token that the new text has not: */}
          <button type="button" class="button" onClick={begin}>
            Begin with the first token
          </button>
        </Alert>
      )}
      {busy && !found && (
        <p class="notice" role="status" data-testid="waiting">
          {waitingFor(entry)}
        </p>
      )}
      {found && (
        <div class="inside" aria-busy={busy} data-testid="inside">
          <Tokens sheet={found} />
          <Flow sheet={found} model={entry.name} />
        </div>
      )}
    </>
  );
}

async function askSheet(request: Json, stop: AbortSignal): Promise<Sheet> {
  const found = await askInside(request, stop);
  return { ...found, boxes: readBoxes(found.boxes) } as Sheet;
}

/** The tokens to choose from. */
function Tokens(props: { sheet: Sheet }) {
  const { tokens, token: at, stack: which } = props.sheet;
  return (
    <fieldset class="choice" data-testid="tokens">
      <legend>{which === "encoder" ? "Token of the source" : "Token that was read last"}</legend>
      <div class="token-row" dir="auto">
        {tokens.map((one, i) => (
          <button
            key={i}
            type="button"
            class={one.special ? "piece special" : "piece"}
            aria-pressed={i === at}
            data-testid="token"
            onClick={() => (token.value = i)}>
            <bdi>{shownPiece(one.text)}</bdi>
          </button>
        ))}
      </div>
    </fieldset>
  );
}

function Flow(props: { sheet: Sheet; model: string }) {
  const { boxes } = props.sheet;
  const parts = Object.keys(PARTS).filter((part) => boxes.some((box) => box.part === part));
  return (
    <>
      {parts.map((part) => (
        <section key={part} class="flow" aria-label={PARTS[part]}>
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

/** Python for this view. */
export function insideCode(): string {
  const from = origin();
  if (from.kind !== "model") return "# A trace does not hold the numbers inside a block; pick a model.\n";
  const stacks = from.entry.about ? stacksOf(from.entry) : [];
  const which = stacks.find((one) => one === stack.value) ?? stacks[0] ?? "decoder";
  return [
    "import regard",
    "from regard.look import inside_block",
    "",
    `model = regard.load(${quoted(from.entry.name)})`,
    `place = {"layer": ${layer.value}, "token": ${token.value}, "head": ${head.value}}`,
    `found = inside_block(model, ${quoted(textFor(from.entry))}, stack=${quoted(which)}, **place)`,
    'for box in found["boxes"]:',
    '    print(box["id"], box["shape"], box["how"])',
    "",
  ].join("\n");
}
