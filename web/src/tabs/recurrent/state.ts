// The state of the Recurrent tab: the model, the text, and what the server computed for it.
import { pickModel } from "../../controls/served_model";
import { clamp } from "../../maths/grid";
import { ask, type Json, type ModelEntry } from "../../state/api";
import { useAnswer, type Answer } from "../../state/requests";
import { decodeArray, type Numbers } from "../../state/trace";
import { field } from "../../state/url";
import { quoted } from "../../text/python";

export type Cell = "rnn" | "gru" | "lstm";

/** The gates and states of a layer in one direction, each [tokens, units]. */
export interface LayerValues {
  layer: number;
  backwards: boolean;
  values: Record<string, Numbers>;
}

export interface States {
  cell: Cell;
  tokens: string[];
  layers: LayerValues[];
  predictions: [string, number][][];
  gradients: number[];
  vector: Numbers | null;
  output: string | null;
}

export const RECURRENT = ["rnn-lm", "rnn-seq2seq", "rnn-attention"] as const;
export const CELL_NAMES: Record<Cell, string> = { rnn: "RNN", gru: "GRU", lstm: "LSTM" };
export const QUANTITIES: Record<string, string> = {
  h: "h: hidden state",
  c: "c: cell state",
  i: "i: update gate",
  f: "f: forget gate",
  o: "o: output gate",
  g: "g: new content",
  r: "r: reset gate",
  z: "z: update gate",
  n: "n: new content",
};
const EXAMPLES: Record<string, string> = {
  writer: "O Romeo, Romeo! wherefore art thou Romeo?",
  translator: "Jane visite l'Afrique en septembre.",
};

export const net = field("net", "");
export const line = field("line", "");
export const quantity = field("show", "h");
export const direction = field("layer", 0); // an index of `layers`
export const step = field("step", -1); // -1: the last
export const unit = field("unit", -1); // -1: the one that varies most
export const shownCell = field<Cell | "">("cell", "");

export function currentModel(): ModelEntry | undefined {
  return pickModel(net.value, RECURRENT);
}

export function lineFor(model: ModelEntry): string {
  return line.value || EXAMPLES[model.kind];
}

/** What the model computes along a text; an empty model sends no request. */
export function useStates(model: string, text: string): Answer<States> {
  const request = { model, text };
  return useAnswer(model === "" ? "" : `recurrent ${JSON.stringify(request)}`, async (stop) =>
    readStates(await ask<Json>("api/recurrent", request, stop)),
  );
}

function readStates(raw: Json): States {
  const layers = raw.layers.map((layer: Json) => ({
    ...layer,
    values: Object.fromEntries(
      Object.entries<Json>(layer.values).map(([name, packed]) => [name, decodeArray(packed, name)]),
    ),
  }));
  return { ...raw, layers, vector: raw.vector && decodeArray(raw.vector, "vector") } as States;
}

/** The values of one quantity of the shown layer: those of unit u at step t are at [t * units + u]. */
export interface View {
  states: States;
  values: LayerValues;
  units: number;
  step: number;
  unit: number;
}

export function viewOf(states: States): View {
  const values = states.layers[clamp(direction.value, states.layers.length)];
  const [tokens, units] = values.values.h.shape;
  const chosen = Number.isInteger(unit.value) && unit.value >= 0 && unit.value < units ? unit.value : liveliest(values.values.h);
  return { states, values, units, step: step.value < 0 ? tokens - 1 : clamp(step.value, tokens), unit: chosen };
}

/** The unit whose hidden state varies most along the text. */
function liveliest({ shape: [tokens, units], values }: Numbers): number {
  let [best, most] = [0, -1];
  for (let u = 0; u < units; u++) {
    let [sum, squares] = [0, 0];
    for (let t = 0; t < tokens; t++) {
      sum += values[t * units + u];
      squares += values[t * units + u] ** 2;
    }
    const variance = squares / tokens - (sum / tokens) ** 2;
    if (variance > most) [best, most] = [u, variance];
  }
  return best;
}

/** The value of a quantity at a step; before the first step a state is 0. */
export function at({ values, units, unit }: View, name: string, step: number): number {
  const first = values.backwards ? values.values.h.shape[0] : -1;
  return step === first ? 0 : values.values[name].values[step * units + unit];
}

/** The step whose state the step started from. */
export function stepBefore({ values, step }: View): number {
  return values.backwards ? step + 1 : step - 1;
}

export function recurrentCode(): string {
  const model = currentModel();
  const name = model?.name ?? "shakespeare-lstm";
  const text = model ? lineFor(model) : EXAMPLES.writer;
  return [
    "import regard",
    "from regard.look import recurrent_states",
    "",
    `states = recurrent_states(regard.load(${quoted(name)}), ${quoted(text)})`,
    "print(states.cell, states.tokens)",
    "for name, values in states.layers[0].values.items():",
    "    print(name, values.shape)  # (tokens, units)",
    "print(states.gradients)  # by distance from the last token",
    "",
  ].join("\n");
}
