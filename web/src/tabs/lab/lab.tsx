// Lab: attention on small matrices, step by step, with the calculation of every cell.
import { useEffect, useRef, useState } from "preact/hooks";
import { Figure } from "../../chart/figure";
import { Alert, Button, Intro } from "../../controls/controls";
import { reducedMotion } from "../../state/preferences";
import { AttentionFormula, Formula, ScoreFormula } from "../../text/formulas";
import { fixed } from "../../text/numbers";
import { scaleOf, shapeProblem } from "./attention";
import { labCode } from "./code";
import { explain, inputsOf } from "./explanations";
import { labSheet } from "./picture";
import { Inputs, Settings } from "./settings";
import {
  cell,
  customMask,
  input,
  invalidInputs,
  maskNow,
  names,
  result,
  scoreNow,
  STAGES,
  step,
  temperature,
  toggleMask,
  type StageName,
} from "./state";
import { Computed, type Lit } from "./tables";
import "./lab.css";

const SENTENCES = [
  "The input: queries, keys and values.",
  "Every query is compared with every key: the score measures how well they match.",
  "Scaling keeps the scores of wide vectors small, so that the softmax does not saturate.",
  "Masked scores become −∞, so the softmax gives them zero weight.",
  "The softmax turns each row into a probability distribution: non-negative weights that sum to one.",
  "Each output is the sum of the values, weighted by the weights of its row.",
];

export function labTabCode(): string {
  return labCode(input.value);
}

export function Lab() {
  const problem = shapeProblem(input.value);
  const opened = openCell();
  const lit: Lit = opened ? inputsOf(opened.stage, opened.i, opened.j) : [];
  return (
    <>
      <Intro title="Lab">
        Attention on small matrices: <AttentionFormula />. Edit any input; click any result to see its calculation.
      </Intro>
      <Settings />
      {invalidInputs.value.size > 0 && <Alert testid="lab-flaw">{invalidInputMessage()}</Alert>}
      {problem && <Alert testid="lab-misfit">{problem}</Alert>}
      <Inputs lit={lit} />
      {!problem && <Stages lit={lit} />}
    </>
  );
}

function invalidInputMessage(): string {
  const [where, text] = [...invalidInputs.value][0];
  const [name, i, j] = where.split(".");
  const title = { q: "Q", k: "K", v: "V", w: "W", wq: "W_q", wk: "W_k" }[name];
  return `${title}, row ${Number(i) + 1}, column ${Number(j) + 1}: “${text}” is not a number from −1,000,000 to 1,000,000. The last valid value is used until you correct it.`;
}

function openCell(): { stage: StageName; i: number; j: number } | null {
  const [stage, i, j] = cell.value.split(".");
  const name = STAGES.find((known) => known === stage);
  const inside = name && result.value[name][Number(i)]?.[Number(j)] !== undefined;
  return inside && STAGES.indexOf(name) < step.value ? { stage: name, i: Number(i), j: Number(j) } : null;
}

function Stages({ lit }: { lit: Lit }) {
  const { queries, keys } = names.value;
  const { raw, scaled, masked, weights, out } = result.value;
  const scale = scaleOf(input.value);
  const custom = customMask.value;
  const shared = (stage: StageName) => ({
    stage,
    rows: queries,
    lit,
    open: cell.value,
    number: STAGES.indexOf(stage) + 1,
    pending: STAGES.indexOf(stage) >= step.value,
    onOpen: (i: number, j: number) => {
      if (stage === "masked" && custom) toggleMask(i, j);
      const address = `${stage}.${i}.${j}`;
      cell.value = cell.value === address && !(stage === "masked" && custom) ? "" : address;
    },
  });
  const Score = ScoreFormula[scoreNow.value];
  const softmaxNote =
    temperature.value === 1
      ? "each row sums to 1"
      : `scores are first divided by the temperature ${temperature.value.toFixed(1)}`;
  return (
    <Figure title="From scores to outputs" name="lab" picture={labSheet}>
      <Stepper />
      <div class="lab-row lab-stages" onKeyDown={(event) => event.key === "Escape" && (cell.value = "")}>
        <Computed {...shared("raw")} title={<Score />} note="scores" values={raw} cols={keys} />
        <Computed
          {...shared("scaled")}
          title={scale === 1 ? "scale" : <Scale />}
          note={scale === 1 ? "not scaled" : `times ${fixed(scale)}`}
          values={scaled}
          cols={keys}
        />
        <Computed
          {...shared("masked")}
          title="mask"
          note={
            custom
              ? "click cells to mask or unmask them"
              : maskNow.value === "causal"
                ? "no attention to later keys"
                : "no mask"
          }
          values={masked}
          cols={keys}
        />
        <Computed {...shared("weights")} title="softmax" note={softmaxNote} values={weights} cols={keys} sums />
        <Computed
          {...shared("out")}
          title={
            <Formula label="times V">
              <mo>×</mo>
              <mi>V</mi>
            </Formula>
          }
          note="output Y"
          values={out}
          cols={out[0].map((_, j) => `y${j + 1}`)}
        />
      </div>
      <Explanation />
    </Figure>
  );
}

