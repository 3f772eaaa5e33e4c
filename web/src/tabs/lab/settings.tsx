// The settings of the Lab: example, score, mask, temperature, sizes, and the input matrices.
import { Choice, NumberInput, Select, Slider } from "../../controls/controls";
import { PRESETS } from "./presets";
import {
  choosePreset,
  customMask,
  mask,
  maskNow,
  matrices,
  names,
  preset,
  resize,
  score,
  scoreNow,
  temperature,
} from "./state";
import { Editable, type Lit } from "./tables";

export function Settings() {
  const unmasked = () => matrices.value.q.map(() => matrices.value.k.map(() => "1").join("")).join("-");
  const { q, k, v } = matrices.value;
  const sizes = (change: Partial<Record<"m" | "n" | "d" | "e", number>>) => {
    const now = { m: q.length, n: k.length, d: q[0].length, e: v[0].length, ...change };
    resize(now.m, now.n, now.d, now.e);
  };
  return (
    <section class="panel settings lab-settings" aria-label="Settings">
      <div class="bar">
        <Select
          label="Example"
          value={preset.value.id}
          testid="lab-preset"
          options={PRESETS.map(({ id, title }) => ({ value: id, label: title }))}
          onChange={choosePreset}
        />
        <Choice
          label="Score"
          value={scoreNow.value}
          testid="lab-score"
          options={["dot", "scaled", "general", "additive"]}
          onChange={(value) => (score.value = value === preset.value.score ? "" : value)}
        />
        <Choice
          label="Mask"
          value={customMask.value ? "custom" : maskNow.value}
          testid="lab-mask"
          options={[
            { value: "none", label: "none" },
            { value: "causal", label: "causal" },
            { value: "custom", label: "click cells" },
          ]}
          onChange={(value) => (mask.value = value === "custom" ? unmasked() : value)}
        />
        <Slider
          label="Temperature"
          value={temperature.value}
          min={0.1}
          max={5}
          step={0.1}
          show={(value) => value.toFixed(1)}
          testid="lab-temperature"
          onChange={(value) => (temperature.value = value)}
        />
      </div>
      <div class="lab-about">
        <p class="note">{preset.value.about}</p>
        <details>
          <summary>Sizes</summary>
          <div class="bar">
            <NumberInput
              label="queries"
              value={q.length}
              min={1}
              max={8}
              testid="lab-m"
              onChange={(m) => sizes({ m })}
            />
            <NumberInput
              label="keys and values"
              value={k.length}
              min={1}
              max={8}
              testid="lab-n"
              onChange={(n) => sizes({ n })}
            />
            <NumberInput
              label="width of queries and keys"
              value={q[0].length}
              min={1}
              max={8}
              testid="lab-d"
              onChange={(d) => sizes({ d })}
            />
            <NumberInput
              label="width of values"
              value={v[0].length}
              min={1}
              max={8}
              testid="lab-e"
              onChange={(e) => sizes({ e })}
            />
          </div>
        </details>
      </div>
    </section>
  );
}

export function Inputs({ lit }: { lit: Lit }) {
  const { q, k, v, w, wq, wk } = matrices.value;
  const { queries, keys, values } = names.value;
  return (
    <section class="panel lab-row" aria-label="Input matrices">
      <Editable name="q" title="Q" values={q} rows={queries} lit={lit} />
      <Editable name="k" title="K" values={k} rows={keys} lit={lit} />
      <Editable name="v" title="V" values={v} rows={values} lit={lit} />
      {scoreNow.value === "general" && <Editable name="w" title="W" values={w} lit={lit} />}
      {scoreNow.value === "additive" && <Editable name="wq" title="W_q" values={wq} lit={lit} />}
      {scoreNow.value === "additive" && <Editable name="wk" title="W_k" values={wk} lit={lit} />}
      {scoreNow.value === "additive" && <Editable name="w" title="w" values={w} lit={lit} />}
    </section>
  );
}
