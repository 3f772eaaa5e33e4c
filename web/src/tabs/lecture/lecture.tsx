// Lecture: scenes with a question, guesses, an answer, and beside them the part of a tab that shows it.
//
// A scene sets the defaults of the state. Changes during the scene go to the URL; the next scene resets it. On a projector
// (presenter mode), question and picture share one screen without scrolling.
import { signal } from "@preact/signals";
import { useEffect, useLayoutEffect } from "preact/hooks";
import { Alert, Button, Intro } from "../../controls/controls";
import { bundle, type Scene } from "../../state/api";
import { presenter } from "../../state/preferences";
import { parse } from "../../state/url";
import { withCode } from "../../text/code_spans";
import { tabById } from "../tabs";
import { blank, useLectureKeys } from "./keys";
import { PlanChoice, PlanClock, PlanTable } from "./plan";
import { Question } from "./question";
import { SceneCurves } from "./scene_curves";
import { Fitted, Stage } from "./stage";
import { at, back, go, leaveStage, loadScenes, playing, problem, projected, scene, scenes, shown, stage } from "./state";
import "./lecture.css";

const staged = signal(""); // the scene whose state and trace are loaded

export function innerTab(): string {
  return parse(scene.value?.state ?? "").get("tab") ?? "lab";
}

export function lectureCode(): string {
  return tabById(innerTab())?.code() ?? "";
}

export function Lecture() {
  const current = scene.value;
  useEffect(() => {
    void loadScenes();
    return () => {
      leaveStage();
      staged.value = "";
    };
  }, []);
  useEffect(() => {
    staged.value = "";
    if (current) void stage(current).then(() => (staged.value = current.id));
  }, [current?.id]);
  useLectureKeys();
  useProjector();
  if (problem.value && !current)
    return (
      <>
        <Intro title="Lecture">A series of scenes, each with a question.</Intro>
        <Alert>{problem.value}</Alert>
      </>
    );
  if (!scenes.value) return <p class="muted">Loading the scenes …</p>;
  if (!current)
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
  const fitted = projected.value;
  return (
    <div class={fitted ? "lecture projected" : "lecture"} data-testid="lecture">
      <Chooser scenes={scenes.value} />
      {!fitted && <PlanTable />}
      <div class="lecture-screen">
        <Fitted key={`${current.id} ${shown.value}`} active={fitted} most={1} least={0.55} box="lecture-words">
          <Question scene={current} last={at.value === scenes.value.length - 1} />
          {problem.value && <Alert>{problem.value}</Alert>}
        </Fitted>
        <Picture scene={current} fitted={fitted} />
      </div>
      {blank.value && (
        <button
          type="button"
          class="blank"
          aria-label="The screen is blank. Press any key to continue."
          data-testid="lecture-blank"
          onClick={() => (blank.value = false)}
        />
      )}
    </div>
  );
}

/** Sets the type size of a projector, and hides the header of the page. */
function useProjector(): void {
  const on = projected.value;
  useLayoutEffect(() => {
    document.documentElement.dataset.projector = String(on);
    return () => delete document.documentElement.dataset.projector;
  }, [on]);
}

function modelMissing(scene: Scene): boolean {
  const needsNoModel = ["lab", "positions", "features"].includes(innerTab()) && !scene.state.includes("of=model");
  return bundle !== null && !scene.trace && !needsNoModel;
}

/** The picture of a scene: before the answer often less of it. */
function Picture({ scene, fitted }: { scene: Scene; fitted: boolean }) {
  const View = tabById(innerTab())?.view;
  const parts = (!shown.value && scene.before) || scene.show;
  if (modelMissing(scene))
    return (
      <div data-testid="lecture-stage">
        <p>
          {withCode("This scene needs a model, and a saved file has none. Open it in the Lecture tab of `regard explore`.")}
        </p>
      </div>
    );
  if (parts.length === 0 && !playing.value)
    return (
      <div class="stage-waits" data-testid="lecture-stage">
        <p data-testid="lecture-stage-waits">The picture comes with the answer.</p>
      </div>
    );
  const ready = staged.value === scene.id;
  return (
    <Stage parts={playing.value ? null : parts} fitted={fitted} id={`${scene.id} ${ready}`}>
      {scene.curves && shown.value && <SceneCurves curves={scene.curves} />}
      {View && ready && <View />}
    </Stage>
  );
}

function Chooser({ scenes }: { scenes: Scene[] }) {
  return (
    <div class="bar lecture-bar">
      <Button testid="lecture-back" title="Previous scene (←)" disabled={at.value === 0} onClick={back}>
        ◀ Back
      </Button>
      <label class="control">
        <span class="listen">Scene</span>
        <select
          data-testid="lecture-scene"
          value={scenes[at.value].id}
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
        disabled={at.value === scenes.length - 1}
        onClick={() => go(at.value + 1)}
      >
        Next ▶
      </Button>
      <span class="muted" data-testid="lecture-place">
        {at.value + 1} of {scenes.length}
      </span>
      <PlanClock />
      <PlanChoice />
      <Button
        testid="lecture-play"
        title="Show the whole tab with its controls"
        pressed={playing.value}
        onClick={() => (playing.value = !playing.value)}
      >
        Play with it
      </Button>
      {projected.value && (
        <Button testid="lecture-leave" title="Leave presenter mode (p)" onClick={() => (presenter.value = false)}>
          ✕
        </Button>
      )}
    </div>
  );
}
