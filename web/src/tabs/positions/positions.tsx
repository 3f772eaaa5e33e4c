// Positions: a position table as a heat map, its rows and columns as curves, and inner products by distance.
import { largest } from "../../chart/canvas";
import { Figure } from "../../chart/figure";
import { Matrix } from "../../chart/matrix/matrix";
import { Plot, type Curve } from "../../chart/plot";
import { Alert, Choice, Intro, NumberInput, Select } from "../../controls/controls";
import { askParameter, served } from "../../state/api";
import { readPin, writePin } from "../../state/selection";
import { reset } from "../../state/url";
import { equals, fixed, short } from "../../text/numbers";
import { ByDistance, Products, Variance } from "./distance";
import {
  base,
  dim,
  dimField,
  kind,
  layoutName,
  length,
  lengthField,
  MAX_SIZE,
  pin,
  preset,
  presetId,
  PRESETS,
  table,
  trained,
  variances,
} from "./state";
import { frequency, pairOf } from "./tables";
import { useEffect } from "preact/hooks";

export function Positions() {
  return (
    <>
      <Intro title="Positions">
        Attention by itself ignores the order of words. A position encoding adds it: a vector for each position. The inner
        product of two sinusoidal vectors depends only on their distance.
      </Intro>
      <Settings />
      <HeatMap />
      <div class="columns">
        <Products />
        <ByDistance />
      </div>
      {variances.value.length > 0 && <Variance />}
    </>
  );
}

function Settings() {
  useLearned();
  const choose = (id: string) => {
    reset(["n", "d", "pin", "pair", "k"]);
    presetId.value = id;
  };
  const waves = kind.value !== "learned";
  return (
    <section class="panel settings" aria-label="Settings">
      <div class="bar">
        <Select
          label="Example"
          value={preset.value.id}
          testid="positions-preset"
          options={PRESETS.map(({ id, title }) => ({ value: id, label: title }))}
          onChange={choose}
        />
        <Choice
          label="Kind"
          value={kind.value}
          testid="positions-kind"
          options={["sinusoidal", "learned", "rotary"]}
          onChange={(value) => (kind.value = value)}
        />
        {waves && (
          <Choice
            label="Layout"
            value={layoutName.value}
            testid="positions-layout"
            options={["interleaved", "halves"]}
            onChange={(value) => (layoutName.value = value)}
          />
        )}
        <NumberInput
          label="Positions n"
          value={length.value}
          min={2}
          max={MAX_SIZE}
          testid="positions-n"
          onChange={(value) => (lengthField.value = value === preset.value.length ? 0 : value)}
        />
        <NumberInput
          label="Width d"
          value={dim.value}
          min={2}
          max={MAX_SIZE}
          testid="positions-d"
          onChange={(value) => (dimField.value = value === preset.value.dim ? 0 : value)}
        />
        {waves && (
          <Select
            label="Base"
            value={base.value}
            testid="positions-base"
            options={[100, 1000, 10000, 100000, 500000]}
            onChange={(value) => (base.value = value)}
          />
        )}
      </div>
      <p class="note" data-testid="positions-about">
        {about()}
      </p>
      {waves && dim.value % 2 === 1 && (
        <Alert testid="positions-odd">
          The width is odd: the last sine has no matching cosine, so the inner product depends on more than the distance.
        </Alert>
      )}
    </section>
  );
}

/** Loads the learned positions of the first loaded model that has some. */
function useLearned(): void {
  const owner = served.value?.models.find((model) => model.state === "ready" && model.about?.position_parameter);
  useEffect(() => {
    if (kind.value !== "learned" || !owner || trained.value?.model === owner.name) return;
    askParameter(owner.name, owner.about!.position_parameter!).then(
      ({ shape, values }) =>
        (trained.value = {
          model: owner.name,
          table: { length: shape[0], dim: shape[1], table: Float64Array.from(values) },
        }),
      () => undefined, // the random table stays; the note on the page says that it is random
    );
  }, [kind.value, owner?.name]);
}

