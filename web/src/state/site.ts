// A site without a server: the models run in a worker of the page, and files are read from the site's folder.
//
// site.js sets `regardSite` before the page starts. Over http the files are fetched. A page opened from a disk may not
// fetch, so each file FILE has a copy FILE.js that hands its content in base64 to `regardFile`. A page that was saved as
// a single file contains the files that it needs.
import { fromBase64 } from "../engine/arrays/array_json";
import { EngineClient } from "../engine/client";
import type { SiteModel } from "../engine/messages";
import type { Json } from "./trace";

/** What a site contains. */
export interface Site {
  models: SiteModel[];
  traces: string[]; // names of traces that were given to `regard explore --export`
  answers: Record<string, string>; // recorded answers: the file of each request, by `requestKey`
  files?: Record<string, string>; // the contents of files in base64, of a page that is a single file
}

declare global {
  interface Window {
    regardSite?: Site;
    regardFile?: (path: string, content: string) => void;
  }
}

const arrived = new Map<string, (content: string) => void>(); // scripts that are being loaded

/** The contents of a file of the site. */
export async function readSiteFile(site: Site, path: string): Promise<Uint8Array<ArrayBuffer>> {
  if (site.files?.[path] !== undefined) return fromBase64(site.files[path]);
  if (location.protocol === "file:") return fromBase64(await loadScript(path));
  const answer = await fetch(path).catch(() => null);
  if (!answer?.ok) throw new Error(`The file ${path} of this site could not be loaded. Check the connection and try again.`);
  return new Uint8Array(await answer.arrayBuffer());
}

/** A file of the site in JSON. */
export async function readSiteJson(site: Site, path: string): Promise<Json> {
  return JSON.parse(new TextDecoder().decode(await readSiteFile(site, path)));
}

/** Loads FILE.js, which hands over the content of FILE. */
function loadScript(path: string): Promise<string> {
  window.regardFile = (name, content) => arrived.get(name)?.(content);
  return new Promise((resolve, reject) => {
    const script = document.createElement("script");
    arrived.set(path, (content) => {
      arrived.delete(path);
      script.remove();
      resolve(content);
    });
    script.onerror = () => reject(new Error(`The file ${path}.js of this site is missing.`));
    script.src = `${path}.js`;
    document.head.append(script);
  });
}

/** Identifies a request: its path and its fields in the order of their names, without those that are not set. */
export function requestKey(path: string, body: Json | null): string {
  const fields = Object.entries(body ?? {}).filter(([, value]) => value !== undefined && value !== null);
  const sorted = fields.sort(([a], [b]) => (a < b ? -1 : 1));
  return `${path} ${JSON.stringify(Object.fromEntries(sorted))}`;
}

/** Answers the requests of the page without a server. */
export class SiteServer {
  private engine: Promise<EngineClient> | null = null;
  private readonly states = new Map<string, { state: string; error: string | null }>();

  constructor(private readonly site: Site) {}

  async ask(path: string, body: Json | null, stop?: AbortSignal): Promise<Json> {
    const recorded = this.site.answers[requestKey(path, body)];
    if (recorded) return readSiteJson(this.site, recorded);
    if (path === "api/models") return this.listModels();
    if (path.startsWith("api/traces/")) return readSiteJson(this.site, `traces/${path.slice("api/traces/".length)}.json`);
    if (!path.startsWith("api/")) return readSiteJson(this.site, path);
    const engine = await (this.engine ??= this.startEngine());
    return engine.ask(path, body, stop);
  }

  private listModels(): Json {
    const models = this.site.models.map(({ files: _, ...model }) => ({
      ...model,
      ...(this.states.get(model.name) ?? { state: "waiting", error: null }),
    }));
    const traces = this.site.traces.map((name) => ({ name }));
    return { models, traces, limits: { characters: 5000, tokens: 512, file_bytes: 0 } };
  }

  private async startEngine(): Promise<EngineClient> {
    const source = await readSiteFile(this.site, "engine.js");
    // A worker made from the text of its script also works in a page that was opened from a disk.
    const address = URL.createObjectURL(new Blob([source], { type: "text/javascript" }));
    return new EngineClient(new Worker(address), {
      models: this.site.models,
      readFile: (path) => readSiteFile(this.site, path),
      onState: (model, state, error) => this.states.set(model, { state, error }),
    });
  }
}
