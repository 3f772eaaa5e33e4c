// The calculation of a single number of the Inside tab from the boxes before it, by the rules of
// regard/look/inside/worksheet.py.

export interface Numbers {
  shape: number[];
  values: ArrayLike<number>; // in row-major order; NaN where masked
}

/** How a box is computed: `of` lists its input boxes, `weight` and `bias` are names of parameters. */
export interface Rule {
  op: string;
  of?: string[];
  weight?: string | null;
  bias?: string | null;
  kind?: string;
  rows?: number[] | null;
  columns?: [number, number] | null;
  row?: number;
  column?: number;
  index?: number;
  head?: number;
  scale?: number;
  by?: number;
  eps?: number;
  slope?: number;
  distances?: number[];
  positions?: number[];
  frequencies?: number[];
  turning?: number;
  layout?: string;
  start?: number;
  base?: number;
  first?: number;
  allowed?: boolean[];
}

/** A term of a sum: a product, or a single number. */
export interface Term {
  factors: number[];
  value: number;
}

/** A number with its calculation: a sum, or a formula with the values inserted. */
export interface Calculation {
  terms: Term[];
  formula: string;
  result: number;
}

interface RuleInput {
  rule: Rule;
  box: Numbers; // the box that contains the number
  at: number; // index of the number in the box
  row: number; // the same as row and column
  column: number;
  x: Numbers; // the first input box
  of: Numbers[];
  weight: Numbers;
  bias: Numbers | null;
}

export function parametersOf(rule: Rule): string[] {
  return [rule.weight, rule.bias].filter((name) => typeof name === "string");
}

/** Calculates number `at` of a box; `input` and `parameter` look up boxes and parameters by name. */
export function calculate(
  rule: Rule,
  box: Numbers,
  at: number,
  input: (id: string) => Numbers,
  parameter: (name: string) => Numbers,
): Calculation {
  const of = (rule.of ?? []).map(input);
  const weight = rule.weight ? parameter(rule.weight) : { shape: [0], values: [] };
  const bias = rule.bias ? parameter(rule.bias) : null;
  const [row, column] = [Math.floor(at / width(box)), at % width(box)];
  return RULES[rule.op]({ rule, box, at, row, column, x: of[0], of, weight, bias });
}

