// Random features: exact attention, the lecture's formula and a corrected formula for the same queries and keys.
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
  example,
  exampleId,
  EXAMPLES,
  features,
  INFINITE,
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
      φ(x) = M<sup>−½</sup> e<sup>|x|²/2</sup> [sin Wx, cos Wx]: the lecture's features with the missing
      factor (F3). Estimated weights may be negative.
    </>
  ),
  positive: (
    <>
      φ(x) = M<sup>−½</sup> exp(Wx − |x|²/2): all estimated weights are positive (Choromanski et al. 2021).
    </>
  ),
  hyperbolic: (
    <>
      φ(x) = (2M)<sup>−½</sup> e<sup>−|x|²/2</sup> [exp Wx, exp −Wx]: positive, and each row of W is used
      twice.
    </>
  ),
  optimal: (
    <>
      φ(x) = M<sup>−½</sup> (1−4A)<sup>d/4</sup> exp(A|w|² + √(1−4A) Wx − |x|²/2), with the optimal A for these queries
      and keys (Likhosherstov et al. 2022).
    </>
  ),
  elu: "φ(x) = elu(x) + 1: deterministic linear attention, for comparison. It does not approximate the softmax.",
};

export function RandomFeatures() {
  return (
    <>
      <Intro title="Random features">
        If exp(q·k) were an inner product φ(q)·φ(k), attention could sum over the keys once for all queries, in time linear
        in the length. Random features achieve this in expectation.
      </Intro>
      <Settings />
      {example.value.id === "model" && <ModelHead />}
      {shown.value && compared.value && (
        <>
          <Maps comparison={compared.value} />
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
  const stops = [...COUNTS, INFINITE];
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
          label="Feature map φ"
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
          label="Features F ="
          value={stops.indexOf(features.value)}
          min={0}
          max={stops.length - 1}
          step={1}
          show={(stop) => countText(stops[stop])}
          testid="features-count"
          onChange={(stop) => choose.features(stops[stop])}
        />
        <NumberInput
          label="Seed"
          value={seed.value}
          min={0}
          max={9999}
          testid="features-seed"
          onChange={(value) => (seed.value = value)}
        />
        {map.value !== "elu" && (
          <Toggle
            label="Normalize queries and keys to length 1"
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
  return count === INFINITE ? "∞" : String(count);
}

function Maps(props: { comparison: Compared }) {
  const { comparison } = props;
  const count = `F = ${countText(features.value)}`;
  return (
    <>
      <div class="columns three">
        <WeightMap
          name="exact"
          title="Exact softmax"
          comparison={comparison}
          note="D⁻¹ exp(QKᵀ/√d) (F1). Rows are queries, columns are keys."
        />
        <WeightMap
          name="plain"
          title={`Lecture's formula, ${count}`}
          comparison={comparison}
          note={
            normalize.value
              ? "All keys have the same length, so the missing factor is the same for all keys and cancels."
              : "Without the factor exp(|k|²/2√d), long keys get too little weight (F3)."
          }
        />
        <WeightMap
          name="corrected"
          title={map.value === "elu" ? "Linear attention, elu(x) + 1" : `Corrected (${map.value}), ${count}`}
          comparison={comparison}
          note={map.value === "elu" ? "A different kind of attention, for comparison." : "With the missing factor: converges to the exact weights."}
        />
      </div>
      {comparison.errors.corrected > 1 && (
        <Alert testid="features-noise">
          The error is larger than the weights themselves: these queries and keys are too long for this number of
          features. Normalize them to length 1, or use exact attention for this head.
        </Alert>
      )}
    </>
  );
}

/** A map of weights, on the colour scale of the exact weights. */
function WeightMap(props: {
  name: "exact" | "plain" | "corrected";
  title: string;
  note: string;
  comparison: Compared;
}) {
  const { name, comparison } = props;
  const { rows, cols, causal } = shown.value!;
  const [m, n] = [rows.length, cols.length];
  const read = (i: number, j: number) => {
    const value = (of: Float64Array) => fixed(of[i * n + j], 4);
    return `“${rows[i]}” attends to “${cols[j]}”: exact ${value(comparison.exact)}, lecture ${value(comparison.plain)}, ${map.value} ${value(comparison.corrected)}`;
  };
  const mask = causal ? Uint8Array.from({ length: m * n }, (_, at) => +(at % n <= Math.floor(at / n) + n - m)) : null;
  return (
    <Figure title={props.title} name={`features-${name}`} note={props.note}>
      <Matrix
        testid={`features-${name}`}
        label={`${props.title}, ${m} queries by ${n} keys`}
        values={comparison[name]}
        rows={rows}
        cols={cols}
        scale="signed"
        most={largest(comparison.exact)}
        mask={mask}
        maxCell={64}
        read={read}
        pin={readPin(pin.value, { rows: m, cols: n })}
        onPin={(cell) => (pin.value = writePin(cell))}
      />
      {name !== "exact" && (
        <p class="readout">
          Relative error: <output data-testid={`features-${name}-error`}>{fixed(comparison.errors[name], 4)}</output>
        </p>
      )}
    </Figure>
  );
}
