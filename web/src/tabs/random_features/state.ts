// What the tab Random features works on: queries and keys of an example or of a model's head, a map, a draw.
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
export const ENDLESS = 0; // as a number of features: infinitely many
const MANY = 4096; // pairs of a query and a key from which on one draw must do for the curve
const KEPT = 32; // draws

/** Queries and keys with the words that they belong to. */
export interface Shown extends Head {
  rows: string[];
  cols: string[];
}

/** Where the head of a model stands. */
export interface Place {
  map: MapName;
  layer: number;
  head: number;
}

export const EXAMPLES = [
  {
    id: "jane",
    title: "Jane's sentence, by hand",
    about:
      "Five words with small matrices (E9). Their keys are from 1 to 2.1 long, so the lecture's formula is off however many features it has.",
  },
  {
    id: "unit",
    title: "Random vectors of length 1",
    about: "16 queries and keys of width 64 with length 1, as normalising makes them. Here 128 features do well.",
  },
  {
    id: "normal",
    title: "Random vectors, numbers from N(0, 1)",
    about:
      "16 queries and keys of width 64, each about 8 long. The variance grows as the exponential of the squared length: what is estimated drowns in noise.",
  },
  { id: "model", title: "A head of a model", about: "The queries and keys of a head that has read the sentence." },
] as const;

export const exampleId = field<string>("of", "jane");
const mapName = field<string>("phi", "trig");
const featuresField = field("features", 128);
export const seed = field("seed", 0);
const drawName = field<string>("draw", "orthogonal");
const normalizeField = field("normalize", false);
export const pin = field("pin", "");

export const example = computed(() => EXAMPLES.find(({ id }) => id === exampleId.value) ?? EXAMPLES[0]);
export const map = computed<FeatureMap>(() => MAPS.find((one) => one === mapName.value) ?? "trig");
export const draw = computed<Draw>(() => (drawName.value === "independent" ? "independent" : "orthogonal"));
export const features = computed(() =>
  [...COUNTS, ENDLESS].includes(featuresField.value) ? featuresField.value : 128,
);
/** elu takes vectors as they are. */
export const normalize = computed(() => normalizeField.value && map.value !== "elu");

export const choose = {
  map: (value: FeatureMap) => (mapName.value = value),
  features: (value: number) => (featuresField.value = value),
  draw: (value: Draw) => (drawName.value = value),
  normalize: (value: boolean) => (normalizeField.value = value),
};

/** The head that a model's trace gave, and where it stands. */
export const modelHead = signal<{ shown: Shown; place: Place } | null>(null);

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

/** The first rows of a draw, which are the same whatever their number; so each is drawn once. */
function rowsOf(count: number, dim: number, seed: number): Vectors {
  const key = `${dim} ${draw.value} ${seed}`;
  if (!draws.has(key)) draws.set(key, drawRows(COUNTS[COUNTS.length - 1], dim, draw.value, seed));
  for (const oldest of [...draws.keys()].slice(0, -KEPT)) draws.delete(oldest);
  return draws.get(key)!.slice(0, count);
}

function estimate(which: FeatureMap): Float64Array | null {
  if (!shown.value) return null;
  if (features.value === ENDLESS && which !== "elu") return which === "plain" ? limit.value : exact.value;
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

/** The weights of the same queries and keys, made in each way. */
export const compared = computed<Compared | null>(() => {
  if (!exact.value || !limit.value || !plain.value || !corrected.value) return null;
  const error = (found: Float64Array) => relativeError(found, exact.value!);
  return {
    exact: exact.value,
    plain: plain.value,
    corrected: corrected.value,
    limit: limit.value,
    errors: { plain: error(plain.value), corrected: error(corrected.value), limit: error(limit.value) },
  };
});

export const seeds = computed(() => (shown.value && shown.value.q.length * shown.value.k.length > MANY ? 1 : 9));
export const curves = computed(() => {
  const head = shown.value;
  if (!head) return null;
  const curve = (which: FeatureMap) =>
    errorCurve(head, which, COUNTS, which === "elu" ? 1 : seeds.value, normalize.value, (i, count) =>
      rowsOf(count, head.q[0].length, seed.value + i),
    );
  return { plain: curve("plain"), corrected: curve(map.value) };
});

/** How many numbers φ has now, and rows W: elu makes as many as a vector has. */
export const sizes = computed(() => {
  const F = map.value === "elu" ? (shown.value?.q[0].length ?? 0) : features.value;
  return { F, M: rowsFor(map.value, F) };
});

/** Python for this view. */
export function featuresCode(): string {
  const python = (value: boolean) => (value ? "True" : "False");
  const count = features.value === ENDLESS ? 1024 : features.value;
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
    const { map: which, layer, head } = modelHead.value?.place ?? { map: "cross", layer: 0, head: 0 };
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
    `options = dict(features=${count}, ${options})  # the same seed draws other rows than the page's`,
    "exact, limit, plain, corrected = compare_features(head, **options)",
    'print(exact, corrected, sep="\\n")',
    'save(random_features_plot(head, **options), "random-features.svg")',
    "",
  ].join("\n");
}
