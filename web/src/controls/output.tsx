// What the model wrote, token by token, with the probability of each token.
import { useEffect, useRef } from "preact/hooks";
import { range } from "../maths/grid";
import type { Trace } from "../state/trace";
import { percent, shownPiece } from "../text/pieces";
import "./output.css";

const MAX_TOKENS = 100; // shown at once

interface TokensProps {
  trace: Trace;
  against?: Trace | null; // tokens that differ from it are highlighted
  step?: number;
  onStep?: (step: number) => void;
  titled?: boolean;
  testid?: string;
}

/** The output as a text. */
export function OutputText(props: { trace: Trace; testid?: string }) {
  const { trace, testid = "output" } = props;
  if (!trace.axes.target?.tokens.length) return null;
  return (
    <p class="output-text" dir="auto" data-testid={`${testid}-text`}>
      {trace.output}
    </p>
  );
}

/** The tokens of the output with their probabilities. */
export function Tokens(props: TokensProps) {
  const { trace, step, testid = "output" } = props;
  const tokens = trace.axes.target?.tokens ?? [];
  const list = useRef<HTMLOListElement>(null);
  const first = Math.min(Math.max((step ?? 0) - MAX_TOKENS / 2, 0), Math.max(tokens.length - MAX_TOKENS, 0));
  useEffect(() => {
    // Scroll the list of tokens, not the page.
    const current = list.current?.querySelector<HTMLElement>("[aria-current]");
    if (current) list.current!.scrollTop = current.offsetTop - list.current!.offsetTop - list.current!.clientHeight / 2;
  }, [step, trace]);
  if (tokens.length === 0) return null;
  const last = Math.min(first + MAX_TOKENS, tokens.length);
  return (
    <div class="output" data-testid={`${testid}-tokens`}>
      {props.titled && <h3>Tokens and their probabilities</h3>}
      <ol class="pieces" ref={list} tabIndex={0} aria-label="Tokens and their probabilities">
        {first > 0 && <li class="aside">{first} earlier …</li>}
        {range(last - first).map((k) => {
          const i = first + k;
          const changed = props.against ? props.against.axes.target?.tokens[i]?.text !== tokens[i].text : false;
          const later = step !== undefined && i > step;
          return (
            <Piece
              key={i}
              trace={trace}
              i={i}
              looks={`${changed ? "changed" : ""} ${later ? "later" : ""}`}
              current={i === step}
              onStep={props.onStep}
            />
          );
        })}
        {last < tokens.length && <li class="aside">… {tokens.length - last} more</li>}
      </ol>
    </div>
  );
}

/** The output as a text, and token by token. */
export function Output(props: TokensProps & { label?: string }) {
  if (!props.trace.axes.target?.tokens.length) return null;
  return (
    <div class="output" data-testid={props.testid ?? "output"}>
      {props.label && <h3>{props.label}</h3>}
      <OutputText trace={props.trace} testid={props.testid} />
      <Tokens {...props} />
    </div>
  );
}

function Piece(props: { trace: Trace; i: number; looks: string; current: boolean; onStep?: (step: number) => void }) {
  const { trace, i } = props;
  const token = trace.axes.target.tokens[i];
  const step = trace.steps[i];
  const chosen = step?.candidates.find((candidate) => candidate.token === step.chosen);
  const looks = `piece ${token.special ? "special" : ""} ${step?.given ? "given" : ""} ${props.looks}`;
  const inner = (
    <>
      <bdi>{shownPiece(token.text)}</bdi>
      {chosen && <Share value={Math.exp(chosen.logp)} />}
    </>
  );
  return (
    <li>
      {props.onStep ? (
        <button
          type="button"
          class={looks}
          aria-current={props.current ? "step" : undefined}
          onClick={() => props.onStep!(i)}
          data-testid="piece">
          {inner}
        </button>
      ) : (
        <span class={looks} data-testid="piece">
          {inner}
        </span>
      )}
    </li>
  );
}

/** A probability as a number above a bar. */
function Share(props: { value: number }) {
  return (
    <span class="share">
      <span class="share-number" data-testid="probability">
        {percent(props.value)}
      </span>
      <span class="share-bar" style={{ width: `${100 * props.value}%` }} />
    </span>
  );
}
