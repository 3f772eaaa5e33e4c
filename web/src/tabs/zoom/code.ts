// The Python code that computes the numbers of the Zoom tab.
import { origin } from "../../state/runs";
import { script } from "../../text/python";
import { col, head, layer, map, row } from "./place";

/** The Python code that reproduces this view. */
export function zoomCode(): string {
  const place = [layer.value, head.value, row.value, col.value].map((index) => Math.max(index, 0)).join(", ");
  const name = map.value || "cross";
  const lines = [
    `name = "${name}" if "${name}" in trace.maps else next(iter(trace.maps))`,
    `print("weight:", trace.maps[name].weights[${place}])`,
  ];
  if (origin().kind === "model") lines.push("print(trace.maps[name].q is not None)  # the vectors are recorded, too");
  return script(["vectors=True"], [], lines);
}
