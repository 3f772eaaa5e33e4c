// The messages between the page and the worker that runs the models.
import type { Json } from "../state/trace";

/** A model of a site without a server. */
export interface SiteModel {
  name: string;
  kind: string; // what regard.load returns, such as "translator"
  architecture: string;
  reads: "text" | "image" | "series" | "sound";
  default: boolean;
  about: Json;
  files: string[]; // in its folder
}

export type ModelState = "loading" | "ready" | "failed";

export type ToWorker =
  | { kind: "start"; models: SiteModel[] }
  | { kind: "ask"; id: number; path: string; body: Json | null }
  | { kind: "cancel"; id: number }
  | { kind: "file"; path: string; content: Uint8Array<ArrayBuffer> | null; error: string };

export type FromWorker =
  | { kind: "answer"; id: number; content: Json }
  | { kind: "error"; id: number; message: string }
  | { kind: "state"; model: string; state: ModelState; error: string | null }
  | { kind: "file"; path: string }; // the worker wants a file of the site
