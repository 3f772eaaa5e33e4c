// Inner products of positions: for all pairs, by distance, and the variance by dimensions.
import { Figure } from "../../chart/figure";
import { Matrix } from "../../chart/matrix/matrix";
import { Plot } from "../../chart/plot";
import { Button, Slider } from "../../controls/controls";
import { readPin, writePin } from "../../state/selection";
import { Formula, Sub } from "../../text/formulas";
import { equals, factor, fixed, short } from "../../text/numbers";
import { base, byDistance, first, kind, pair, products, table, variances } from "./state";
import { DISTANCES } from "./tables";

export function Products() {
  const n = table.value.length;
  const positions = Array.from({ length: n }, (_, t) => String(t));
  const { mean, spread } = byDistance.value;
  const same = spread < 1e-6;
  return (
    <Figure
      title="Inner products of all pairs"
      name="positions-products"
      note={
        same ? (
          <>
            Constant along each diagonal: <ProductFormula />
          </>
        ) : (
          "They vary along the diagonals: the inner product depends on more than the distance."
        )
      }
    >
      <Matrix
        testid="positions-products"
        label={`Inner products of ${n} positions`}
        values={products.value}
        rows={positions}
        cols={positions}
        rowTitle="position t"
        colTitle="position t′"
        scale="signed"
        read={(s, t) => productRead(s, t)}
        pin={readPin(pair.value, { rows: n, cols: n })}
        onPin={(cell) => (pair.value = writePin(cell))}
      />
      <p class="readout">
        Main diagonal{same ? "" : " (mean)"}: <output data-testid="positions-diagonal">{fixed(mean[0])}</output> ·
        largest variation along a diagonal: <output data-testid="positions-spread">{spreadText(spread)}</output>
      </p>
    </Figure>
  );
}

function spreadText(value: number): string {
  return value === 0 ? "0" : value < 1e-3 ? value.toExponential(1).replace("-", "−") : short(value);
}

function ProductFormula() {
  return (
    <Formula label="p t times p t prime equals the sum over i of the cosine of t minus t prime, over base to the two i over d">
      <Sub base="p" index="t" />
      <mo>·</mo>
      <Sub base="p" index="t′" />
      <mo>=</mo>
      <msub>
        <mo>∑</mo>
        <mi>i</mi>
      </msub>
      <mi>cos</mi>
      <mtext>(</mtext>
      <mtext>(</mtext>
      <mi>t</mi>
      <mo>−</mo>
      <mi>t′</mi>
      <mtext>)</mtext>
      <mo>/</mo>
      <msup>
        <mn>{base.value}</mn>
        <mrow>
          <mn>2</mn>
          <mi>i</mi>
          <mo>/</mo>
          <mi>d</mi>
        </mrow>
      </msup>
      <mtext>)</mtext>
    </Formula>
  );
}

function productRead(s: number, t: number): string {
  const { length: n, dim: d, table: values } = table.value;
  const value = products.value[s * n + t];
  const term = (c: number) => `${factor(values[s * d + c])}·${factor(values[t * d + c])}`;
  const terms = d <= 6 ? Array.from({ length: d }, (_, c) => term(c)) : [term(0), term(1), term(2), "…", term(d - 1)];
  return `t = ${s}, t′ = ${t}: ${terms.join(" + ")} ${equals(value)} ${fixed(value)}`;
}

export function ByDistance() {
  const { mean, low, high } = byDistance.value;
  const distances = Array.from(mean, (_, i) => i);
  return (
    <Figure
      title="Inner product by distance"
      name="positions-distance"
      note="The line is the mean of each diagonal; the band shows its minimum and maximum."
    >
      <Plot
        testid="positions-distance"
        label="Inner product by distance"
        curves={[{ name: "mean", x: distances, y: mean, low, high }]}
        xTitle="distance |t − t′|"
        yTitle="inner product"
        read={(i) =>
          `distance ${i}: ${fixed(mean[i])}${high[i] - low[i] > 1e-6 ? `, from ${fixed(low[i])} to ${fixed(high[i])}` : ""}`
        }
        height={320}
      />
    </Figure>
  );
}

export function Variance() {
  const waves = kind.value !== "learned";
  const reach = waves ? DISTANCES : Math.min(DISTANCES, table.value.length);
  const frequencyNote = waves
    ? "The first pairs have the highest frequencies, so they distinguish nearby positions."
    : "";
  const all = variances.value;
  const total = all[all.length - 1];
  const defaultK = Math.min(50, 2 * all.length);
  const k = first.value >= 2 && first.value <= 2 * all.length ? first.value - (first.value % 2) : defaultK;
  const share = (index: number) => all[index] / total;
  const read = (index: number) =>
    `k = ${2 * index + 2}: ${fixed(all[index], 2)} of ${fixed(total, 2)}, ${(100 * share(index)).toFixed(1)}%`;
  return (
    <Figure
      title="Which dimensions encode the distance"
      name="positions-variance"
      note={`Variance of the inner product of the first k dimensions, over the distances |t − t′| = 0 … ${reach - 1} (B4). ${frequencyNote}`}
    >
      <div class="bar">
        <Slider
          label="First k dimensions, k ="
          value={k}
          min={2}
          max={2 * all.length}
          step={2}
          testid="positions-k"
          onChange={(value) => (first.value = value === defaultK ? 0 : value)}
        />
        <Button
          testid="positions-k-95"
          onClick={() => (first.value = 2 * all.findIndex((value) => value / total >= 0.95) + 2)}
        >
          Find k for 95%
        </Button>
        <p>
          contain <output data-testid="positions-share">{(100 * share(k / 2 - 1)).toFixed(1)}%</output> of the total
          variance of <output data-testid="positions-total">{fixed(total, 2)}</output>
        </p>
      </div>
      <Plot
        testid="positions-variance"
        label="Share of the variance in the first k dimensions"
        curves={[{ name: "share", x: Array.from(all, (_, i) => 2 * i + 2), y: all.map((value) => value / total) }]}
        xTitle="first k dimensions"
        yTitle="share of the variance"
        yTick={(value) => `${Math.round(100 * value)}%`}
        from={0}
        read={read}
        at={k / 2 - 1}
        onAt={(index) => index !== null && (first.value = 2 * index + 2)}
      />
    </Figure>
  );
}
