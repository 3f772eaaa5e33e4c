// Decode: step by step, the probabilities of the next token and how the search chose one.
import { useEffect, useState } from "preact/hooks";
import { Button, Choice, Intro, NumberInput, Slider } from "../../controls/controls";
import { Output } from "../../controls/output";
import { Sentence, Status } from "../../controls/sentence";
import { clamp } from "../../maths/grid";
import { origin, useOrigin, useShown } from "../../state/runs";
import type { Json, Trace } from "../../state/trace";
import { field, tab } from "../../state/url";
import { call, script } from "../../text/python";
import { Hypotheses } from "./beam";
import { Candidates, Draw, type Force } from "./candidates";
import { StepAttention } from "./step_attention";
import "./decode.css";

type Search = "greedy" | "sample" | "beam";
const STEP_MILLISECONDS = 900; // while playing

const search = field<string>("search", "greedy");
const temperature = field("temperature", 1);
const topK = field("k", 0);
const topP = field("p", 0.9); // without the tail of the distribution, where the odd words are
const minP = field("minp", 0);
const seed = field("seed", 0);
const width = field("width", 4);
const penalty = field("penalty", 1); // of the beam search
const ranking = field("rank", -1); // length penalty for ranking finished hypotheses; -1: the same
const forced = field<string>("force", "");
const step = field("step", 0);

export function Decode() {
  const force = /^\d+(\.\d+)*$/.test(forced.value) ? forced.value.split(".").map(Number) : [];
  const from = origin();
  const writes = from.kind !== "model" || !["embedder", "classifier"].includes(from.entry.kind);
  const run = useOrigin(writes ? { search: searchSettings(), prefix: force } : {});
  const { trace } = run;
  useShown([trace]);
  const hasModel = from.kind === "model" && writes;
  const steps = trace?.steps.length ?? 0;
  const at = clamp(step.value, steps);
  return (
    <>
      <Intro title="Decode">
        One token at a time: the probabilities of the next token, and how the search chooses one.
      </Intro>
      <Sentence busy={run.busy} onNew={() => forceTokens([], 0)} />
      {hasModel && <Settings />}
      <Status run={run} />
      {trace && steps === 0 && trace.notes.length === 0 && <p class="notice">This trace contains no decoding steps.</p>}
      {trace && steps > 0 && (
        <div class="stacked" aria-busy={run.busy}>
          <Stepper steps={steps} at={at} />
          <Output trace={trace} step={at} onStep={(i) => (step.value = i)} />
          {force.length > 0 && (
            <p class="notice">
              {force.length === 1 ? "The first token was" : `The first ${force.length} tokens were`} forced.{" "}
              <Button onClick={() => (forced.value = "")} testid="unforce">
                Remove forced tokens
              </Button>
            </p>
          )}
          <div class="columns">
            <Candidates step={trace.steps[at]} at={at} onForce={hasModel ? forcing(trace, at, force) : null} />
            <StepAttention trace={trace} step={at} />
          </div>
          {trace.steps[at].draw !== null && <Draw step={trace.steps[at]} />}
          {trace.tree && (
            <Hypotheses
              tree={trace.tree}
              ranking={ranking.value}
              onRank={(x) => (ranking.value = x)}
              onSearch={hasModel ? searchWith : null}
              onForce={hasModel ? (tokens) => forceTokens([...force, ...tokens], 0) : null}
            />
          )}
        </div>
      )}
    </>
  );
}

function searchSettings(): Json {
  if (search.value === "beam") return { name: "beam", width: width.value, length_penalty: penalty.value };
  if (search.value !== "sample") return { name: "greedy" };
  const filters = { top_k: topK.value, top_p: topP.value, min_p: minP.value };
  return { name: "sample", temperature: temperature.value, ...filters, seed: seed.value };
}

