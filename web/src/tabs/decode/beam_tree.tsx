// The tree of a beam search: a column per step, best hypothesis first, each linked to the hypothesis it extends.
import { linkHorizontal } from "d3-shape";
import { labelSize, textWidth } from "../../chart/text_size";
import { presenter } from "../../state/preferences";
import type { Tree, TreeNode } from "../../state/trace";
import { fixed } from "../../text/numbers";
import { shownPiece } from "../../text/pieces";
import { pathTo } from "./hypotheses";

const GAP = 8; // between nodes of a step
const STEP_GAP = 44; // between steps, for the links

interface Placed {
  i: number; // index of the node
  node: TreeNode;
  x: number;
  y: number; // centre
  width: number;
}

interface Plan {
  placed: Map<number, Placed>;
  columns: { x: number; width: number }[];
  top: number;
  node: number; // height of a node
  width: number;
  height: number;
}

/** The position of each node; columns are as wide as their longest token. */
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
    x += width + STEP_GAP;
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
    width: x - STEP_GAP + 6,
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
  const classes = (item: Placed) => `${item.node.state} ${winner.has(item.i) ? "best" : ""}`;
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
        {[...plan.placed.values()].map((item) => {
          if (item.node.parent === null) return null;
          const parent = plan.placed.get(item.node.parent)!;
          const path = link({ source: [parent.x + parent.width, parent.y], target: [item.x, item.y] });
          return <path key={item.i} class={`link ${classes(item)}`} d={path ?? ""} />;
        })}
        {[...plan.placed.values()].map((item) => (
          <Node
            key={item.i}
            item={item}
            height={plan.node}
            looks={classes(item)}
            onForce={props.onForce && (() => props.onForce!(pathTo(nodes, item.i).map((at) => nodes[at].token)))}
          />
        ))}
      </svg>
    </div>
  );
}

function Node(props: { item: Placed; height: number; looks: string; onForce: (() => void) | null }) {
  const { node, x, y, width } = props.item;
  const numbers = [`log p ${fixed(node.logp)}`, `sum ${fixed(node.sum)}`, `score ${fixed(node.score)}`];
  const description = [node.text, node.state, ...numbers].join(", ");
  const act = props.onForce;
  return (
    <g
      class={`node ${props.looks}`}
      data-testid="beam-node"
      data-state={node.state}
      role={act ? "button" : "img"}
      tabIndex={act ? 0 : undefined}
      aria-label={description}
      onClick={() => act?.()}
      onKeyDown={(event) => event.key === "Enter" && act?.()}>
      <title>{description}</title>
      <rect x={x} y={y - props.height / 2} width={width} height={props.height} rx={4} />
      <text x={x + width / 2} y={y} text-anchor="middle" dominant-baseline="central">
        {shownPiece(node.text)}
      </text>
    </g>
  );
}
