// The tree of a beam search: one column a step, best first, each hypothesis joined to the one that it goes on from.
import { linkHorizontal } from "d3-shape";
import { labelSize, textWidth } from "../../chart/text_size";
import { presenter } from "../../state/preferences";
import type { Tree, TreeNode } from "../../state/trace";
import { fixed } from "../../text/numbers";
import { shownPiece } from "../../text/pieces";
import { pathTo } from "./hypotheses";

const GAP = 8; // between nodes of a step
const BETWEEN = 44; // between steps, for the links

interface Placed {
  i: number; // its number among the nodes
  node: TreeNode;
  x: number;
  y: number; // its middle
  width: number;
}

interface Plan {
  placed: Map<number, Placed>;
  columns: { x: number; width: number }[];
  top: number;
  node: number; // height of one
  width: number;
  height: number;
}

/** Where each node stands; columns are as wide as their longest token. */
function layTree(nodes: readonly TreeNode[], pruned: boolean, size: number): Plan {
  const steps: number[] = [];
  nodes.forEach((node) => steps.push(node.parent === null ? 0 : steps[node.parent] + 1));
  const shown = nodes.map((_, i) => i).filter((i) => pruned || nodes[i].state !== "pruned");
  const columns: Plan["columns"] = [];
  let x = 6;
  for (let step = 0; step <= Math.max(...steps); step++) {
    const texts = shown.filter((i) => steps[i] === step).map((i) => shownPiece(nodes[i].text));
    const width = Math.max(30, ...texts.map((text) => textWidth(text, size) + 16));
    columns.push({ x, width });
    x += width + BETWEEN;
  }
  const [top, height] = [size * 2, Math.round(size * 1.7)];
  const filled = columns.map(() => 0);
  const placed = shown.map((i): [number, Placed] => {
    const y = top + filled[steps[i]]++ * (height + GAP) + height / 2;
    return [i, { i, node: nodes[i], y, ...columns[steps[i]] }];
  });
  return {
    placed: new Map(placed),
    columns,
    top,
    node: height,
    width: x - BETWEEN + 6,
    height: top + Math.max(...filled) * (height + GAP),
  };
}

export function BeamTree(props: {
  tree: Tree;
  best: number;
  pruned: boolean;
  onForce: ((tokens: number[]) => void) | null;
}) {
  const { nodes } = props.tree;
  const size = labelSize(presenter.value);
  const plan = layTree(nodes, props.pruned, size);
  const winner = new Set(pathTo(nodes, props.best));
  const link = linkHorizontal<unknown, [number, number]>();
  const looks = (one: Placed) => `${one.node.state} ${winner.has(one.i) ? "best" : ""}`;
  return (
    <div
      class="scroll beam-tree"
      data-testid="beam-tree"
      tabIndex={0}
      role="group"
      aria-label="Tree of the beam search">
      <svg width={plan.width} height={plan.height}>
        {plan.columns.map((column, step) => (
          <text key={step} class="axis-label" x={column.x + column.width / 2} y={size} text-anchor="middle">
            {step + 1}
          </text>
        ))}
        {[...plan.placed.values()].map((one) => {
          if (one.node.parent === null) return null;
          const parent = plan.placed.get(one.node.parent)!;
          const path = link({ source: [parent.x + parent.width, parent.y], target: [one.x, one.y] });
          return <path key={one.i} class={`link ${looks(one)}`} d={path ?? ""} />;
        })}
        {[...plan.placed.values()].map((one) => (
          <Node
            key={one.i}
            one={one}
            height={plan.node}
            looks={looks(one)}
            onForce={props.onForce && (() => props.onForce!(pathTo(nodes, one.i).map((at) => nodes[at].token)))}
          />
        ))}
      </svg>
    </div>
  );
}

function Node(props: { one: Placed; height: number; looks: string; onForce: (() => void) | null }) {
  const { node, x, y, width } = props.one;
  const numbers = [`log p ${fixed(node.logp)}`, `sum ${fixed(node.sum)}`, `score ${fixed(node.score)}`];
  const told = [node.text, node.state, ...numbers].join(", ");
  const act = props.onForce;
  return (
    <g
      class={`node ${props.looks}`}
      data-testid="beam-node"
      data-state={node.state}
      role={act ? "button" : "img"}
      tabIndex={act ? 0 : undefined}
      aria-label={told}
      onClick={() => act?.()}
      onKeyDown={(event) => event.key === "Enter" && act?.()}>
      <title>{told}</title>
      <rect x={x} y={y - props.height / 2} width={width} height={props.height} rx={4} />
      <text x={x + width / 2} y={y} text-anchor="middle" dominant-baseline="central">
        {shownPiece(node.text)}
      </text>
    </g>
  );
}
