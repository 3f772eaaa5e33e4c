// Python that gives what a model tab shows.
import type { Choice } from "../maths/grid";
import { origin, textFor } from "../state/runs";

/** A text as Python writes it. */
export function quoted(text: string): string {
  return JSON.stringify(text);
}

/** A call with its arguments, those that are left out not named. */
export function call(name: string, args: (string | null)[]): string {
  return `${name}(${args.filter((one) => one !== null).join(", ")})`;
}

/** The weights of a choice, [layers, heads, rows, columns] -> [rows, columns], in numpy. */
export function sliced(weights: string, choice: Choice): string {
  const { layer, head } = choice;
  if (typeof head === "number")
    return layer === "all" ? `${weights}[:, ${head}].mean(0)` : `${weights}[${layer}, ${head}]`;
  return layer === "all" ? `${weights}.${head}((0, 1))` : `${weights}[${layer}].${head}(0)`;
}

/**
 * A script: imports, then `model`, then `trace`, made of the tab's text with the tab's options, then what follows.
 * Where the page shows a trace from a file, the script loads a file too.
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
