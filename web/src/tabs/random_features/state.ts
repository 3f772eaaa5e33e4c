// The state of the Random features tab: the queries and keys, the feature map and the random draw.
import { computed, signal } from "@preact/signals";
import { normalNumbers } from "../../maths/random";
import { origin, textFor } from "../../state/runs";
import type { MapName } from "../../state/trace";
import { field } from "../../state/url";
import { quoted } from "../../text/python";
import { PRESETS as LAB } from "../lab/presets";
import {
  drawRows,
  errorCurve,
  estimateWeights,
  exactWeights,
  limitWeights,
  MAPS,
  relativeError,
  rowsFor,
  type Draw,
  type FeatureMap,
  type Head,
  type Vectors,
} from "./estimates";

export const COUNTS = [16, 32, 64, 128, 256, 512, 1024] as const;
export const INFINITE = 0; // stands for infinitely many features
const MAX_CELLS = 4096; // of a map; larger maps use a single draw for the error curve
const CACHED_DRAWS = 32;

/** Queries and keys with their tokens. */
export interface Shown extends Head {
  rows: string[];
  cols: string[];
}

/** The address of a head in a model. */
export interface HeadAddress {
  map: MapName;
  layer: number;
  head: number;
}

export const EXAMPLES = [
  {
    id: "jane",
    title: "Hand-made example (Jane's sentence)",
    about:
      "Five words with small matrices (E9). The keys have lengths from 1 to 2.1, so the lecture's formula is biased for any number of features.",
  },
  {
    id: "unit",
    title: "Random vectors of length 1",
    about: "16 queries and keys of width 64, normalized to length 1. 128 features work well here.",
  },
  {
    id: "normal",
    title: "Random vectors from N(0, 1)",
    about:
      "16 queries and keys of width 64, each of length about 8. The variance of the estimate grows exponentially with the squared length, so noise dominates.",
  },
  { id: "model", title: "A head of a model", about: "The queries and keys of a head for the sentence below." },
] as const;

export const exampleId = field<string>("of", "jane");
const mapName = field<string>("phi", "trig");
const featuresField = field("features", 128);
export const seed = field("seed", 0);
const drawName = field<string>("draw", "orthogonal");
const normalizeField = field("normalize", false);
export const pin = field("pin", "");

export const example = computed(() => EXAMPLES.find(({ id }) => id === exampleId.value) ?? EXAMPLES[0]);
export const map = computed<FeatureMap>(() => MAPS.find((name) => name === mapName.value) ?? "trig");
export const draw = computed<Draw>(() => (drawName.value === "independent" ? "independent" : "orthogonal"));
export const features = computed(() =>
  [...COUNTS, INFINITE].includes(featuresField.value) ? featuresField.value : 128,
);
/** elu does not normalize its vectors. */
export const normalize = computed(() => normalizeField.value && map.value !== "elu");

export const choose = {
  map: (value: FeatureMap) => (mapName.value = value),
  features: (value: number) => (featuresField.value = value),
  draw: (value: Draw) => (drawName.value = value),
  normalize: (value: boolean) => (normalizeField.value = value),
};

/** The selected head of a model, and its address. */
export const modelHead = signal<{ shown: Shown; address: HeadAddress } | null>(null);

function vectors(rows: readonly (readonly number[])[]): Vectors {
  return rows.map((row) => Float64Array.from(row));
}

function randomExample(unit: boolean): Shown {
  const [size, width] = [16, 64];
  const normal = normalNumbers(1);
  const rows = () =>
    Array.from({ length: size }, () => {
      const row = Float64Array.from({ length: width }, normal);
      const length = Math.sqrt(row.reduce((sum, value) => sum + value * value, 0));
      return unit ? row.map((value) => value / length) : row;
    });
  const names = (letter: string) => Array.from({ length: size }, (_, i) => `${letter}${i + 1}`);
  return {
    q: rows(),
    k: rows(),
    scale: unit ? 1 : width ** -0.5,
    causal: false,
    rows: names("q"),
    cols: names("k"),
  };
}

export const shown = computed<Shown | null>(() => {
  if (example.value.id === "model") return modelHead.value?.shown ?? null;
  if (example.value.id !== "jane") return randomExample(example.value.id === "unit");
  const { q, k, queries, keys } = LAB.find(({ id }) => id === "jane")!;
  return {
    q: vectors(q),
    k: vectors(k),
    scale: k[0].length ** -0.5,
    causal: false,
    rows: queries!,
    cols: keys!,
  };
});

const exact = computed(() => shown.value && exactWeights(shown.value, normalize.value));
const limit = computed(() => shown.value && limitWeights(shown.value, normalize.value));

