// The finished hypotheses of a beam search, ranked for a length penalty without running the model again.
import type { TreeNode } from "../../state/trace";

export interface Hypothesis {
  node: number; // the node of its last token
  text: string;
  pieces: string[];
  length: number; // in tokens, including the end token
  sum: number;
  score: number; // sum / length^penalty
}

/** The nodes from the first token to this node. */
export function pathTo(nodes: readonly TreeNode[], node: number): number[] {
  const path: number[] = [];
  for (let at: number | null = node; at !== null; at = nodes[at].parent) path.push(at);
  return path.reverse();
}

/** All finished hypotheses, best first; if none is finished, the one that the search returned. */
export function rankFinished(nodes: readonly TreeNode[], best: number, penalty: number): Hypothesis[] {
  const done = nodes.flatMap((node, i) => (node.state === "done" ? [i] : []));
  const ends = done.length > 0 ? done : [best];
  const hypotheses = ends.map((node) => {
    const path = pathTo(nodes, node);
    const sum = nodes[node].sum;
    const pieces = path.map((i) => nodes[i].text);
    return {
      node,
      text: joined(pieces),
      pieces,
      length: path.length,
      sum,
      score: sum / path.length ** penalty,
    };
  });
  return hypotheses.sort((a, b) => b.score - a.score || a.node - b.node);
}

/** The texts that several hypotheses write, with different tokens. */
export function repeatedTexts(hypotheses: readonly Hypothesis[]): Set<string> {
  const texts = hypotheses.map(({ text }) => text);
  return new Set(texts.filter((text, i) => texts.indexOf(text) !== i));
}

/** Joins subwords to a text: "▁" is a space, the end token is omitted. */
export function joined(pieces: string[]): string {
  return pieces
    .filter((piece) => piece !== "</s>")
    .join("")
    .replaceAll("▁", " ")
    .trim();
}
