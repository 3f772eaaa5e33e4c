// The finished hypotheses of a beam search, ranked anew for a length penalty without asking the model again.
import type { TreeNode } from "../../state/trace";

export interface Hypothesis {
  node: number; // its last token
  text: string;
  length: number; // tokens, the end token counted
  sum: number;
  score: number; // sum / length^penalty
}

/** The nodes from the first token to this one. */
export function pathTo(nodes: readonly TreeNode[], node: number): number[] {
  const path: number[] = [];
  for (let at: number | null = node; at !== null; at = nodes[at].parent) path.push(at);
  return path.reverse();
}

/** All that ended, best first; where nothing did, the hypothesis that was given back. */
export function rankFinished(nodes: readonly TreeNode[], best: number, penalty: number): Hypothesis[] {
  const done = nodes.flatMap((node, i) => (node.state === "done" ? [i] : []));
  const ends = done.length > 0 ? done : [best];
  const found = ends.map((node) => {
    const path = pathTo(nodes, node);
    const sum = nodes[node].sum;
    return {
      node,
      text: joined(path.map((i) => nodes[i].text)),
      length: path.length,
      sum,
      score: sum / path.length ** penalty,
    };
  });
  return found.sort((a, b) => b.score - a.score || a.node - b.node);
}

/** Pieces as text: "▁" is a space, and the end token is not written. */
export function joined(pieces: string[]): string {
  return pieces
    .filter((piece) => piece !== "</s>")
    .join("")
    .replaceAll("▁", " ")
    .trim();
}
