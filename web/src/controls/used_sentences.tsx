// The sentences of the source of a model that copies, with the share of the pointer's attention on each.
import type { Trace } from "../state/trace";
import { percent } from "../text/pieces";
import "./used_sentences.css";

/** The pointer's attention to each sentence, over all tokens that were written; the shares sum to 1. */
export function sentenceShares(trace: Trace): number[] {
  const pointer = trace.maps.pointer;
  if (!pointer) return [];
  const written = trace.axes.target.tokens.map(({ special }, row) => (special ? -1 : row)).filter((row) => row >= 0);
  const mass = trace.sentences.map(({ start, end }) =>
    written.reduce((sum, row) => {
      for (let key = start; key < end; key++) sum += pointer.weights[row * pointer.cols + key];
      return sum;
    }, 0),
  );
  const all = mass.reduce((sum, part) => sum + part, 0);
  return mass.map((part) => part / Math.max(all, 1e-9));
}

export function UsedSentences(props: { trace: Trace }) {
  const { trace } = props;
  if (trace.sentences.length === 0 || !trace.maps.pointer) return null;
  const shares = sentenceShares(trace);
  const most = Math.max(...shares);
  return (
    <section class="panel" aria-label="Sentences that were used">
      <h2>Sentences that were used</h2>
      <p class="note">How the pointer's attention is divided among the sentences, over all tokens of the output.</p>
      <ol class="used" data-testid="used-sentences">
        {trace.sentences.map(({ text }, i) => (
          <li key={i} class={shares[i] === most ? "most" : ""} data-share={shares[i]}>
            <span class="used-track" aria-hidden="true">
              <span class="share-bar" style={{ width: `${100 * shares[i]}%` }} />
            </span>
            <span class="number">{percent(shares[i])}</span>
            <bdi>{text}</bdi>
          </li>
        ))}
      </ol>
    </section>
  );
}
