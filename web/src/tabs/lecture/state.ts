// The state of the Lecture tab: the scenes, the plan of a lecture, the current scene, and the guess.
import { computed, signal } from "@preact/signals";
import { sceneFile, sceneIndex, sceneTrace, type Scene } from "../../state/api";
import { presenter } from "../../state/preferences";
import { readTrace } from "../../state/trace";
import { asHistoryEntry, field, keepOnly, parse, presetState, reset } from "../../state/url";

/** The scenes of one lecture in its order, with minutes. */
export interface Plan {
  id: string;
  title: string;
  by: string;
  scenes: { id: string; minutes: number }[];
}

const allScenes = signal<Scene[] | null>(null);
export const plans = signal<Plan[]>([]);
export const problem = signal("");
export const planId = field("plan", "");
export const guess = field("guess", -1);
export const shown = field("shown", false);
export const playing = field("play", false); // the whole tab with its controls instead of the picture alone
const sceneId = field("scene", "");

export const plan = computed(() => plans.value.find(({ id }) => id === planId.value) ?? null);

/** The scenes in the order of the chosen plan, or all of them; null until they are loaded. */
export const scenes = computed<Scene[] | null>(() => {
  const all = allScenes.value;
  if (!all || !plan.value) return all;
  return plan.value.scenes.flatMap(({ id }) => all.filter((scene) => scene.id === id));
});

export const at = computed(() => Math.max(0, scenes.value?.findIndex(({ id }) => id === sceneId.value) ?? 0));
export const scene = computed<Scene | null>(() => scenes.value?.[at.value] ?? null);

/** Whether the page is shown on a projector: presenter mode on a wide window. */
const wideWindow = matchMedia("(min-aspect-ratio: 5/4) and (min-width: 48rem)");
const isWide = signal(wideWindow.matches);
wideWindow.addEventListener("change", () => (isWide.value = wideWindow.matches));
export const projected = computed(() => presenter.value && isWide.value);

export async function loadScenes(): Promise<void> {
  if (allScenes.value) return;
  try {
    const index = await sceneIndex();
    // A page saved by an older version has no plans.
    plans.value = index.length > 0 ? await (sceneFile("lectures.json") as Promise<unknown> as Promise<Plan[]>).catch(() => []) : [];
    allScenes.value = index;
  } catch (error) {
    problem.value = (error as Error).message;
  }
}

/** The view of a scene, before or after its answer. */
function stateOf(scene: Scene, answered: boolean): string {
  return answered && scene.answer_state ? `${scene.state}&${scene.answer_state}` : scene.state;
}

/** Loads the trace and the view of a scene; whatever the last scene had is gone. */
export async function stage(scene: Scene): Promise<void> {
  problem.value = "";
  try {
    sceneTrace.value = scene.trace ? readTrace(await sceneFile(scene.trace)) : null;
  } catch (error) {
    problem.value = (error as Error).message;
  }
  presetState(stateOf(scene, shown.value));
}

export function leaveStage(): void {
  presetState("");
  sceneTrace.value = null;
}

/** Shows or hides the answer, and what it changes in the view. */
export function reveal(answered: boolean): void {
  const open = scene.value;
  if (!open) return;
  asHistoryEntry(() => {
    reset([...parse(open.answer_state ?? "").keys()]); // changes by hand would hide the change of the answer
    presetState(stateOf(open, answered));
    shown.value = answered;
  });
}

export function go(to: number): void {
  const next = scenes.value?.[to];
  if (!next) return;
  asHistoryEntry(() => {
    keepOnly(["tab", "presenter", "plan"]);
    sceneId.value = to === 0 ? "" : next.id;
  });
}

/** Goes on like a clicker: first to the answer, then to the next scene. */
export function forward(): void {
  if (scene.value && !shown.value) reveal(true);
  else go(at.value + 1);
}

export function back(): void {
  go(at.value - 1);
}

export function choosePlan(id: string): void {
  asHistoryEntry(() => {
    keepOnly(["tab", "presenter"]);
    planId.value = id;
  });
}
