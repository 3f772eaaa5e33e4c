// The Lab: attention on matrices that one can hold in one's head, every step and every cell opened.
import { useEffect, useRef, useState } from "preact/hooks";
import { Figure } from "../../chart/figure";
import { Alert, Button, Intro } from "../../controls/controls";
import { calm } from "../../state/preferences";
import { AttentionFormula, Formula, ScoreFormula } from "../../text/formulas";
import { fixed } from "../../text/numbers";
import { misfit, scaleOf } from "./attention";
import { labCode } from "./code";
import { explain, madeOf } from "./explanations";
import { labSheet } from "./picture";
import { Inputs, Settings } from "./settings";
import {
  cell,
  flaws,
  input,
  maskNow,
  names,
  ownMask,
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
  "Queries, keys and values are given.",
  "Every query is compared with every key: a score says how well they fit.",
  "The scale keeps scores of wide vectors from growing, so that the softmax does not become too sharp.",
  "Barred pairs become −∞, so the softmax will give them nothing.",
  "The softmax makes each row a distribution: positive numbers that sum to one.",
  "Each output is the values, weighed by the weights of its row.",
];

export function labTabCode(): string {
  return labCode(input.value);
}

export function Lab() {
  const problem = misfit(input.value);
  const opened = openCell();
  const lit: Lit = opened ? madeOf(opened.stage, opened.i, opened.j) : [];
  return (
    <>
      <Intro title="Lab">
        Attention on matrices small enough for the blackboard: <AttentionFormula />. Change any number, click any
        result.
      </Intro>
      <Settings />
      {flaws.value.size > 0 && <Alert testid="lab-flaw">{flawText()}</Alert>}
      {problem && <Alert testid="lab-misfit">{problem}</Alert>}
      <Inputs lit={lit} />
      {!problem && <Stages lit={lit} />}
    </>
  );
}

function flawText(): string {
  const [where, text] = [...flaws.value][0];
  const [name, i, j] = where.split(".");
  const title = { q: "Q", k: "K", v: "V", w: "W", wq: "W_q", wk: "W_k" }[name];
  return `${title}, row ${Number(i) + 1}, column ${Number(j) + 1}: “${text}” is not a number. The last result stays until it is one.`;
}

function openCell(): { stage: StageName; i: number; j: number } | null {
  const [stage, i, j] = cell.value.split(".");
  const name = STAGES.find((one) => one === stage);
  const inside = name && result.value[name][Number(i)]?.[Number(j)] !== undefined;
  return inside && STAGES.indexOf(name) < step.value ? { stage: name, i: Number(i), j: Number(j) } : null;
}

function Stages({ lit }: { lit: Lit }) {
  const { queries, keys } = names.value;
  const { raw, scaled, masked, weights, out } = result.value;
  const scale = scaleOf(input.value);
  const own = ownMask.value;
  const shared = (stage: StageName) => ({
    stage,
    rows: queries,
    lit,
    open: cell.value,
    number: STAGES.indexOf(stage) + 1,
    ahead: STAGES.indexOf(stage) >= step.value,
    onOpen: (i: number, j: number) => {
      if (stage === "masked" && own) toggleMask(i, j);
      const place = `${stage}.${i}.${j}`;
      cell.value = cell.value === place && !(stage === "masked" && own) ? "" : place;
    },
  });
  const Score = ScoreFormula[scoreNow.value];
  const hot =
    temperature.value === 1
      ? "each row sums to one"
      : `scores divided by the temperature ${temperature.value.toFixed(1)} first`;
  return (
    <Figure title="From scores to output" name="lab" picture={labSheet}>
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
            own ? "click cells to bar or open them" : maskNow.value === "causal" ? "no look ahead" : "all may be seen"
          }
          values={masked}
          cols={keys}
        />
        <Computed {...shared("weights")} title="softmax" note={hot} values={weights} cols={keys} sums />
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
  const place = useRef<HTMLDivElement>(null);
  useEffect(
    () => place.current?.scrollIntoView({ block: "nearest", behavior: calm() ? "auto" : "smooth" }),
    [cell.value],
  );
  if (!opened)
    return (
      <p class="lab-explain muted" data-testid="lab-explain" aria-live="polite">
        Click a number above: its arithmetic is written out here.
      </p>
    );
  const { stage, i, j } = opened;
  const { queries, keys } = names.value;
  const what = stage === "out" ? `number ${j + 1} of the output for ${queries[i]}` : `${queries[i]} and ${keys[j]}`;
  return (
    <div class="lab-explain" ref={place} data-testid="lab-explain" aria-live="polite">
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

/** Back, forward and play through the stages; the URL says where one is. */
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
      calm() ? 2500 : 1600,
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
        <Button testid="lab-back" title="One step back" disabled={at === 0} onClick={() => (step.value = at - 1)}>
          ◀ Back
        </Button>
        <Button testid="lab-play" pressed={playing} onClick={play}>
          {playing ? "Pause" : "Play"}
        </Button>
        <Button testid="lab-next" main title="One step on" disabled={at === last} onClick={() => (step.value = at + 1)}>
          Step ▶
        </Button>
        <span class="muted" data-testid="lab-step">
          {at} of {last}
        </span>
      </div>
      <p aria-live="polite" data-testid="lab-sentence">
        {SENTENCES[at]}
      </p>
    </div>
  );
}
