// Lecture: scenes with a question, a guess, an answer, and the tab that illustrates it.
//
// A scene sets the defaults of the state. Changes during the scene go to the URL; the next scene resets it.
import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { Alert, Button, Intro } from "../../controls/controls";
import { bundle, sceneFile, sceneIndex, sceneTrace, type Scene } from "../../state/api";
import { readTrace } from "../../state/trace";
import { asHistoryEntry, field, keepOnly, parse, presetState } from "../../state/url";
import { withCode } from "../../text/code_spans";
import { tabById } from "../tabs";
import { SceneCurves } from "./scene_curves";
import "./lecture.css";

const scenes = signal<Scene[] | null>(null);
const problem = signal("");
const sceneId = field("scene", "");
const guess = field("guess", -1);
const shown = field("shown", false);
const staged = signal(""); // the scene whose state and trace are loaded

function current(): number {
  return Math.max(0, scenes.value?.findIndex((scene) => scene.id === sceneId.value) ?? 0);
}

export function innerTab(): string {
  return parse(scenes.value?.[current()]?.state ?? "").get("tab") ?? "lab";
}

export function lectureCode(): string {
  return tabById(innerTab())?.code() ?? "";
}

function go(to: number): void {
  const scene = scenes.value?.[to];
  if (!scene) return;
  asHistoryEntry(() => {
    keepOnly(["tab", "presenter"]);
    sceneId.value = to === 0 ? "" : scene.id;
  });
}

async function stage(scene: Scene): Promise<void> {
  staged.value = "";
  problem.value = "";
  try {
    sceneTrace.value = scene.trace ? readTrace(await sceneFile(scene.trace)) : null;
  } catch (error) {
    problem.value = (error as Error).message;
  }
  presetState(scene.state);
  staged.value = scene.id;
}

function modelMissing(scene: Scene): boolean {
  const needsNoModel = ["lab", "positions", "features"].includes(innerTab()) && !scene.state.includes("of=model");
  return bundle !== null && !scene.trace && !needsNoModel;
}

export function Lecture() {
  useEffect(() => {
    if (!scenes.value)
      sceneIndex().then(
        (index) => (scenes.value = index),
        (error: Error) => (problem.value = error.message),
      );
    return () => {
      presetState("");
      sceneTrace.value = null;
      staged.value = "";
    };
  }, []);
  const at = current();
  const scene = scenes.value?.[at];
  useEffect(() => {
    if (scene) void stage(scene);
  }, [scene?.id]);
  useEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      const busy = (event.target as HTMLElement).closest?.("input, textarea, select, [role=group][tabindex]");
      const move = { ArrowRight: 1, PageDown: 1, ArrowLeft: -1, PageUp: -1 }[event.key];
      if (!move || (busy && !event.key.startsWith("Page")) || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      event.stopImmediatePropagation(); // the tab inside uses the same keys
      const open = scenes.value?.[current()];
      if (move > 0 && open && !shown.value) shown.value = true;
      else go(current() + move);
    };
    addEventListener("keydown", onKey, { capture: true });
    return () => removeEventListener("keydown", onKey, { capture: true });
  }, []);
  if (problem.value && !scene)
    return (
      <>
        <Intro title="Lecture">A series of scenes, each with a question.</Intro>
        <Alert>{problem.value}</Alert>
      </>
    );
  if (!scenes.value) return <p class="muted">Loading the scenes …</p>;
  if (!scene)
    return (
      <>
        <Intro title="Lecture">A series of scenes, each with a question.</Intro>
        <p>
          {withCode(
            "This file contains no scenes. To get a file with scenes, save the page from the Lecture tab of `regard explore`.",
          )}
        </p>
      </>
    );
  const View = tabById(innerTab())?.view;
  return (
    <>
      <Chooser scenes={scenes.value} at={at} />
      <Question scene={scene} last={at === scenes.value.length - 1} />
      {problem.value && <Alert>{problem.value}</Alert>}
      {scene.curves && shown.value && <SceneCurves curves={scene.curves} />}
      <div class="stage" data-testid="lecture-stage">
        {modelMissing(scene) ? (
          <p>
            {withCode(
              "This scene needs a model, and a saved file has none. Open it in the Lecture tab of `regard explore`.",
            )}
          </p>
        ) : (
          View && staged.value === scene.id && <View />
        )}
      </div>
    </>
  );
}

function Chooser({ scenes, at }: { scenes: Scene[]; at: number }) {
  return (
    <div class="bar lecture-bar">
      <Button testid="lecture-back" title="Previous scene (←)" disabled={at === 0} onClick={() => go(at - 1)}>
        ◀ Back
      </Button>
      <label class="control">
        <span class="listen">Scene</span>
        <select
          data-testid="lecture-scene"
          value={scenes[at].id}
          onChange={(event) => go(event.currentTarget.selectedIndex)}
        >
          {scenes.map((scene, i) => (
            <option key={scene.id} value={scene.id}>
              {i + 1}. {scene.tag} {scene.title}
            </option>
          ))}
        </select>
      </label>
      <Button
        testid="lecture-next"
        main
        title="Next scene (→)"
        disabled={at === scenes.length - 1}
        onClick={() => go(at + 1)}
      >
        Next ▶
      </Button>
      <span class="muted" data-testid="lecture-place">
        {at + 1} of {scenes.length}
      </span>
    </div>
  );
}

function Question({ scene, last }: { scene: Scene; last: boolean }) {
  const revealed = shown.value;
  return (
    <section class="panel scene" aria-label="Scene">
      <h1>
        <span class="tag">{scene.tag}</span> {scene.title}
      </h1>
      <p class="question" data-testid="lecture-question">
        {withCode(scene.question)}
      </p>
      {scene.choices && (
        <div class="bar choices" role="group" aria-label="Your guess">
          {scene.choices.map((choice, i) => (
            <Button
              key={i}
              testid={`lecture-choice-${i}`}
              pressed={guess.value === i}
              onClick={() => (guess.value = guess.value === i ? -1 : i)}
            >
              {choice}
            </Button>
          ))}
        </div>
      )}
      {revealed ? (
        <p class="answer" data-testid="lecture-answer" role="status">
          {withCode(scene.answer)}
        </p>
      ) : null}
      {revealed && scene.notes && <p class="note">{withCode(scene.notes)}</p>}
      <div class="bar">
        <Button testid="lecture-reveal" main={!revealed} onClick={() => (shown.value = !revealed)}>
          {revealed ? "Hide answer" : "Show answer"}
        </Button>
        {!revealed && (
          <span class="muted">
            Guess first. {last ? "" : "The right arrow key shows the answer, then the next scene."}
          </span>
        )}
      </div>
    </section>
  );
}
