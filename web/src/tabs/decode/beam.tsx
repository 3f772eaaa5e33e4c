// The result of a beam search: its finished hypotheses, ranked for any length penalty, and its search tree.
import { useState } from "preact/hooks";
import { Button, Slider, Toggle } from "../../controls/controls";
import type { Tree } from "../../state/trace";
import { fixed } from "../../text/numbers";
import { shownPiece } from "../../text/pieces";
import { BeamTree } from "./beam_tree";
import { rankFinished, repeatedTexts } from "./hypotheses";

export function Hypotheses(props: {
  tree: Tree;
  ranking: number; // the length penalty for the ranking; negative: that of the search
  onRank: (penalty: number) => void;
  onSearch: ((penalty: number) => void) | null; // null without a model
  onForce: ((tokens: number[]) => void) | null;
}) {
  const { tree } = props;
  const [showPruned, setShowPruned] = useState(true);
  const by = props.ranking < 0 ? tree.length_penalty : props.ranking;
  const ranked = rankFinished(tree.nodes, tree.best, by);
  const repeated = repeatedTexts(ranked);
  return (
    <figure>
      <figcaption>
        <h2>Beam search, width {tree.width}</h2>
      </figcaption>
      <div class="bar">
        <Slider
          label="Length penalty"
          value={by}
          min={0}
          max={2}
          step={0.1}
          onChange={props.onRank}
          show={(x) => x.toFixed(1)}
          testid="penalty"
        />
        <Toggle label="Show pruned hypotheses" value={showPruned} onChange={setShowPruned} testid="pruned" />
        {props.onSearch && by !== tree.length_penalty && (
          <Button onClick={() => props.onSearch!(by)} testid="search-again">
            Search again with penalty {by.toFixed(1)}
          </Button>
        )}
      </div>
      <div class="scroll" tabIndex={0} role="group" aria-label="Finished hypotheses">
        <table class="ranking" data-testid="hypotheses">
          <thead>
            <tr>
              <td />
              <th>hypothesis</th>
              <th>tokens</th>
              <th>sum of log p</th>
              <th>
                sum / tokens<sup>{by.toFixed(1)}</sup>
              </th>
            </tr>
          </thead>
          <tbody>
            {ranked.map((hypothesis, i) => (
              <tr key={hypothesis.node} class={i === 0 ? "taken" : ""} data-testid="hypothesis">
                <td>{i + 1}</td>
                <td class="hypothesis-text">
                  <bdi>{hypothesis.text}</bdi>
                  {repeated.has(hypothesis.text) && (
                    <bdi class="hypothesis-tokens" title="The tokens of this text">
                      {hypothesis.pieces.map(shownPiece).join(" ")}
                    </bdi>
                  )}
                </td>
                <td class="number">{hypothesis.length}</td>
                <td class="number">{fixed(hypothesis.sum)}</td>
                <td class="number">{fixed(hypothesis.score)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <BeamTree tree={tree} best={ranked[0].node} pruned={showPruned} onForce={props.onForce} />
      <p class="hint">
        Each column is a step, with the best hypothesis on top. Solid frame: kept. Filled: finished. Dashed: pruned. The
        thick line is the best hypothesis for this length penalty.
      </p>
    </figure>
  );
}
