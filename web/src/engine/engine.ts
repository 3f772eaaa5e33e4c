// Answers the requests of the page with models in the browser, as `regard explore` does on its server.
import type { Json } from "../state/trace";
import { floatArray } from "./arrays/array_json";
import { RequestError } from "./errors";
import { loadModel, type LoadedModel, type ReadFile } from "./folder/model_folder";
import { embeddings, similarity } from "./look/embeddings";
import { insideBlock } from "./look/inside";
import { recurrentStates } from "./look/recurrent_states";
import { traceText, type TraceRequest } from "./look/trace";
import type { ModelState, SiteModel } from "./messages";
import type { Pause } from "./search/search";

export class Engine {
  private readonly loading = new Map<string, Promise<LoadedModel>>();

  /** `read` reads a file of the site by its path; `onState` is told how far a model is. */
  constructor(
    private readonly models: SiteModel[],
    private readonly read: ReadFile,
    private readonly onState: (model: string, state: ModelState, error: string | null) => void = () => {},
  ) {}

  /** The answer to a request of the API, as JSON data. */
  async answer(path: string, body: Json | null, pause: Pause): Promise<Json> {
    const url = new URL(path, "http://site");
    const query = Object.fromEntries(url.searchParams);
    const answer = ANSWERS[url.pathname];
    if (!answer) throw new RequestError(`this page has no server that answers ${url.pathname}`);
    const request: Json = { ...query, ...body };
    return answer(await this.model(request.model), request, pause);
  }

  private model(name: string): Promise<LoadedModel> {
    const entry = this.models.find((model) => model.name === name);
    if (!entry) throw new RequestError(`unknown model '${name}': this page has ${this.models.map(({ name }) => name).join(", ")}`);
    const known = this.loading.get(name);
    if (known) return known;
    this.onState(name, "loading", null);
    const loading = loadModel(entry.files, (file) => this.read(`models/${name}/${file}`));
    this.loading.set(name, loading);
    loading.then(
      () => this.onState(name, "ready", null),
      (error: Error) => {
        this.onState(name, "failed", error.message);
        this.loading.delete(name); // the next request tries again
      },
    );
    return loading;
  }
}

type Answer = (model: LoadedModel, request: Json, pause: Pause) => Promise<Json> | Json;

const ANSWERS: Record<string, Answer> = {
  "/api/trace": (model, request, pause) => traceText(model, request as TraceRequest, pause),
  "/api/inside": insideBlock,
  "/api/recurrent": recurrentStates,
  "/api/embeddings": embeddings,
  "/api/similarity": similarity,
  "/api/parameters": (model, { name }) => {
    const { shape, data } = model.parameters.tensor(name);
    return { name, ...floatArray(shape, data) };
  },
  "/api/examples": () => ({ examples: [] }),
};
