// The page's side of the worker that runs the models.
import type { Json } from "../state/trace";
import type { FromWorker, ModelState, SiteModel, ToWorker } from "./messages";

interface Asked {
  resolve: (content: Json) => void;
  reject: (error: Error) => void;
}

/** What the worker needs of the page. */
export interface Host {
  models: SiteModel[];
  readFile: (path: string) => Promise<Uint8Array<ArrayBuffer>>;
  onState: (model: string, state: ModelState, error: string | null) => void;
}

/** Runs models in a worker; files of the site are read by the page. */
export class EngineClient {
  private readonly asked = new Map<number, Asked>();
  private next = 0;

  constructor(
    private readonly worker: Worker,
    private readonly host: Host,
  ) {
    worker.onmessage = ({ data }: MessageEvent<FromWorker>) => this.receive(data);
    worker.onerror = (event) => this.fail(event.message || "The models of this page could not be started.");
    this.send({ kind: "start", models: host.models });
  }

  ask(path: string, body: Json | null, stop?: AbortSignal): Promise<Json> {
    const id = this.next++;
    return new Promise((resolve, reject) => {
      this.asked.set(id, { resolve, reject });
      stop?.addEventListener("abort", () => {
        this.send({ kind: "cancel", id });
        this.settle(id)?.reject(new DOMException("The request was cancelled.", "AbortError"));
      });
      this.send({ kind: "ask", id, path, body });
    });
  }

  private send(message: ToWorker): void {
    const content = message.kind === "file" ? message.content?.buffer : undefined;
    this.worker.postMessage(message, content ? [content] : []);
  }

  private receive(message: FromWorker): void {
    if (message.kind === "answer") this.settle(message.id)?.resolve(message.content);
    if (message.kind === "error") this.settle(message.id)?.reject(new Error(message.message));
    if (message.kind === "state") this.host.onState(message.model, message.state, message.error);
    if (message.kind === "file") {
      const { path } = message;
      this.host.readFile(path).then(
        (content) => this.send({ kind: "file", path, content, error: "" }),
        (error: Error) => this.send({ kind: "file", path, content: null, error: error.message }),
      );
    }
  }

  private settle(id: number): Asked | undefined {
    const asked = this.asked.get(id);
    this.asked.delete(id);
    return asked;
  }

  private fail(message: string): void {
    for (const id of [...this.asked.keys()]) this.settle(id)?.reject(new Error(message));
  }
}
