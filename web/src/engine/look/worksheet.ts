// A worksheet of a computation: boxes in order, each with its numbers and the rule that computes them.
// regard/look/inside/worksheet.py lists the rules.
import { shortest } from "../arrays/array_json";
import { Matrix } from "../arrays/matrix";
import type { Norm } from "../models/norm";
import type { Linear, Parameters } from "../models/parameters";
import type { Json } from "../../state/trace";

/** The name of a box and its numbers. */
export interface Put {
  box: string;
  values: Matrix;
}

/** The numbers of a box: a matrix, or a vector if it has the shape [length]. */
type Numbers = Matrix | ArrayLike<number>;

export function ruleOf(op: string, ...of: string[]): Json {
  return { op, of };
}

export class Sheet {
  private readonly boxes: Json[] = [];
  private readonly used = new Map<string, number[]>(); // shapes of the parameters

  constructor(private readonly parameters: Parameters) {}

  /** The name of a parameter, which is listed among those used; null if the model has none. */
  name(parameter: string): string | null {
    if (!this.parameters.has(parameter)) return null;
    this.used.set(parameter, this.parameters.tensor(parameter).shape);
    return parameter;
  }

  /** Adds a box and gives its name, `part.box`; NaN stands for masked scores. */
  put(id: string, title: string, values: Numbers, how: string, rule: Json, rows?: string[]): string {
    const shape = values instanceof Matrix ? [values.rows, values.cols] : [values.length];
    const numbers = Array.from(values instanceof Matrix ? values.data : values, (value) =>
      Number.isNaN(value) ? null : shortest(Math.fround(value)),
    );
    const part = id.includes(".") ? id.slice(0, id.indexOf(".")) : "input";
    const box: Json = { id, part, title, shape, values: { shape, values: numbers }, from: rule.of ?? [], how, rule };
    this.boxes.push(rows ? { ...box, rows } : box);
    return id;
  }

  norm(id: string, x: string, norm: Norm, values: Numbers, rows?: string[]): string {
    const weight = this.name(`${norm.name}.weight`);
    const bias = this.name(`${norm.name}.bias`);
    const how = norm.kind === "rms" ? "x / rms(x) · γ" : "(x - mean) / σ · γ" + (bias ? " + β" : "");
    const rule = { op: "norm", kind: norm.kind, of: [x], weight, bias, eps: norm.eps };
    return this.put(id, norm.kind === "rms" ? "RMSNorm" : "LayerNorm", values, how, rule, rows);
  }

  linear(id: string, title: string, x: string, linear: Linear, values: Numbers, how: string): string {
    const bias = this.name(linear.biasName);
    const rule = { op: "linear", of: [x], weight: this.name(linear.weightName), bias, rows: null };
    return this.put(id, title, values, how + (bias ? " + b" : ""), rule);
  }

  toJson(): Json {
    return { boxes: this.boxes, parameters: [...this.used].map(([name, shape]) => ({ name, shape })) };
  }
}