const RULES: Record<string, (input: RuleInput) => Calculation> = {
  given: ({ box, at }) => plain("computed elsewhere in the model", box.values[at]),
  rows({ rule, row, column, at, weight }) {
    const [tableRow, tableColumn] =
      rule.column === undefined ? [rule.rows![row], column] : [rule.rows![at], rule.column];
    const value = weight.values[tableRow * width(weight) + tableColumn];
    return sum(
      [rule.scale === 1 ? term(value) : term(value, rule.scale!)],
      `row ${tableRow}, column ${tableColumn} of ${rule.weight}`,
    );
  },
  sinusoidal({ rule, row, column, box }) {
    const p = width(box);
    const pairs = Math.ceil(p / 2);
    const halves = rule.layout === "halves";
    const cosine = halves ? column >= pairs : column % 2 === 1;
    const i = halves ? column % pairs : Math.floor(column / 2);
    const angle = (row + rule.start!) / rule.base! ** ((2 * (i + rule.first!)) / p);
    return plain(
      `${cosine ? "cos" : "sin"}(${row + rule.start!} / ${rule.base}^(${2 * (i + rule.first!)}/${p}))`,
      cosine ? Math.cos(angle) : Math.sin(angle),
    );
  },
  pick: ({ rule, column, x }) => plain(`entry ${column} of row ${rule.row}`, x.values[rule.row! * width(x) + column]),
  // A single row is broadcast over all rows.
  add: ({ at, of }) => sum(of.map(({ values }) => term(values[at % values.length]))),
  norm({ rule, row, column, x, weight, bias }) {
    const p = width(x);
    const numbers = Array.from({ length: p }, (_, i) => x.values[(rule.row ?? row) * p + i]);
    const mean = rule.kind === "rms" ? 0 : numbers.reduce((total, number) => total + number, 0) / p;
    const sigma = Math.sqrt(numbers.reduce((total, number) => total + (number - mean) ** 2, 0) / p + rule.eps!);
    const [gain, shift] = [weight.values[column], bias ? bias.values[column] : 0];
    const centre = rule.kind === "rms" ? short(numbers[column]) : `(${short(numbers[column])} − ${signed(mean)})`;
    return plain(
      `${centre} / ${short(sigma)} · ${signed(gain)}${bias ? ` + ${signed(shift)}` : ""}`,
      ((numbers[column] - mean) / sigma) * gain + shift,
    );
  },
  linear({ rule, row, column, x, weight, bias }) {
    const [from, to] = rule.columns ?? [0, width(weight)];
    const out = (rule.rows?.[0] ?? 0) + column;
    const start = (rule.row ?? row) * width(x);
    const terms = termsOf(to - from, (i) => term(x.values[start + i], weight.values[out * width(weight) + from + i]));
    return sum(bias ? [...terms, term(bias.values[out])] : terms);
  },
  slice({ rule, row, column, x, weight, bias }) {
    const [from, to] = rule.columns!;
    const [, wide, d] = weight.shape;
    const start = (rule.row ?? row) * width(x) + from;
    const terms = termsOf(to - from, (i) =>
      term(x.values[start + i], weight.values[(rule.index! * wide + i) * d + column]),
    );
    return sum(bias ? [...terms, term(bias.values[rule.rows![0] + column])] : terms);
  },
  rotate({ rule, row, column, x }) {
    const [d, turning] = [width(x), rule.turning!];
    if (column >= turning) return plain("not rotated", x.values[row * d + column]);
    const halves = rule.layout === "halves";
    const half = turning / 2;
    const first = halves ? column < half : column % 2 === 0;
    const other = halves ? (column + half) % turning : first ? column + 1 : column - 1;
    const pair = halves ? column % half : Math.floor(column / 2);
    const angle = rule.positions![row] * rule.frequencies![pair];
    // (a, b) is rotated to (a cos − b sin, b cos + a sin).
    const terms = [
      term(x.values[row * d + column], Math.cos(angle)),
      term(x.values[row * d + other], (first ? -1 : 1) * Math.sin(angle)),
    ];
    return sum(terms, `pair ${pair}, rotated by ${rule.positions![row]} · ${short(rule.frequencies![pair])}`);
  },
  dot({ at, x, of, weight }) {
    if (of.length === 1) return sum(termsOf(width(x), (i) => term(x.values[at * width(x) + i], weight.values[i])));
    return sum(termsOf(width(x), (i) => term(x.values[i], of[1].values[at * width(x) + i])));
  },
  scale: ({ rule, at, x }) => sum([term(x.values[at], rule.by!)]),
  distance: ({ rule, at }) => sum([term(-rule.slope!, Math.abs(rule.distances![at]))]),
  relative({ rule, at, x, weight }) {
    const d = width(x);
    const terms = termsOf(d, (i) => term(x.values[i], weight.values[rule.rows![at] * d + i], rule.scale!));
    return sum(terms, `with row ${rule.rows![at]} of ${rule.weight}`);
  },
  mask: ({ rule, at, x }) =>
    rule.allowed![at] ? plain("not masked", x.values[at]) : plain("masked: −∞", NaN),
  softmax({ at, x }) {
    const open = Array.from(x.values).filter((score) => !Number.isNaN(score));
    if (Number.isNaN(x.values[at])) return plain("exp(−∞)", 0);
    const top = Math.max(...open);
    const total = open.reduce((total, score) => total + Math.exp(score - top), 0);
    const terms = largestTerms(open.map((score) => term(Math.exp(score - top))), MAX_EXPONENTIALS);
    const below = terms.shown.map(({ value }) => `exp(${short(top + Math.log(value))})`).join(" + ");
    const more = terms.omitted > 0 ? ` + … ${terms.omitted} more (${short(terms.rest * Math.exp(top))})` : "";
    return plain(`exp(${short(x.values[at])}) / (${below}${more})`, Math.exp(x.values[at] - top) / total);
  },
  weigh({ rule, at, x, of, weight }) {
    const rows = of.length > 1 ? of[1] : weight;
    const rowOf = (j: number) => (of.length > 1 ? j : rule.rows![j]);
    return sum(termsOf(x.values.length, (j) => term(x.values[j], rows.values[rowOf(j) * width(rows) + at])));
  },
  heads: ({ rule, row, column, box, at, x }) =>
    row === rule.head
      ? plain(`entry ${column} of this head's output`, x.values[column])
      : plain(`head ${row}: select this head to see its calculation`, box.values[at]),
  concat({ at, of }) {
    let start = 0;
    for (const [i, part] of of.entries()) {
      if (at < start + part.values.length) {
        const inside = at - start;
        const where =
          part.shape.length > 1
            ? `entry ${inside % width(part)} of row ${Math.floor(inside / width(part))}`
            : `entry ${inside}${of.length > 1 ? ` of part ${i}` : ""}`;
        return plain(where, part.values[inside]);
      }
      start += part.values.length;
    }
    throw new Error(`the box has no number ${at}`);
  },
  activation({ rule, at, x }) {
    if (rule.kind === "swiglu") {
      const [gate, value] = [x.values[at], x.values[at + x.values.length / 2]];
      return plain(`silu(${short(gate)}) · ${signed(value)}`, (gate / (1 + Math.exp(-gate))) * value);
    }
    return plain(`${rule.kind}(${short(x.values[at])})`, ACTIVATIONS[rule.kind!](x.values[at]));
  },
};