function Settings() {
  const names: Search[] = ["greedy", "sample", "beam"];
  const pick = (name: Search) => {
    search.value = name;
    step.value = 0;
  };
  return (
    <div class="bar">
      <Choice label="Search" value={search.value as Search} options={names} onChange={pick} testid="search" />
      <p class="aside search-note">The other tabs show what the model's own search finds, which may be another output.</p>
      {search.value === "sample" && (
        <>
          <Slider
            label="Temperature"
            value={temperature.value}
            min={0.1}
            max={2}
            step={0.1}
            onChange={(x) => (temperature.value = x)}
            show={(x) => x.toFixed(1)}
            testid="temperature"
          />
          <NumberInput
            label="Top k (0 = off)"
            value={topK.value}
            min={0}
            max={1000}
            onChange={(x) => (topK.value = x)}
            testid="top-k"
          />
          <Slider
            label="Top p"
            value={topP.value}
            min={0.05}
            max={1}
            step={0.05}
            onChange={(x) => (topP.value = x)}
            show={(x) => x.toFixed(2)}
            testid="top-p"
          />
          <Slider
            label="Min p"
            value={minP.value}
            min={0}
            max={0.5}
            step={0.01}
            onChange={(x) => (minP.value = x)}
            show={(x) => x.toFixed(2)}
            testid="min-p"
          />
          <NumberInput
            label="Seed"
            value={seed.value}
            min={0}
            max={999999}
            onChange={(x) => (seed.value = x)}
            testid="seed"
          />
        </>
      )}
      {search.value === "beam" && (
        <NumberInput
          label="Beam width"
          value={width.value}
          min={1}
          max={10}
          onChange={(x) => (width.value = x)}
          testid="width"
        />
      )}
    </div>
  );
}

/** Buttons and keys to step forward, step back and play. */
function Stepper(props: { steps: number; at: number }) {
  const { steps, at } = props;
  const [playing, setPlaying] = useState(false);
  const go = (to: number) => (step.value = clamp(to, steps));
  useEffect(() => {
    if (!playing) return;
    if (at >= steps - 1) return setPlaying(false);
    const timer = setTimeout(() => go(at + 1), STEP_MILLISECONDS);
    return () => clearTimeout(timer);
  }, [playing, at, steps]);
  useEffect(() => {
    const press = (event: KeyboardEvent) => {
      const target = event.target as HTMLElement;
      if (tab.value !== "decode" || target.closest("input, select, textarea")) return;
      if (event.key === "ArrowRight") go(at + 1);
      else if (event.key === "ArrowLeft") go(at - 1);
      else if (event.key === " " && !target.closest("button, [role=button]")) setPlaying(!playing);
      else return;
      event.preventDefault();
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  });
  return (
    <div class="stepper" role="group" aria-label="Decoding steps">
      <Button title="Previous step (left arrow key)" disabled={at === 0} onClick={() => go(at - 1)} testid="back">
        ←
      </Button>
      <Button
        title={playing ? "Pause (space)" : "Play (space)"}
        onClick={() => {
          if (!playing && at >= steps - 1) go(0);
          setPlaying(!playing);
        }}
        testid="play">
        {playing ? "❚❚" : "▶"}
      </Button>
      <Button title="Next step (right arrow key)" disabled={at >= steps - 1} onClick={() => go(at + 1)} testid="next">
        →
      </Button>
      <span data-testid="step">
        Step {at + 1} of {steps}
      </span>
    </div>
  );
}

function forceTokens(tokens: number[], at: number): void {
  forced.value = tokens.join(".");
  step.value = at;
}

function searchWith(lengthPenalty: number): void {
  penalty.value = lengthPenalty;
  ranking.value = -1;
}

/** A function that forces a token at this step; null if the step belongs to the prompt. */
function forcing(trace: Trace, at: number, force: number[]): Force | null {
  const firstFree = trace.steps.findIndex((step) => !step.given);
  const prompt = (firstFree < 0 ? trace.steps.length : firstFree) - force.length;
  if (at < prompt) return null;
  return (token) => {
    const before = trace.steps.slice(prompt, at).map(({ chosen }) => chosen);
    forceTokens([...before, token.token], at);
  };
}

/** The Python code that reproduces this view. */
export function decodeCode(): string {
  const settings: Record<string, string> = {
    greedy: "regard.Greedy()",
    beam: call("regard.Beam", [String(width.value), `length_penalty=${penalty.value}`]),
    sample: call("regard.Sample", [
      `temperature=${temperature.value}`,
      topK.value > 0 ? `top_k=${topK.value}` : null,
      topP.value < 1 ? `top_p=${topP.value}` : null,
      minP.value > 0 ? `min_p=${minP.value}` : null,
      `seed=${seed.value}`,
    ]),
  };
  const prefix = forced.value === "" ? null : `prefix=[${forced.value.split(".").join(", ")}]`;
  return script(
    [`search=${settings[search.value] ?? settings.greedy}`, prefix],
    [],
    [
      "print(trace.output)",
      `step = trace.steps[${step.value}]`,
      "for candidate in step.candidates:",
      "    print(candidate.text, candidate.logp)",
      "print(step.rest, step.entropy)",
    ],
  );
}
