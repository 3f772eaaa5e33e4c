// Class votes: a QR code for the phones of the class, and the votes as bars once the vote is closed.
import { computed, signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { Alert, Button } from "../../controls/controls";
import { ask, served, type Scene } from "../../state/api";
import { shown } from "./state";

const POLL_MILLISECONDS = 1000;

interface Result {
  question: string | null;
  counts: number[];
  open: boolean;
}

interface Vote extends Result {
  scene: string;
  address: string;
  qr: string; // as a data URI
}

const vote = signal<Vote | null>(null);
const problem = signal("");

/** The votes for each choice of a scene, when the vote is over; the class is not led by the first votes. */
export const counted = computed(() => (vote.value && !vote.value.open ? vote.value : null));

export function countsOf(scene: Scene): number[] | null {
  return counted.value?.scene === scene.id ? counted.value.counts : null;
}

async function open(scene: Scene): Promise<void> {
  problem.value = "";
  try {
    vote.value = { ...(await ask<Vote>("api/vote", { choices: scene.choices })), scene: scene.id };
  } catch (error) {
    problem.value = (error as Error).message;
  }
}

async function update(path: string, body?: object): Promise<void> {
  try {
    const result = await ask<Result>(path, body);
    if (vote.value && result.question === vote.value.question) vote.value = { ...vote.value, ...result };
  } catch (error) {
    problem.value = (error as Error).message;
  }
}

/** The button that opens a vote, and the vote of this scene; nothing if the server can be reached from here only. */
export function Votes({ scene }: { scene: Scene }) {
  const current = vote.value?.scene === scene.id ? vote.value : null;
  const running = current?.open === true;
  useEffect(() => {
    if (!running) return;
    const timer = setInterval(() => void update("api/vote"), POLL_MILLISECONDS);
    return () => clearInterval(timer);
  }, [running]);
  useEffect(() => {
    if (running && shown.value) void update("api/vote/close", {}); // the answer ends the vote
  }, [running, shown.value]);
  if (!served.value?.votes) return null;
  const total = current?.counts.reduce((sum, count) => sum + count, 0) ?? 0;
  return (
    <div class="votes">
      {problem.value && <Alert>{problem.value}</Alert>}
      {running ? (
        <div class="vote" data-testid="vote">
          <img src={current.qr} alt={`QR code of ${current.address}`} />
          <div>
            <p data-testid="vote-address">{current.address}</p>
            <p role="status" data-testid="vote-total">
              {total === 1 ? "1 vote" : `${total} votes`}
            </p>
            <Button testid="vote-close" onClick={() => void update("api/vote/close", {})}>
              Close the vote
            </Button>
          </div>
        </div>
      ) : (
        !shown.value && (
          <Button testid="vote-open" title="Let the class vote with their phones" onClick={() => void open(scene)}>
            {current ? "Vote again" : "Class vote"}
          </Button>
        )
      )}
    </div>
  );
}
