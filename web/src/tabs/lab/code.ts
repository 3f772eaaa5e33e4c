// The Lab as a PyTorch script.
import type { LabInput } from "./attention";

function tensor(rows: (number | boolean)[][]): string {
  const written = (value: number | boolean) =>
    typeof value === "boolean" ? (value ? "True" : "False") : Number.isInteger(value) ? `${value}.0` : String(value);
  return `torch.tensor([${rows.map((row) => `[${row.map(written).join(", ")}]`).join(", ")}])`;
}

/** A script that needs only torch and prints the weights and the output. */
export function labCode(input: LabInput): string {
  const lines = [
    "import torch",
    "",
    `Q = ${tensor(input.q)}  # (m, d_k)`,
    `K = ${tensor(input.k)}  # (n, d_k)`,
    `V = ${tensor(input.v)}  # (n, d_v)`,
  ];
  if (input.score === "general") lines.push(`W = ${tensor(input.w)}`, "", "scores = Q @ W @ K.T  # (m, n)");
  else if (input.score === "additive") {
    lines.push(`W_q, W_k = ${tensor(input.wq)}, ${tensor(input.wk)}`, `w = ${tensor(input.w)}[0]`, "");
    lines.push("scores = torch.tanh((Q @ W_q.T)[:, None] + (K @ W_k.T)[None]) @ w  # (m, n)");
  } else
    lines.push(
      "",
      input.score === "scaled" ? "scores = Q @ K.T / K.shape[-1] ** 0.5  # (m, n)" : "scores = Q @ K.T  # (m, n)",
    );
  if (input.mask) {
    lines.push(`mask = ${tensor(input.mask)}  # False: masked`);
    lines.push('scores = scores.masked_fill(~mask, float("-inf"))');
  }
  const divided = input.temperature === 1 ? "scores" : `scores / ${input.temperature}`;
  // A fully masked row gives zeros, not NaN.
  const guard = input.mask?.some((row) => !row.includes(true)) ? ".nan_to_num(0.0)" : "";
  lines.push(
    `weights = torch.softmax(${divided}, dim=-1)${guard}  # rows sum to one`,
    "Y = weights @ V",
    'print(weights, Y, sep="\\n")',
  );
  return `${lines.join("\n")}\n`;
}