const MAX_EXPONENTIALS = 5; // of a softmax that are written out

const ACTIVATIONS: Record<string, (x: number) => number> = {
  relu: (x) => Math.max(x, 0),
  tanh: Math.tanh,
  gelu: (x) => (x / 2) * (1 + errorFunction(x / Math.SQRT2)),
  "gelu-tanh": (x) => (x / 2) * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3))),
};

/** erf to 1.5e-7: Abramowitz and Stegun, 7.1.26. */
function errorFunction(x: number): number {
  const t = 1 / (1 + 0.3275911 * Math.abs(x));
  const series = ((((1.061405429 * t - 1.453152027) * t + 1.421413741) * t - 0.284496736) * t + 0.254829592) * t;
  return Math.sign(x) * (1 - series * Math.exp(-x * x));
}

function term(...factors: number[]): Term {
  return { factors, value: factors.reduce((product, factor) => product * factor, 1) };
}

function sum(terms: Term[], formula = ""): Calculation {
  return { terms, formula, result: terms.reduce((total, { value }) => total + value, 0) };
}

function plain(formula: string, result: number): Calculation {
  return { terms: [], formula, result };
}

function termsOf(length: number, make: (i: number) => Term): Term[] {
  return Array.from({ length }, (_, i) => make(i));
}

/** The size of the last dimension. */
export function width(numbers: { shape: number[] }): number {
  return numbers.shape[numbers.shape.length - 1];
}

/** Three decimals, with a typographic minus sign. */
export function short(x: number): string {
  if (Number.isNaN(x)) return "−∞";
  const small = x !== 0 && Math.abs(x) < 0.0005;
  return (small ? x.toExponential(1) : x.toFixed(3)).replaceAll("-", "−");
}

/** The same inside a product or sum: negative numbers are in parentheses. */
export function signed(x: number): string {
  return x < 0 ? `(${short(x)})` : short(x);
}

/** The largest terms of a sum in their original order, and the number and the sum of the other terms. */
export function largestTerms(terms: Term[], most: number): { shown: Term[]; omitted: number; rest: number } {
  if (terms.length <= most) return { shown: terms, omitted: 0, rest: 0 };
  const order = terms.map((_, i) => i).sort((a, b) => Math.abs(terms[b].value) - Math.abs(terms[a].value));
  const largest = new Set(order.slice(0, most));
  const rest = terms.reduce((total, { value }, i) => (largest.has(i) ? total : total + value), 0);
  return { shown: terms.filter((_, i) => largest.has(i)), omitted: terms.length - most, rest };
}
