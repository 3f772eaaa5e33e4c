// A decoding step: the most probable tokens as bars, and the random draw of a sample.
import type { Candidate, Step } from "../../state/trace";
import { percent, shownPiece } from "../../text/pieces";

export type Force = (token: Candidate) => void;

/** The most probable tokens as bars, and all others together. */
export function Candidates(props: { step: Step; at: number; onForce: Force | null }) {
  const { step, onForce } = props;
  const sampled = step.draw !== null;
  const widest = Math.max(step.rest, ...step.candidates.map((candidate) => Math.exp(candidate.logp)));
  return (
    <figure data-testid="candidates">
      <figcaption>
        <h2>Next-token probabilities</h2>
        <span class="aside">
          entropy <output data-testid="entropy">{step.entropy.toFixed(3)}</output> nats
          {step.given ? " · given in the input, not chosen by the model" : ""}
        </span>
      </figcaption>
      <table class="bars">
        <thead>
          <tr>
            <th>token</th>
            <th colSpan={sampled ? 2 : 3}>probability</th>
            {sampled && <th>sampling probability</th>}
          </tr>
        </thead>
        <tbody>
          {step.candidates.map((candidate) => {
            const p = Math.exp(candidate.logp);
            const taken = candidate.token === step.chosen;
            return (
              <tr
                key={candidate.token}
                class={taken ? "taken" : onForce ? "forcible" : ""}
                onClick={onForce && !taken ? () => onForce(candidate) : undefined}
                data-testid="candidate"
                data-p={p}
                data-token={candidate.token}>
                <th scope="row">
                  {onForce && !taken ? (
                    <button
                      type="button"
                      class="token"
                      title={`Force ${candidate.text} here and continue`}>
                      <bdi>{shownPiece(candidate.text)}</bdi>
                    </button>
                  ) : (
                    <span class="token" title={taken ? "chosen" : undefined}>
                      <bdi>{shownPiece(candidate.text)}</bdi>
                    </span>
                  )}
                </th>
                <td class="bar">
                  <span style={{ width: `${(100 * p) / widest}%` }} />
                </td>
                <td class="number">{percent(p)}</td>
                <td class="number">
                  {candidate.low !== null && candidate.high !== null ? percent(candidate.high - candidate.low) : ""}
                </td>
              </tr>
            );
          })}
          <tr class="rest" data-testid="rest" data-p={step.rest}>
            <th scope="row">all others</th>
            <td class="bar">
              <span style={{ width: `${(100 * step.rest) / widest}%` }} />
            </td>
            <td class="number">{percent(step.rest)}</td>
            <td />
          </tr>
        </tbody>
      </table>
      {onForce && <p class="hint">Click a token to force it here and continue from there.</p>}
    </figure>
  );
}

/** The cumulative distribution of the tokens, and the random number that was drawn. */
export function Draw(props: { step: Step }) {
  const { candidates, chosen, draw } = props.step;
  const taken = candidates.find((candidate) => candidate.token === chosen)!;
  return (
    <figure data-testid="draw" data-draw={draw!} data-low={taken.low!} data-high={taken.high!}>
      <figcaption>
        <h2>Random draw between 0 and 1</h2>
      </figcaption>
      <div class="draw-line" role="img" aria-label={`The draw ${draw!.toFixed(4)} falls on ${taken.text}`}>
        {candidates.map((candidate) => (
          <span
            key={candidate.token}
            class={candidate.token === chosen ? "part taken" : "part"}
            title={`${candidate.text}: ${candidate.low!.toFixed(4)} to ${candidate.high!.toFixed(4)}`}
            style={{ left: `${100 * candidate.low!}%`, width: `${100 * (candidate.high! - candidate.low!)}%` }}
          />
        ))}
        <span class="needle" style={{ left: `${100 * draw!}%` }} />
      </div>
      <div class="draw-ends">
        <span>0</span>
        <span>1</span>
      </div>
      <p>
        {draw!.toFixed(4)} falls into the interval of{" "}
        <b class="token">
          <bdi>{shownPiece(taken.text)}</bdi>
        </b>
        , from {taken.low!.toFixed(4)} to {taken.high!.toFixed(4)}. Each token has an interval as long as its sampling
        probability. The intervals are in the order of the token ids; gaps belong to tokens that are not listed.
      </p>
    </figure>
  );
}
