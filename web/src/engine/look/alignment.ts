// The heads that align best, as config.json names them. regard/api/translation/alignment/alignment_head.py; D16, H1.
import { traceArray } from "../arrays/array_json";
import type { LoadedModel } from "../folder/model_folder";
import type { LayerWeights, Layers } from "../models/text_model";
import { END } from "../text/tokenizer";
import type { Json } from "../../state/trace";

interface AligningHead {
  layer: string;
  head: number | null;
  shifted: boolean; // whether it aligns a token at the step that reads it
}

/** The head that aligns best at the step that writes a token; by default the mean of the heads of the last layer. */
function chosenHead({ config, info }: LoadedModel): AligningHead {
  const last = "dim" in config.model ? `decoder.${(config.model.decoder_layers ?? config.model.layers) - 1}.cross` : "decoder.cross";
  return { layer: info.alignment?.layer ?? last, head: info.alignment?.head ?? null, shifted: false };
}

function chosenHeads(loaded: LoadedModel): AligningHead[] {
  const heads: Json[] | undefined = loaded.info.alignment?.heads;
  return heads
    ? heads.map(({ layer, head = null, shifted = false }) => ({ layer, head, shifted }))
    : [chosenHead(loaded)];
}

export function bestHead(loaded: LoadedModel): Json {
  const { layer, head } = chosenHead(loaded);
  const number = Number(/\d+/.exec(layer)?.[0] ?? 0);
  return head === null ? { layer: number } : { layer: number, head };
}

/** The rows of the head that aligns best. */
export function rowsOfBestHead(loaded: LoadedModel, layers: Layers): Float32Array[] {
  const { layer, head } = chosenHead(loaded);
  return headRows(layers.get(layer)!, head);
}

/** The alignment of the target's tokens: the mean of the chosen heads, as a map of one head. */
export function alignmentWeights(loaded: LoadedModel, layers: Layers, tokens: number[]): Json {
  const heads = chosenHeads(loaded);
  const { m, n } = layers.get(heads[0].layer)!;
  // The step that reads a token is the next one; the last token and an end token are read by none.
  const reading = tokens.map((token, i) => (token === END || i === m - 1 ? i : i + 1));
  const sums = new Float64Array(m * n);
  for (const { layer, head, shifted } of heads) {
    const rows = headRows(layers.get(layer)!, head);
    for (let i = 0; i < m; i++) rows[shifted ? reading[i] : i].forEach((weight, j) => (sums[i * n + j] += weight));
  }
  const weights = new Float32Array(m * n);
  for (let i = 0; i < m; i++) {
    const row = sums.subarray(i * n, (i + 1) * n);
    const total = row.reduce((sum, weight) => sum + weight, 0);
    row.forEach((weight, j) => (weights[i * n + j] = total > 0 ? weight / total : 0));
  }
  return { query: "target", key: "source", weights: traceArray([1, 1, m, n], weights) };
}

/** The rows of a head, or of the mean of all heads. */
function headRows({ heads, m, n, weights }: LayerWeights, head: number | null): Float32Array[] {
  return Array.from({ length: m }, (_, i) => {
    if (head !== null) return weights.subarray((head * m + i) * n, (head * m + i + 1) * n);
    return Float32Array.from({ length: n }, (_, j) => {
      let sum = 0;
      for (let h = 0; h < heads; h++) sum += weights[(h * m + i) * n + j];
      return sum / heads;
    });
  });
}
