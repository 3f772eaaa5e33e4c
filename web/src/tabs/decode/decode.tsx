// Decode: one step at a time, what a token was chosen from and how.
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
const PACE = 900; // milliseconds of a step while it plays

const search = field<string>("search", "greedy");
const temperature = field("temperature", 1);
const topK = field("k", 0);
const topP = field("p", 1);
const minP = field("minp", 0);
const seed = field("seed", 0);
const width = field("width", 4);
const penalty = field("penalty", 1); // what the beam searches with
const ranking = field("rank", -1); // what its finished hypotheses are ranked by; -1: the same
const forced = field<string>("force", "");
const step = field("step", 0);

export function Decode() {
  const force = /^\d+(\.\d+)*$/.test(forced.value) ? forced.value.split(".").map(Number) : [];
  const from = origin();
  const writes = from.kind !== "model" || from.entry.kind !== "embedder";
  const run = useOrigin(writes ? { search: wishes(), prefix: force } : {});
  const found = run.trace;
  useShown([found]);
  const asked = from.kind === "model" && writes;
  const steps = found?.steps.length ?? 0;
  const at = clamp(step.value, steps);
  return (
    <>
      <Intro title="Decode">
        One token after the other: what the model thought of each, and how one of them was taken.
      </Intro>
      <Sentence busy={run.busy} onNew={() => forceTokens([], 0)} />
      {asked && <Settings />}
      <Status run={run} />
      {found && steps === 0 && found.notes.length === 0 && <p class="notice">This trace has no steps.</p>}
      {found && steps > 0 && (
        <div class="stacked" aria-busy={run.busy}>
          <Stepper steps={steps} at={at} />
          <Output trace={found} step={at} onStep={(i) => (step.value = i)} />
          {force.length > 0 && (
            <p class="notice">
              The first {force.length} of its tokens were forced.{" "}
              <Button onClick={() => (forced.value = "")} testid="unforce">
                Let it choose again
              </Button>
            </p>
          )}
          <div class="columns">
            <Candidates step={found.steps[at]} at={at} onForce={asked ? forcing(found, at, force) : null} />
            <StepAttention trace={found} step={at} />
          </div>
          {found.steps[at].draw !== null && <Draw step={found.steps[at]} />}
          {found.tree && (
            <Hypotheses
              tree={found.tree}
              ranking={ranking.value}
              onRank={(x) => (ranking.value = x)}
              onSearch={asked ? searchWith : null}
              onForce={asked ? (tokens) => forceTokens([...force, ...tokens], 0) : null}
            />
          )}
        </div>
      )}
    </>
  );
}

function wishes(): Json {
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
            label="Top k (0: all)"
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
          label="Width"
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

/** Step, back and play, by buttons and by keys. */
function Stepper(props: { steps: number; at: number }) {
  const { steps, at } = props;
  const [playing, setPlaying] = useState(false);
  const go = (to: number) => (step.value = clamp(to, steps));
  useEffect(() => {
    if (!playing) return;
    if (at >= steps - 1) return setPlaying(false);
    const timer = setTimeout(() => go(at + 1), PACE);
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
    <div class="stepper" role="group" aria-label="Steps">
      <Button title="One step back (left arrow key)" disabled={at === 0} onClick={() => go(at - 1)} testid="back">
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
      <Button title="One step on (right arrow key)" disabled={at >= steps - 1} onClick={() => go(at + 1)} testid="next">
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

/** How to force a token at this step; null where the token belongs to a prompt. */
function forcing(trace: Trace, at: number, force: number[]): Force | null {
  const firstFree = trace.steps.findIndex((one) => !one.given);
  const prompt = (firstFree < 0 ? trace.steps.length : firstFree) - force.length;
  if (at < prompt) return null;
  return (token) => {
    const before = trace.steps.slice(prompt, at).map((one) => one.chosen);
    forceTokens([...before, token.token], at);
  };
}

/** Python for this view. */
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
      "for one in step.candidates:",
      "    print(one.text, one.logp)",
      "print(step.rest, step.entropy)",
    ],
  );
}
