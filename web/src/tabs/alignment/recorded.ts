// A recorded trace of the first sentence: the page shows it at once, and the model's own answer when there is one.
import { useEffect, useState } from "preact/hooks";
import { bundle, sceneFile } from "../../state/api";
import { FIRST_SENTENCE, textFor, type Origin, type Run } from "../../state/runs";
import { readTrace, type Trace } from "../../state/trace";

const RECORDED = "red-car.json"; // of this model, on the first sentence
const MODEL = "fr-en";

let loaded: Promise<Trace> | null = null;

function recordedTrace(): Promise<Trace> {
  loaded ??= sceneFile(RECORDED).then(readTrace);
  return loaded;
}

/** The run, or the recorded trace while the model has not answered. */
export function useRecorded(run: Run & { origin: Origin }): Run & { origin: Origin; recorded: boolean } {
  const { origin } = run;
  const fits = origin.kind === "model" && origin.entry.name === MODEL && textFor(origin.entry) === FIRST_SENTENCE;
  const wanted = !run.trace && !run.error && !bundle && (fits || origin.kind === "none");
  const [trace, setTrace] = useState<Trace | null>(null);
  useEffect(() => {
    if (wanted) recordedTrace().then(setTrace, () => (loaded = null));
  }, [wanted]);
  if (!wanted || !fits || !trace) return { ...run, recorded: false };
  return { ...run, trace, busy: false, waiting: `Recorded earlier. ${run.waiting}`, recorded: true };
}
