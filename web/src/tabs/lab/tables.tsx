// The matrices of the Lab as tables: editable inputs and computed results.
import { useState } from "preact/hooks";
import type { ComponentChildren } from "preact";
import { largest } from "../../chart/canvas";
import { colourOf, css, inkOn, scheme } from "../../chart/colours";
import { fixed, short } from "../../text/numbers";
import type { Rows } from "./attention";
import { invalidInputs, setMatrix, validEntry, type MatrixName, type StageName } from "./state";

export type Lit = { matrix: string; row?: number; col?: number }[];

function isLit(lit: Lit, matrix: string, i: number, j: number): boolean {
  return lit.some((part) => part.matrix === matrix && (part.row ?? i) === i && (part.col ?? j) === j);
}

/** An editable matrix. */
export function Editable(props: { name: MatrixName; title: string; values: Rows; rows?: readonly string[]; lit: Lit }) {
  const { name, values } = props;
  const write = (i: number, j: number, value: number) =>
    setMatrix(
      name,
      values.map((row, r) => row.map((old, c) => (r === i && c === j ? value : old))),
    );
  return (
    <div class="lab-matrix">
      <h2>
        {props.title}{" "}
        <span class="muted">
          {values.length} × {values[0].length}
        </span>
      </h2>
      <div class="scroll">
        <table data-testid={`lab-${name}`}>
          <tbody>
            {values.map((row, i) => (
              <tr key={i}>
                {props.rows && <th scope="row">{props.rows[i]}</th>}
                {row.map((value, j) => (
                  <td key={j} class={isLit(props.lit, name, i, j) ? "lit" : undefined}>
                    <NumberCell
                      where={`${name}.${i}.${j}`}
                      title={`${props.title}, row ${i + 1}, column ${j + 1}`}
                      value={value}
                      onWrite={(next) => write(i, j, next)}
                    />
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </div>
  );
}

/** A cell for a number; other input is marked as invalid, and the last valid number is used. */
function NumberCell(props: { where: string; title: string; value: number; onWrite: (value: number) => void }) {
  const [draft, setDraft] = useState<string | null>(null);
  const invalid = invalidInputs.value.has(props.where);
  const read = (text: string) => {
    setDraft(text);
    const value = Number(text.trim().replace("−", "-"));
    const valid = text.trim() !== "" && validEntry(value);
    const others = new Map([...invalidInputs.peek()].filter(([where]) => where !== props.where));
    invalidInputs.value = valid ? others : others.set(props.where, text);
    if (valid) props.onWrite(value);
  };
  const text = draft !== null && (invalid || document.activeElement?.id === props.where) ? draft : short(props.value, 6);
  return (
    <input
      id={props.where}
      type="text"
      inputMode="decimal"
      autocomplete="off"
      aria-label={props.title}
      aria-invalid={invalid}
      data-testid={`lab-${props.where.replaceAll(".", "-")}`}
      value={text}
      onFocus={(event) => event.currentTarget.select()}
      onInput={(event) => read(event.currentTarget.value)}
      onBlur={() => !invalid && setDraft(null)}
    />
  );
}

/** A computed matrix; a click on a cell shows its calculation. */
export function Computed(props: {
  stage: StageName;
  number: number;
  title: ComponentChildren;
  note: string;
  values: (number | null)[][];
  rows: readonly string[];
  cols: readonly string[];
  sums?: boolean; // show a column with the row sums
  pending: boolean; // a later step
  lit: Lit;
  open: string;
  onOpen: (i: number, j: number) => void;
}) {
  const { stage, values } = props;
  const weights = stage === "weights";
  const most = weights ? 1 : largest(values.flat().map((value) => value ?? 0));
  return (
    <section
      class={props.pending ? "lab-box pending" : "lab-box"}
      data-testid={`lab-box-${stage}`}
      aria-label={`Step ${props.number}`}
    >
      <h2>
        <span class="badge">{props.number}</span> {props.title}
      </h2>
      <div class="scroll">
        <table data-testid={`lab-${stage}`}>
          <thead>
            <tr>
              <td />
              {props.cols.map((name, j) => (
                <th key={j} scope="col">
                  {name}
                </th>
              ))}
              {props.sums && <th scope="col">sum</th>}
            </tr>
          </thead>
          <tbody>
            {values.map((row, i) => (
              <tr key={i}>
                <th scope="row">{props.rows[i]}</th>
                {row.map((value, j) => {
                  const colour = colourOf(value ?? 0, weights ? "weights" : "signed", most, scheme.value);
                  const shown = value === null ? "−∞" : weights || stage === "out" ? fixed(value) : short(value, 2);
                  const look = value === null || props.pending ? {} : { background: css(colour), color: inkOn(colour) };
                  const classes = [
                    value === null && !props.pending ? "masked" : "",
                    isLit(props.lit, stage, i, j) ? "lit" : "",
                    props.open === `${stage}.${i}.${j}` ? "open" : "",
                  ];
                  return (
                    <td key={j} class={classes.join(" ")}>
                      <button
                        type="button"
                        disabled={props.pending}
                        style={look}
                        data-testid={`lab-${stage}-${i}-${j}`}
                        data-value={value}
                        aria-pressed={props.open === `${stage}.${i}.${j}`}
                        onClick={() => props.onOpen(i, j)}
                      >
                        {props.pending ? "·" : shown}
                      </button>
                    </td>
                  );
                })}
                {props.sums && (
                  <td class="sum" data-testid={`lab-sum-${i}`}>
                    {props.pending ? "·" : fixed(row.reduce((a: number, b) => a + (b ?? 0), 0))}
                  </td>
                )}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <p class="note">{props.pending ? "\u00a0" : props.note}</p>
    </section>
  );
}