function about(): string {
  if (kind.value === "sinusoidal")
    return "Sinusoidal: pairs of sine and cosine dimensions with decreasing frequencies. The vectors are added to the embeddings (B2).";
  if (kind.value === "rotary")
    return "Rotary: each pair of dimensions of queries and keys is rotated by its own angle. The table shows the rotation of the vector (1, 0) in each pair (B7).";
  if (trained.value)
    return `Learned: the table of ${trained.value.model}, ${trained.value.table.length} positions of width ${trained.value.table.dim}. There are no vectors for later positions (B6).`;
  return "Learned: the vectors are trainable parameters (B6). No loaded model has them, so the table contains random numbers from a fixed seed, as before training. Their inner products carry no information about the distance.";
}

function HeatMap() {
  const { length: n, dim: d, table: values } = table.value;
  const at = readPin(pin.value, { rows: n, cols: d }) ?? [Math.min(10, n - 1), Math.min(8, d - 1)];
  const positions = Array.from({ length: n }, (_, t) => String(t));
  const columns = Array.from({ length: d }, (_, c) => String(c));
  const column = Float64Array.from({ length: n }, (_, t) => values[t * d + at[1]]);
  const counts = (size: number) => Array.from({ length: size }, (_, i) => i);
  return (
    <>
      <Figure
        title={`Positions 0 to ${n - 1}, width ${d}`}
        name="positions"
        note="Click a cell to plot its row and its column below."
      >
        <Matrix
          testid="positions-map"
          label={`Position table, ${n} positions by ${d} dimensions`}
          values={values}
          rows={positions}
          cols={columns}
          rowTitle="position t"
          colTitle="dimension c"
          scale="signed"
          stretch
          most={kind.value === "learned" ? largest(values) : 1}
          read={(t, c) => entry(t, c)}
          pin={readPin(pin.value, { rows: n, cols: d })}
          onPin={(cell) => (pin.value = writePin(cell))}
        />
      </Figure>
      <div class="columns">
        <Figure title={`Row ${at[0]}: the vector of position ${at[0]}`} name="positions-row">
          <Plot
            testid="positions-row"
            label={`The vector of position ${at[0]}`}
            curves={rowCurves(at[0])}
            xTitle="dimension c"
            yTitle="value"
            read={(i) => rowRead(at[0], i)}
            height={200}
          />
        </Figure>
        <Figure title={`Column ${at[1]}: dimension ${at[1]} over all positions`} name="positions-column">
          <Plot
            testid="positions-column"
            label={`Dimension ${at[1]} over all positions`}
            curves={[{ name: "column", x: counts(n), y: column }]}
            xTitle="position t"
            yTitle="value"
            read={(t) => entry(t, at[1])}
            height={200}
          />
        </Figure>
      </div>
    </>
  );
}

/** A row as two smooth curves, sines and cosines; a learned vector is a single curve. */
function rowCurves(t: number): Curve[] {
  const { dim: d, table: values } = table.value;
  const columns = Array.from({ length: d }, (_, c) => c);
  const curve = (name: string, which: (c: number) => boolean): Curve => {
    const x = columns.filter(which);
    return { name, x, y: x.map((c) => values[t * d + c]) };
  };
  if (kind.value === "learned") return [curve("row", () => true)];
  const [firstName, secondName] = kind.value === "sinusoidal" ? ["sines", "cosines"] : ["cosines", "sines"];
  const second = (c: number) => pairOf(c, d, layoutName.value).second;
  return [curve(firstName, (c) => !second(c)), curve(secondName, second)];
}

function rowRead(t: number, index: number): string {
  return rowCurves(t)
    .filter(({ x }) => index < x.length)
    .map(({ x }) => entry(t, x[index]))
    .join("; ");
}

/** An entry of the table with its calculation. */
function entry(t: number, c: number): string {
  const { dim: d, table: values } = table.value;
  const value = values[t * d + c];
  if (kind.value === "learned") return `p(${t}, ${c}) = ${fixed(value, 4)}`;
  const { pair, second } = pairOf(c, d, layoutName.value);
  const wave = (kind.value === "sinusoidal") !== second ? "sin" : "cos";
  const angle = t * frequency(pair, d, base.value);
  return `p(${t}, ${c}) = ${wave}(${t} / ${base.value}^(${2 * pair}/${d})) = ${wave}(${short(angle, 4)}) ${equals(value, 4)} ${fixed(value, 4)}`;
}
