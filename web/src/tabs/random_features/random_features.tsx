// Random features: exact attention, the lecture's formula and a corrected one on the same queries and keys.
import type { ComponentChildren } from "preact";
import { largest } from "../../chart/canvas";
import { Figure } from "../../chart/figure";
import { Matrix } from "../../chart/matrix/matrix";
import { Alert, Choice, Intro, NumberInput, Select, Slider, Toggle } from "../../controls/controls";
import { readPin, writePin } from "../../state/selection";
import { fixed } from "../../text/numbers";
import { Costs, Errors } from "./curves";
import { MAPS, type FeatureMap } from "./estimates";
import { ModelHead } from "./model_head";
import {
  choose,
  compared,
  COUNTS,
  draw,
  ENDLESS,
  example,
  exampleId,
  EXAMPLES,
  features,
  map,
  normalize,
  pin,
  seed,
  shown,
  type Compared,
} from "./state";

const ABOUT: Record<FeatureMap, ComponentChildren> = {
  plain: "",
  trig: (
    <>
      φ(x) = M<sup>−½</sup> e<sup>|x|²/2</sup> [sin Wx, cos Wx]: the lecture's features with the factor that they lack
      (F3). An estimate may be negative.
    </>
  ),
  positive: (
    <>
      φ(x) = M<sup>−½</sup> exp(Wx − |x|²/2): every estimate is positive (Choromanski et al. 2021).
    </>
  ),
  hyperbolic: (
    <>
      φ(x) = (2M)<sup>−½</sup> e<sup>−|x|²/2</sup> [exp Wx, exp −Wx]: positive, and each row of W serves twice.
    </>
  ),
  optimal: (
    <>
      φ(x) = M<sup>−½</sup> (1−4A)<sup>d/4</sup> exp(A|w|² + √(1−4A) Wx − |x|²/2), with the best A for these queries and
      keys (Likhosherstov et al. 2022).
    </>
  ),
  elu: "φ(x) = elu(x) + 1: no randomness, and no estimate of the softmax; linear attention to compare with.",
};

export function RandomFeatures() {
  return (
    <>
      <Intro title="Random features">
        If exp(q·k) were a product of two vectors φ(q)·φ(k), the keys could be summed up before any query comes, in time
        linear in the length. Random features make it so on average.
      </Intro>
      <Settings />
      {example.value.id === "model" && <ModelHead />}
      {shown.value && compared.value && (
        <>
          <Maps found={compared.value} />
          <div class="columns">
            <Errors bias={compared.value.errors.limit} />
            <Costs />
          </div>
        </>
      )}
    </>
  );
}

function Settings() {
  const stops = [...COUNTS, ENDLESS];
  return (
    <section class="panel settings" aria-label="Settings">
      <div class="bar">
        <Select
          label="Queries and keys"
          value={example.value.id}
          testid="features-example"
          options={EXAMPLES.map(({ id, title }) => ({ value: id as string, label: title }))}
          onChange={(id) => {
            pin.value = "";
            exampleId.value = id;
          }}
        />
        <Choice
          label="Map φ"
          value={map.value}
          testid="features-map"
          options={[...MAPS] as FeatureMap[]}
          onChange={choose.map}
        />
        <Choice
          label="Rows of W"
          value={draw.value}
          testid="features-draw"
          options={["orthogonal", "independent"]}
          onChange={choose.draw}
        />
      </div>
      <div class="bar">
        <Slider
          label="features F ="
          value={stops.indexOf(features.value)}
          min={0}
          max={stops.length - 1}
          step={1}
          show={(stop) => countText(stops[stop])}
          testid="features-count"
          onChange={(stop) => choose.features(stops[stop])}
        />
        <NumberInput
          label="seed"
          value={seed.value}
          min={0}
          max={9999}
          testid="features-seed"
          onChange={(value) => (seed.value = value)}
        />
        {map.value !== "elu" && (
          <Toggle
            label="queries and keys of length 1"
            value={normalize.value}
            testid="features-normalize"
            onChange={choose.normalize}
          />
        )}
      </div>
      <p class="note" data-testid="features-about">
        {example.value.about} {ABOUT[map.value]}
      </p>
    </section>
  );
}

export function countText(count: number): string {
  return count === ENDLESS ? "∞" : String(count);
}

function Maps(props: { found: Compared }) {
  const { found } = props;
  const many = `F = ${countText(features.value)}`;
  return (
    <>
      <div class="columns three">
        <One
          name="exact"
          title="Exact softmax"
          found={found}
          note="D⁻¹ exp(QKᵀ/√d) (F1). Rows are queries, columns keys."
        />
        <One
          name="plain"
          title={`Lecture's formula, ${many}`}
          found={found}
          note={
            normalize.value
              ? "All keys have one length, so the factor that it lacks is the same for all and cancels."
              : "Without exp(|k|²/2√d) it gives long keys too little weight (F3)."
          }
        />
        <One
          name="corrected"
          title={map.value === "elu" ? "Linear attention, elu(x) + 1" : `Corrected (${map.value}), ${many}`}
          found={found}
          note={map.value === "elu" ? "Another attention, to compare with." : "With the factor: right on average."}
        />
      </div>
      {found.errors.corrected > 1 && (
        <Alert testid="features-noise">
          The error is larger than what is estimated: these queries and keys are too long for so few features. Bring
          them to length 1, or keep this head exact.
        </Alert>
      )}
    </>
  );
}

/** One of the maps, all in the colours of the exact one. */
function One(props: { name: "exact" | "plain" | "corrected"; title: string; note: string; found: Compared }) {
  const { name, found } = props;
  const { rows, cols, causal } = shown.value!;
  const [m, n] = [rows.length, cols.length];
  const read = (i: number, j: number) => {
    const value = (of: Float64Array) => fixed(of[i * n + j], 4);
    return `“${rows[i]}” looks at “${cols[j]}”: exact ${value(found.exact)}, lecture's ${value(found.plain)}, ${map.value} ${value(found.corrected)}`;
  };
  const mask = causal ? Uint8Array.from({ length: m * n }, (_, at) => +(at % n <= Math.floor(at / n) + n - m)) : null;
  return (
    <Figure title={props.title} name={`features-${name}`} note={props.note}>
      <Matrix
        testid={`features-${name}`}
        label={`${props.title}, ${m} queries by ${n} keys`}
        values={found[name]}
        rows={rows}
        cols={cols}
        scale="signed"
        most={largest(found.exact)}
        mask={mask}
        maxCell={64}
        read={read}
        pin={readPin(pin.value, { rows: m, cols: n })}
        onPin={(cell) => (pin.value = writePin(cell))}
      />
      {name !== "exact" && (
        <p class="readout">
          Error against exact: <output data-testid={`features-${name}-error`}>{fixed(found.errors[name], 4)}</output>
        </p>
      )}
    </Figure>
  );
}
