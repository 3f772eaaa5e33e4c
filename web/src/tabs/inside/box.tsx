// A box of the Inside tab: its numbers as colours, and the calculation of a selected number.
import { largest } from "../../chart/canvas";
import { colourOf, css, inkOn, scheme } from "../../chart/colours";
import { Strip } from "../../chart/strip";
import { Alert } from "../../controls/controls";
import { range } from "../../maths/grid";
import { askParameter } from "../../state/api";
import { useAnswer } from "../../state/requests";
import { runsFromRight } from "../../text/direction";
import { shownPiece } from "../../text/pieces";
import { cell } from "./state";
import {
  calculate,
  largestTerms,
  parametersOf,
  short,
  signed,
  width,
  type Numbers,
  type Rule,
  type Term,
} from "./arithmetic";

const NUMBERS_PER_LINE = 64;
const MAX_TERMS = 6; // of a sum

export interface Box {
  id: string;
  part: string;
  title: string;
  shape: number[];
  numbers: Numbers;
  from: string[];
  how: string;
  rule: Rule;
  rows?: string[];
}

/** A box as the server sends it. */
export interface PackedBox extends Omit<Box, "numbers"> {
  values: { shape: number[]; values: (number | null)[] };
}

/** Unpacks the numbers of the boxes; masked ones become NaN. */
export function readBoxes(boxes: PackedBox[]): Box[] {
  return boxes.map((box) => {
    const values = Float64Array.from(box.values.values, (number) => number ?? NaN);
    return { ...box, numbers: { shape: box.shape, values } };
  });
}

export function BoxCard(props: { box: Box; boxes: Box[]; model: string }) {
  const { box, boxes } = props;
  const { numbers } = box;
  const [id, at] = [cell.value.split(":")[0], Number(cell.value.split(":")[1])];
  const opened = id === box.id && at >= 0 && at < numbers.values.length ? at : null;
  const open = (index: number | null) => (cell.value = index === null ? "" : `${box.id}:${index}`);
  const size = box.shape.join(" × ");
  const from = box.from.map((input) => boxes.find((other) => other.id === input)!.title).join(" and ");
  return (
    <li class="box" data-testid="box" data-box={box.id}>
      <header>
        <h3>
          {box.title}{" "}
          <span class="shape" title="shape">
            {size}
          </span>
        </h3>
        <p class="how">{box.how}</p>
        {from && <p class="aside">from {from}</p>}
      </header>
      {box.shape.length === 1 && box.rows ? (
        <TokenNumbers box={box} opened={opened} onOpen={open} />
      ) : (
        <Strip
          values={numbers.values}
          cols={Math.min(width(box), box.shape.length > 1 ? Infinity : NUMBERS_PER_LINE)}
          names={box.rows ?? (box.rule.op === "heads" ? range(box.shape[0]).map((i) => `head\u00a0${i}`) : null)}
          scale="signed"
          label={`${box.title}, ${size}`}
          read={(i) => `${nameNumber(box, i)} = ${short(numbers.values[i])}`}
          opened={opened}
          onOpen={open}
          testid={`box-${box.id}`}
        />
      )}
      {opened !== null && <Arithmetic box={box} at={opened} boxes={boxes} model={props.model} />}
    </li>
  );
}

/** A number for each token, as buttons. */
function TokenNumbers(props: { box: Box; opened: number | null; onOpen: (at: number | null) => void }) {
  const { box, opened } = props;
  const { values } = box.numbers;
  const scale = box.rule.op === "softmax" ? "weights" : "signed";
  const most = scale === "weights" ? 1 : largest(Float32Array.from(values, (value) => value || 0));
  return (
    <ol class="word-weights" dir={runsFromRight(box.rows!) ? "rtl" : "ltr"} data-testid={`box-${box.id}`}>
      {box.rows!.map((name, i) => {
        const masked = Number.isNaN(values[i]);
        const colour = colourOf(masked ? 0 : values[i], scale, most, scheme.value);
        return (
          <li
            key={i}
            class={masked ? "masked" : ""}
            style={masked ? {} : { background: css(colour), color: inkOn(colour) }}>
            <button
              type="button"
              aria-pressed={i === opened}
              aria-label={`${nameNumber(box, i)} = ${short(values[i])}`}
              onClick={() => props.onOpen(i === opened ? null : i)}>
              <bdi>{shownPiece(name)}</bdi>
              <span class="number">{short(values[i])}</span>
            </button>
          </li>
        );
      })}
    </ol>
  );
}

/** The name of a number: its index, or its token where the box has one row per token. */
function nameNumber(box: Box, at: number): string {
  const [row, column] = [Math.floor(at / width(box)), at % width(box)];
  if (box.shape.length > 1) return `${box.title}[${box.rows ? box.rows[row] : row}, ${column}]`;
  return `${box.title}[${box.rows ? box.rows[at] : at}]`;
}

/** The calculation of a number from the boxes before it. */
function Arithmetic(props: { box: Box; at: number; boxes: Box[]; model: string }) {
  const { box, at, boxes, model } = props;
  const names = parametersOf(box.rule);
  const { value: parameters, error } = useAnswer(names.length === 0 ? "" : `parameters ${model} ${names.join(" ")}`, () =>
    askParameters(model, names),
  );
  if (error) return <Alert>{error}</Alert>;
  if (names.length > 0 && !parameters)
    return (
      <p class="notice" role="status">
        Loading {names.join(" and ")} …
      </p>
    );
  const calculation = calculate(
    box.rule,
    box.numbers,
    at,
    (id) => boxes.find((other) => other.id === id)!.numbers,
    (name) => parameters![name],
  );
  const { shown, omitted, rest } = largestTerms(calculation.terms, MAX_TERMS);
  return (
    <div class="arithmetic" data-testid="arithmetic" data-result={calculation.result} data-terms={calculation.terms.length}>
      <p>
        <b>{nameNumber(box, at)}</b> ={" "}
        {calculation.formula && (
          <span>
            {calculation.formula}
            {shown.length > 0 ? ": " : ""}
          </span>
        )}
        {shown.map((term, i) => (
          <span key={i}>
            {i > 0 ? " + " : ""}
            <span class="term">{product(term)}</span>
          </span>
        ))}
        {omitted > 0 && (
          <span>
            {" "}
            + … {omitted} more ({short(rest)})
          </span>
        )}
        {" = "}
        <b data-testid="result">{short(calculation.result)}</b>
      </p>
      {names.length > 0 && <p class="aside">with {names.join(" and ")}</p>}
    </div>
  );
}

async function askParameters(model: string, names: string[]): Promise<Record<string, Numbers>> {
  const values = await Promise.all(names.map((name) => askParameter(model, name)));
  return Object.fromEntries(names.map((name, i) => [name, values[i]]));
}

function product(term: Term): string {
  return term.factors.map((factor, i) => (i > 0 || factor < 0 ? signed(factor) : short(factor))).join(" · ");
}