const draws = new Map<string, Vectors>();

/** The first rows of a draw; they do not depend on how many are drawn, so each draw is made once. */
function rowsOf(count: number, dim: number, seed: number): Vectors {
  const key = `${dim} ${draw.value} ${seed}`;
  if (!draws.has(key)) draws.set(key, drawRows(COUNTS[COUNTS.length - 1], dim, draw.value, seed));
  for (const oldest of [...draws.keys()].slice(0, -CACHED_DRAWS)) draws.delete(oldest);
  return draws.get(key)!.slice(0, count);
}

function estimate(which: FeatureMap): Float64Array | null {
  if (!shown.value) return null;
  if (features.value === INFINITE && which !== "elu") return which === "plain" ? limit.value : exact.value;
  const W = rowsOf(rowsFor(which, features.value), shown.value.q[0].length, seed.value);
  return estimateWeights(shown.value, which, W, normalize.value);
}
const plain = computed(() => estimate("plain"));
const corrected = computed(() => estimate(map.value));

export interface Compared {
  exact: Float64Array;
  plain: Float64Array;
  corrected: Float64Array;
  limit: Float64Array;
  errors: { plain: number; corrected: number; limit: number };
}

/** The weights of the same queries and keys by each method. */
export const compared = computed<Compared | null>(() => {
  if (!exact.value || !limit.value || !plain.value || !corrected.value) return null;
  const error = (weights: Float64Array) => relativeError(weights, exact.value!);
  return {
    exact: exact.value,
    plain: plain.value,
    corrected: corrected.value,
    limit: limit.value,
    errors: { plain: error(plain.value), corrected: error(corrected.value), limit: error(limit.value) },
  };
});

export const seeds = computed(() => (shown.value && shown.value.q.length * shown.value.k.length > MAX_CELLS ? 1 : 9));
export const curves = computed(() => {
  const head = shown.value;
  if (!head) return null;
  const curve = (which: FeatureMap) =>
    errorCurve(head, which, COUNTS, which === "elu" ? 1 : seeds.value, normalize.value, (i, count) =>
      rowsOf(count, head.q[0].length, seed.value + i),
    );
  return { plain: curve("plain"), corrected: curve(map.value) };
});

/** The number of features F and of rows M of W; elu has as many features as a vector has dimensions. */
export const sizes = computed(() => {
  const F = map.value === "elu" ? (shown.value?.q[0].length ?? 0) : features.value;
  return { F, M: rowsFor(map.value, F) };
});

/** The Python code that reproduces this view. */
export function featuresCode(): string {
  const python = (value: boolean) => (value ? "True" : "False");
  const count = features.value === INFINITE ? 1024 : features.value;
  const options = `map="${map.value}", normalize=${python(normalize.value)}, draw="${draw.value}", seed=${seed.value}`;
  const from = origin();
  const unit = example.value.id === "unit";
  const random = unit || example.value.id === "normal";
  let [imports, make] = [["jane_head"], ["head = jane_head()"]];
  if (random)
    [imports, make] = [
      [],
      [
        "q, k = torch.randn(2, 16, 64, dtype=torch.float64)",
        ...(unit ? ["q, k = (x / x.norm(dim=-1, keepdim=True) for x in (q, k))"] : []),
        `names = [str(i + 1) for i in range(16)]`,
        `head = HeadVectors(q, k, names, names, scale=${unit ? "1.0" : "64**-0.5"})`,
      ],
    ];
  else if (example.value.id === "model") {
    const { map: which, layer, head } = modelHead.value?.address ?? { map: "cross", layer: 0, head: 0 };
    const trace =
      from.kind === "model"
        ? `trace_text(regard.load(${quoted(from.entry.name)}), ${quoted(textFor(from.entry))}, vectors=True)`
        : 'Trace.load("trace.json")';
    imports = [from.kind === "model" ? "trace_text" : "Trace", "read_head"];
    make = [`trace = ${trace}`, `head = read_head(trace, "${which}", layer=${layer}, head=${head})`];
  }
  const names = [...imports, "compare_features", "random_features_plot", "save"].sort().join(", ");
  return [
    ...(random ? ["import torch"] : []),
    ...(example.value.id === "model" && from.kind === "model" ? ["import regard"] : []),
    `from regard.look import ${names}`,
    ...(random ? ["from regard.look.inside.random_features import HeadVectors"] : []),
    "",
    ...make,
    `options = dict(features=${count}, ${options})  # the page draws other random rows for the same seed`,
    "exact, limit, plain, corrected = compare_features(head, **options)",
    'print(exact, corrected, sep="\\n")',
    'save(random_features_plot(head, **options), "random-features.svg")',
    "",
  ].join("\n");
}
