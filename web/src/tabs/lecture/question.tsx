// The question of a scene, the guesses with their marks, and the answer.
import { Button } from "../../controls/controls";
import type { Scene } from "../../state/api";
import { guess, reveal, shown } from "./state";
import { prose } from "./prose";
import { countsOf, Votes } from "./votes";

/** The question; with the answer, every guess is marked, and the picked one is explained. */
export function Question({ scene, last }: { scene: Scene; last: boolean }) {
  const revealed = shown.value;
  return (
    <section class="panel scene" aria-label="Scene">
      <h1>
        <span class="tag">{scene.tag}</span> {scene.title}
      </h1>
      <p class="question" data-testid="lecture-question">
        {prose(scene.question)}
      </p>
      <div class="choices" role="group" aria-label="Your guess">
        {scene.choices.map((choice, i) => (
          <Choice key={i} scene={scene} at={i} text={choice} revealed={revealed} />
        ))}
      </div>
      <Votes scene={scene} />
      {revealed && <Verdict scene={scene} />}
      {revealed && (
        <p class="answer" data-testid="lecture-answer" role="status">
          {prose(scene.answer)}
        </p>
      )}
      {revealed && scene.notes && <p class="note">{prose(scene.notes)}</p>}
      <div class="bar">
        <Button testid="lecture-reveal" main={!revealed} onClick={() => reveal(!revealed)}>
          {revealed ? "Hide answer" : "Show answer"}
        </Button>
        {!revealed && (
          <span class="muted">
            {guess.value < 0 ? "Guess first. " : ""}
            {last ? "" : "The right arrow key shows the answer, then the next scene."}
          </span>
        )}
      </div>
    </section>
  );
}

function Choice(props: { scene: Scene; at: number; text: string; revealed: boolean }) {
  const { scene, at, revealed } = props;
  const right = at === scene.right;
  const picked = guess.value === at;
  const mark = !revealed ? "" : right ? " right" : picked ? " wrong" : "";
  const counts = countsOf(scene);
  return (
    <button
      type="button"
      class={`button lecture-choice${mark}`}
      aria-pressed={picked}
      data-testid={`lecture-choice-${at}`}
      data-mark={mark.trim() || undefined}
      onClick={() => (guess.value = picked ? -1 : at)}
    >
      {mark && (
        <span class="mark" aria-hidden="true">
          {right ? "✓" : "✗"}
        </span>
      )}
      {prose(props.text)}
      {mark && <span class="listen">{right ? " (right)" : " (wrong)"}</span>}
      {counts && <VoteBar count={counts[at]} total={counts.reduce((sum, count) => sum + count, 0)} at={at} />}
    </button>
  );
}

/** The votes for a choice as a bar with their number. */
function VoteBar(props: { count: number; total: number; at: number }) {
  const share = props.total > 0 ? (100 * props.count) / props.total : 0;
  return (
    <span class="vote-bar" data-testid={`vote-bar-${props.at}`} data-count={props.count}>
      <span class="vote-share" style={{ width: `${share}%` }} />
      <span class="vote-count">
        {props.count} ({Math.round(share)} %)
      </span>
    </span>
  );
}

/** Whether the guess is right, and why not; after the answer, other choices can be picked to read why they are wrong. */
function Verdict({ scene }: { scene: Scene }) {
  const picked = guess.value;
  if (picked < 0 || picked >= scene.choices.length) return null;
  if (picked === scene.right)
    return (
      <p class="verdict right" data-testid="lecture-verdict">
        Right.
      </p>
    );
  return (
    <p class="verdict wrong" data-testid="lecture-verdict">
      <b>Not “{prose(scene.choices[picked])}”.</b> {prose(scene.reasons[picked])}
    </p>
  );
}
