// What happens at a level of the Zoom tab, in words and with the numbers of the model.
import { withCode } from "../../text/code_spans";
import { shownPiece } from "../../text/pieces";
import { largestTerms, short, signed, type Calculation, type Term } from "../inside/arithmetic";
import type { Computation } from "./computation";
import { LEVELS } from "./place";

const TERMS = 4; // that are written out
const MAX_EXPONENT = 15; // of scores whose exponentials are written as they are

export interface Facts {
  level: number;
  query: string; // the token of the row
  keyToken: string;
  writes: boolean; // whether the row writes a token; otherwise it reads one
  overall: number; // the weight that the picture of the sentence shows
  overallName: string;
  headName: string;
  headWeight: number;
  col: number;
  computation: Computation | null;
  calculation: Calculation | null;
}

export function Explanation(facts: Facts) {
  return (
    <div class="zoom-explanation" data-testid="zoom-explanation">
      <h2>{LEVELS[facts.level]}</h2>
      <p>{TEXTS[facts.level](facts)}</p>
    </div>
  );
}

const quote = (text: string) => `“${shownPiece(text)}”`;

const TEXTS: ((facts: Facts) => preact.ComponentChildren)[] = [
  ({ query, keyToken, writes, overall, overallName }) => (
    <>
      {writes ? `To write ${quote(query)}` : `For ${quote(query)}`} the model attends to {quote(keyToken)} with weight{" "}
      <b data-testid="zoom-overall">{overall.toFixed(3)}</b>
      {overallName}. How is this number made?
    </>
  ),
  ({ headName, headWeight, query, keyToken }) => (
    <>
      {headName ? `${headName} alone` : "The only head"} gives <b data-testid="zoom-head-weight">{headWeight.toFixed(3)}</b>.
      Every head weighs {quote(keyToken)} for {quote(query)} on its own: the table shows all of them. Choose one.
    </>
  ),
  ({ computation, query }) => {
    const sheet = computation!;
    const width = (sheet.query ?? { values: sheet.operands![1].rows[0] }).values.length;
    return (
      <>
        The head turns {quote(query)} into a query and each token on the left into a key, vectors of {width} numbers. Blue
        is positive, orange negative. {sheet.query ? "The score adds the two." : "Where the colours agree, the score grows."}
      </>
    );
  },
  ({ calculation, computation }) => (
    <>
      {computation!.query ? "w · tanh(query + key)" : "query · key"} ={" "}
      {calculation ? <Sum terms={calculation.terms} total={calculation.result} /> : "…"}
    </>
  ),
  ({ computation, col }) => <SoftmaxText sheet={computation!} col={col} />,
  ({ computation, col }) => <SumText sheet={computation!} col={col} />,
];

function Sum(props: { terms: Term[]; total: number }) {
  const { shown, omitted, rest } = largestTerms(props.terms, TERMS);
  const product = ({ factors }: Term) => factors.map((factor, i) => (i > 0 ? signed(factor) : short(factor))).join(" · ");
  return (
    <span class="zoom-sum-text">
      {shown.map(product).join(" + ")}
      {omitted > 0 && ` + … ${omitted} more (${short(rest)})`} = <b data-testid="zoom-score">{short(props.total)}</b>
    </span>
  );
}

function SoftmaxText(props: { sheet: Computation; col: number }) {
  const { scores } = props.sheet;
  const last = scores[scores.length - 2] ?? scores[0]; // what the softmax reads
  const score = last.values[props.col];
  const open = Array.from(last.values).filter((value) => !Number.isNaN(value));
  const top = Math.max(...open);
  const shift = Math.abs(top) > MAX_EXPONENT ? top : 0; // the softmax does not change when all scores are shifted
  const total = open.reduce((sum, value) => sum + Math.exp(value - shift), 0);
  const written = shift ? `${short(score)} − ${signed(shift)}` : short(score);
  const steps = scores.slice(1, -1).map(({ how }) => how);
  return (
    <>
      {steps.length > 0 && <>After the product: {withCode(steps.map((how) => `\`${how}\``).join(", then "))}. </>}
      {Number.isNaN(score) ? (
        <>This key is masked: its score is −∞ and its weight 0.</>
      ) : (
        <>
          exp({written}) = {short(Math.exp(score - shift))}, divided by the sum over all keys, {short(total)}, gives{" "}
          <b data-testid="zoom-softmax">{short(Math.exp(score - shift) / total)}</b>: the weight. All
          weights of a query sum to 1.
        </>
      )}{" "}
    </>
  );
}

function SumText(props: { sheet: Computation; col: number }) {
  const { scores, sum, values } = props.sheet;
  const weights = scores[scores.length - 1].values;
  const terms = Array.from(weights, (weight, j) => {
    const factors = [weight, values.rows[j][0]];
    return { factors, value: factors[0] * factors[1] };
  });
  return (
    <>
      The weights mix the values, the vectors that the tokens offer. The first of {sum.values.length} numbers:{" "}
      <Sum terms={terms} total={terms.reduce((total, { value }) => total + value, 0)} />. This vector is all that the head
      passes on.
    </>
  );
}
