// One step of decoding: the likeliest tokens as bars, and the draw of a sample.
import type { Candidate, Step } from "../../state/trace";
import { percent, shownPiece } from "../../text/pieces";

export type Force = (token: Candidate) => void;

/** The likeliest tokens as bars, and all others as one. */
export function Candidates(props: { step: Step; at: number; onForce: Force | null }) {
  const { step: now, onForce } = props;
  const sampled = now.draw !== null;
  const widest = Math.max(now.rest, ...now.candidates.map((one) => Math.exp(one.logp)));
  return (
    <figure data-testid="candidates">
      <figcaption>
        <h2>What may come next</h2>
        <span class="aside">
          entropy <output data-testid="entropy">{now.entropy.toFixed(3)}</output> nats
          {now.given ? " · given, not chosen" : ""}
        </span>
      </figcaption>
      <table class="bars">
        <thead>
          <tr>
            <th>token</th>
            <th>probability</th>
            <th />
            <th>{sampled ? "drawn with" : ""}</th>
          </tr>
        </thead>
        <tbody>
          {now.candidates.map((one) => {
            const p = Math.exp(one.logp);
            const taken = one.token === now.chosen;
            return (
              <tr
                key={one.token}
                class={taken ? "taken" : ""}
                data-testid="candidate"
                data-p={p}
                data-token={one.token}>
                <th scope="row">
                  {onForce && !taken ? (
                    <button
                      type="button"
                      class="token"
                      title={`Take ${one.text} here and go on`}
                      onClick={() => onForce(one)}>
                      <bdi>{shownPiece(one.text)}</bdi>
                    </button>
                  ) : (
                    <span class="token" title={taken ? "chosen" : undefined}>
                      <bdi>{shownPiece(one.text)}</bdi>
                    </span>
                  )}
                </th>
                <td class="bar">
                  <span style={{ width: `${(100 * p) / widest}%` }} />
                </td>
                <td class="number">{percent(p)}</td>
                <td class="number">{one.low !== null && one.high !== null ? percent(one.high - one.low) : ""}</td>
              </tr>
            );
          })}
          <tr class="rest" data-testid="rest" data-p={now.rest}>
            <th scope="row">all others</th>
            <td class="bar">
              <span style={{ width: `${(100 * now.rest) / widest}%` }} />
            </td>
            <td class="number">{percent(now.rest)}</td>
            <td />
          </tr>
        </tbody>
      </table>
      {onForce && <p class="hint">Click a token to take it instead and go on from there.</p>}
    </figure>
  );
}

/** The line from 0 to 1 that the tokens share, and where the draw fell. */
export function Draw(props: { step: Step }) {
  const { candidates, chosen, draw } = props.step;
  const taken = candidates.find((one) => one.token === chosen)!;
  return (
    <figure data-testid="draw" data-draw={draw!} data-low={taken.low!} data-high={taken.high!}>
      <figcaption>
        <h2>The draw: a number from 0 to 1</h2>
      </figcaption>
      <div class="draw-line" role="img" aria-label={`The draw ${draw!.toFixed(4)} falls on ${taken.text}`}>
        {candidates.map((one) => (
          <span
            key={one.token}
            class={one.token === chosen ? "part taken" : "part"}
            title={`${one.text}: ${one.low!.toFixed(4)} to ${one.high!.toFixed(4)}`}
            style={{ left: `${100 * one.low!}%`, width: `${100 * (one.high! - one.low!)}%` }}
          />
        ))}
        <span class="needle" style={{ left: `${100 * draw!}%` }} />
      </div>
      <div class="draw-ends">
        <span>0</span>
        <span>1</span>
      </div>
      <p>
        {draw!.toFixed(4)} lies on the part of{" "}
        <b class="token">
          <bdi>{shownPiece(taken.text)}</bdi>
        </b>
        , from {taken.low!.toFixed(4)} to {taken.high!.toFixed(4)}. The parts stand in the order of the tokens' numbers;
        between them are those of all others.
      </p>
    </figure>
  );
}