function Scale() {
  return (
    <Formula label="over root d k">
      <mo>/</mo>
      <msqrt>
        <mn>{input.value.k[0].length}</mn>
      </msqrt>
    </Formula>
  );
}

function Explanation() {
  const opened = openCell();
  const panel = useRef<HTMLDivElement>(null);
  useEffect(
    () => panel.current?.scrollIntoView({ block: "nearest", behavior: reducedMotion() ? "auto" : "smooth" }),
    [cell.value],
  );
  if (!opened)
    return (
      <p class="lab-explain muted" data-testid="lab-explain" aria-live="polite">
        Click a number above to see its calculation.
      </p>
    );
  const { stage, i, j } = opened;
  const { queries, keys } = names.value;
  const what = stage === "out" ? `component ${j + 1} of the output for ${queries[i]}` : `${queries[i]} and ${keys[j]}`;
  return (
    <div class="lab-explain" ref={panel} data-testid="lab-explain" aria-live="polite">
      <p class="muted">
        {{ raw: "Score", scaled: "Scaled score", masked: "Masked score", weights: "Weight", out: "Output" }[stage]}:{" "}
        {what}
      </p>
      {explain(stage, i, j, input.value, result.value).map((line) => (
        <p key={line} class="sum-line">
          {line}
        </p>
      ))}
    </div>
  );
}

/** Steps back, forward or plays through the stages; the current step is in the URL. */
function Stepper() {
  const [playing, setPlaying] = useState(false);
  const last = STAGES.length;
  const at = Math.min(last, Math.max(0, step.value));
  useEffect(() => {
    if (!playing) return;
    const timer = setInterval(
      () => {
        if (step.value >= last) setPlaying(false);
        else step.value = step.value + 1;
      },
      reducedMotion() ? 2500 : 1600,
    );
    return () => clearInterval(timer);
  }, [playing]);
  useEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      const move = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      const busy = (event.target as HTMLElement).closest?.("input, textarea, select, [role=group][tabindex]");
      if (!move || busy || event.ctrlKey || event.metaKey || event.altKey) return;
      step.value = Math.min(last, Math.max(0, step.value + move));
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, []);
  const play = () => {
    if (!playing && at === last) step.value = 0;
    setPlaying(!playing);
  };
  return (
    <div class="lab-stepper">
      <div class="bar">
        <Button testid="lab-back" title="Previous step" disabled={at === 0} onClick={() => (step.value = at - 1)}>
          ◀ Back
        </Button>
        <Button testid="lab-play" pressed={playing} onClick={play}>
          {playing ? "Pause" : "Play"}
        </Button>
        <Button testid="lab-next" main title="Next step" disabled={at === last} onClick={() => (step.value = at + 1)}>
          Step ▶
        </Button>
        <span class="muted" data-testid="lab-step">
          Step {at} of {last}
        </span>
      </div>
      <p aria-live="polite" data-testid="lab-sentence">
        {SENTENCES[at]}
      </p>
    </div>
  );
}
