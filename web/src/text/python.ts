// Python code that reproduces what a model tab shows.
import type { Choice } from "../maths/grid";
import { origin, textFor } from "../state/runs";

/** A Python string literal. */
export function quoted(text: string): string {
  return JSON.stringify(text);
}

/** A function call; null arguments are omitted. */
export function call(name: string, args: (string | null)[]): string {
  return `${name}(${args.filter((argument) => argument !== null).join(", ")})`;
}

/** The numpy expression for the weights [rows, columns] of a choice, from a map of a trace [layers, heads, rows, columns]. */
export function sliced(trace: string, map: string, choice: Choice): string {
  const { layer, head } = choice;
  if (choice.aligned) return `${trace}.alignment.weights[0, 0]`;
  const weights = `${trace}.maps["${map}"].weights`;
  if (typeof head === "number")
    return layer === "all" ? `${weights}[:, ${head}].mean(0)` : `${weights}[${layer}, ${head}]`;
  return layer === "all" ? `${weights}.${head}((0, 1))` : `${weights}[${layer}].${head}(0)`;
}

/**
 * A script: imports, `model`, `trace` of the tab's text with the tab's options, then the remaining lines.
 * If the page shows a recorded trace, the script loads a trace file instead.
 */
export function script(options: (string | null)[], names: string[], rest: string[]): string {
  const from = origin();
  if (from.kind !== "model") {
    const imports = ["Trace", ...names].sort().join(", ");
    return [`from regard.look import ${imports}`, "", 'trace = Trace.load("trace.json")', ...rest, ""].join("\n");
  }
  const imports = ["trace_text", ...names].sort().join(", ");
  const model = `model = regard.load(${quoted(from.entry.name)})`;
  const trace = `trace = ${call("trace_text", ["model", quoted(textFor(from.entry)), ...options])}`;
  return ["import regard", `from regard.look import ${imports}`, "", model, trace, ...rest, ""].join("\n");
}
