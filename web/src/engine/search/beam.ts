// Beam search: keep the w best hypotheses until enough are finished. regard/decoding/searches/beam.py has the rules; E8.
import { logSoftmax } from "../arrays/matrix";
import type { Past } from "../models/text_model";
import { END } from "../text/tokenizer";
import { applyRule, barSpecial, top, type Found, type Pause, type SearchInput } from "./search";

export interface BeamSettings {
  width: number;
  length_penalty: number;
}

/** A hypothesis of the tree: one more token after its parent. */
export interface BeamNode {
  parent: number | null;
  token: number;
  logp: number;
  sum: number;
  score: number;
  state: "kept" | "pruned" | "done";
}

/** A live hypothesis. */
interface Hypothesis {
  tokens: number[];
  score: number;
  past: Past;
  logps: Float32Array; // of its next token
  node: number | null;
}

interface Candidate {
  parent: number;
  token: number;
  total: number;
}

export class BeamSearch {
  private readonly nodes: BeamNode[] = [];
  private best: { tokens: number[]; ranking: number } | null = null; // of the finished ones
  private finished = 0;

  constructor(
    private readonly settings: BeamSettings,
    private readonly input: SearchInput,
  ) {}

  async run(pause: Pause): Promise<Found> {
    const { model, source, start, limit } = this.input;
    const { width, length_penalty: penalty } = this.settings;
    const decoding = model.start(source);
    let past = decoding.begin;
    let logps: Float32Array = new Float32Array();
    for (const token of start) {
      const { pasts, logits } = decoding.step([past], [token]);
      past = pasts[0];
      logps = barSpecial(logSoftmax(logits.row(0)));
    }
    let live: Hypothesis[] = [{ tokens: [], score: 0, past, logps, node: null }];
    for (let length = 1; ; length++) {
      await pause();
      const candidates = this.candidates(live);
      const power = length ** penalty;
      const alive = candidates.filter(({ token }) => token !== END).slice(0, width);
      this.finish(live, candidates.slice(0, width), power);
      const places = this.record(live, candidates, alive, power);
      const bestToCome = Math.fround((alive[0]?.total ?? -Infinity) / Math.fround(limit ** penalty));
      const over = length === limit || bestToCome <= (this.best?.ranking ?? -Infinity) || this.finished >= width;
      if (over) return this.result(live, alive);
      const { pasts, logits } = decoding.step(
        alive.map(({ parent }) => live[parent].past),
        alive.map(({ token }) => token),
      );
      live = alive.map((candidate, row) => ({
        tokens: [...live[candidate.parent].tokens, candidate.token],
        score: candidate.total,
        past: pasts[row],
        logps: barSpecial(logSoftmax(logits.row(row))),
        node: places.get(candidate)!,
      }));
    }
  }

  /** The best 2w continuations of all live hypotheses, best first; at least w of them do not end. */
  private candidates(live: Hypothesis[]): Candidate[] {
    const { rule, start } = this.input;
    const vocabulary = live[0].logps.length;
    const totals = new Float32Array(live.length * vocabulary);
    live.forEach(({ tokens, score, logps }, row) => {
      const ruled = rule ? applyRule(rule, logps, [...start, ...tokens]) : logps;
      for (let v = 0; v < vocabulary; v++) totals[row * vocabulary + v] = score + ruled[v];
    });
    return top(totals, 2 * this.settings.width)
      .filter((place) => totals[place] > -Infinity)
      .map((place) => ({ parent: Math.floor(place / vocabulary), token: place % vocabulary, total: totals[place] }));
  }

  /** Counts those of the best w candidates that end, and keeps the best finished hypothesis. */
  private finish(live: Hypothesis[], candidates: Candidate[], power: number): void {
    for (const { parent, token, total } of candidates) {
      if (token !== END) continue;
      this.finished += 1;
      const ranking = Math.fround(total / power);
      if (!this.best || ranking > this.best.ranking) this.best = { tokens: [...live[parent].tokens, END], ranking };
    }
  }

  /** Adds the candidates to the tree; gives their nodes. */
  private record(live: Hypothesis[], candidates: Candidate[], alive: Candidate[], power: number): Map<Candidate, number> {
    const places = new Map<Candidate, number>();
    candidates.forEach((candidate, i) => {
      const { parent, token, total } = candidate;
      const ended = token === END && i < this.settings.width;
      const state = ended ? "done" : alive.includes(candidate) ? "kept" : "pruned";
      places.set(candidate, this.nodes.length);
      const logp = live[parent].logps[token];
      this.nodes.push({ parent: live[parent].node, token, logp, sum: total, score: total / power, state });
    });
    return places;
  }

  private result(live: Hypothesis[], alive: Candidate[]): Found {
    const tokens = this.best?.tokens ?? [...live[alive[0].parent].tokens, alive[0].token];
    return { tokens, draws: [], nodes: this.nodes };
  }
}
