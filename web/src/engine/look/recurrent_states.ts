// What a recurrent net computes along a text: gates and states, predictions, how far back its gradients reach.
// regard/look/recurrent.py; C1 to C4.
import { floatArray } from "../arrays/array_json";
import { fromRows, softmax } from "../arrays/matrix";
import { RequestError } from "../errors";
import type { LoadedModel } from "../folder/model_folder";
import { QUANTITIES, joined, type Cell, type LayerRun, type Recurrent } from "../models/recurrent";
import { RecurrentLanguageModel, RecurrentTranslator } from "../models/recurrent_models";
import { top, type Pause } from "../search/search";
import { START } from "../text/tokenizer";
import type { Json } from "../../state/trace";
import { gradientNorms } from "./gradients";
import { traceText } from "./trace";

const MAX_GRADIENT_STEPS = 80;
const TOP = 6; // predictions for each step

export async function recurrentStates(loaded: LoadedModel, { model: name, text }: Json, pause: Pause): Promise<Json> {
  const model = loaded.text;
  const writes = model instanceof RecurrentLanguageModel;
  if (!writes && !(model instanceof RecurrentTranslator))
    throw new RequestError(`a model of kind '${loaded.config.kind}' has no recurrent layers to look into`);
  if (!text.trim()) throw new RequestError("there is nothing to read: the text is empty");
  const ids = writes ? [START, ...loaded.sourceTokenizer.encode(text)] : loaded.reader!.read(text).ids;
  const table = writes ? model.table : model.source;
  const net: Recurrent = writes ? model.layers : model.encoder;
  const inputs = ids.map((token) => table.row(token));
  const runs = net.run(inputs);
  const last = runs.filter(({ layer }) => layer === runs.at(-1)!.layer);
  return {
    cell: loaded.config.model.cell,
    tokens: loaded.sourceTokenizer.pieces(ids),
    layers: runs.map((run) => layerValues(run, loaded.config.model.cell)),
    predictions: writes ? predictions(loaded, model, runs.at(-1)!) : [],
    gradients: net.layers[0].length > 1 ? [] : await gradientNorms(net, inputs, runs, MAX_GRADIENT_STEPS, pause),
    vector: writes ? null : lastState(last),
    output: writes ? null : (await traceText(loaded, { model: name, text, search: { name: "greedy" } }, pause)).output,
  };
}

function layerValues({ layer, backwards, steps }: LayerRun, cell: Cell): Json {
  const values: Json = {};
  for (const letter of QUANTITIES[cell]) {
    const rows = fromRows(steps.map((step) => step[letter]), steps[0][letter].length);
    values[letter] = floatArray([rows.rows, rows.cols], rows.data);
  }
  return { layer, backwards, values };
}

/** After each token, the most probable next ones. */
function predictions({ targetTokenizer }: LoadedModel, model: RecurrentLanguageModel, run: LayerRun): [string, number][][] {
  const states = run.steps.map(({ h }) => h);
  const logits = model.project(fromRows(states, states[0].length));
  return states.map((_, t) => {
    const shares = softmax(logits.row(t));
    return top(shares, Math.min(TOP, shares.length)).map((token) => [targetTokenizer.pieces([token])[0], shares[token]]);
  });
}

/** The state after the last token; a backward direction ends at the first token. */
function lastState(runs: LayerRun[]): Json {
  const vector = joined(runs.map(({ backwards, steps }) => steps[backwards ? 0 : steps.length - 1].h));
  return floatArray([vector.length], vector);
}
