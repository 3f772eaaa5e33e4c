// The worker that runs the models, so that the page stays responsive. client.ts starts it.
import { Engine } from "./engine";
import type { FromWorker, ToWorker } from "./messages";

interface Scope {
  postMessage(message: FromWorker): void;
  onmessage: (event: MessageEvent<ToWorker>) => void;
}

interface Waiting {
  resolve: (content: Uint8Array<ArrayBuffer>) => void;
  reject: (error: Error) => void;
}

const scope = self as unknown as Scope;
const files = new Map<string, Waiting>(); // that the page was asked for
const cancelled = new Set<number>();
let engine: Engine;

function readFile(path: string): Promise<Uint8Array<ArrayBuffer>> {
  return new Promise((resolve, reject) => {
    files.set(path, { resolve, reject });
    scope.postMessage({ kind: "file", path });
  });
}

/** Lets messages arrive between two steps of a model; throws if the request was cancelled. */
async function pause(id: number): Promise<void> {
  await new Promise((resolve) => {
    const { port1, port2 } = new MessageChannel(); // without the wait of setTimeout
    port1.onmessage = () => {
      port1.close();
      resolve(null);
    };
    port2.postMessage(null);
  });
  if (cancelled.has(id)) throw new Error("The request was cancelled.");
}

async function answer({ id, path, body }: ToWorker & { kind: "ask" }): Promise<void> {
  try {
    scope.postMessage({ kind: "answer", id, content: await engine.answer(path, body, () => pause(id)) });
  } catch (error) {
    scope.postMessage({ kind: "error", id, message: (error as Error).message });
  }
  cancelled.delete(id);
}

scope.onmessage = ({ data }) => {
  if (data.kind === "start") engine = new Engine(data.models, readFile, (model, state, error) => scope.postMessage({ kind: "state", model, state, error }));
  if (data.kind === "cancel") cancelled.add(data.id);
  if (data.kind === "ask") void answer(data);
  if (data.kind === "file") {
    const waiting = files.get(data.path)!;
    files.delete(data.path);
    if (data.content) waiting.resolve(data.content);
    else waiting.reject(new Error(data.error));
  }
};
