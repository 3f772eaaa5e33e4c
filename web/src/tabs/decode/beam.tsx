// What a beam search found: its finished hypotheses, ranked for any length penalty, and the tree that it grew.
import { useState } from "preact/hooks";
import { Button, Slider, Toggle } from "../../controls/controls";
import type { Tree } from "../../state/trace";
import { fixed } from "../../text/numbers";
import { BeamTree } from "./beam_tree";
import { rankFinished } from "./hypotheses";

export function Hypotheses(props: {
  tree: Tree;
  ranking: number; // the length penalty that they are ranked by; below 0: that of the search
  onRank: (penalty: number) => void;
  onSearch: ((penalty: number) => void) | null; // null where there is no model to ask
  onForce: ((tokens: number[]) => void) | null;
}) {
  const { tree } = props;
  const [all, setAll] = useState(true);
  const by = props.ranking < 0 ? tree.length_penalty : props.ranking;
  const ranked = rankFinished(tree.nodes, tree.best, by);
  return (
    <figure>
      <figcaption>
        <h2>A beam of width {tree.width}</h2>
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
        <Toggle label="Pruned ones too" value={all} onChange={setAll} testid="pruned" />
        {props.onSearch && by !== tree.length_penalty && (
          <Button onClick={() => props.onSearch!(by)} testid="search-again">
            Search again with {by.toFixed(1)}
          </Button>
        )}
      </div>
      <div class="scroll" tabIndex={0} role="group" aria-label="Finished hypotheses">
        <table class="ranking" data-testid="hypotheses">
          <thead>
            <tr>
              <th />
              <th>hypothesis</th>
              <th>tokens</th>
              <th>sum of log p</th>
              <th>
                sum / tokens<sup>{by.toFixed(1)}</sup>
              </th>
            </tr>
          </thead>
          <tbody>
            {ranked.map((one, i) => (
              <tr key={one.node} class={i === 0 ? "taken" : ""} data-testid="hypothesis">
                <td>{i + 1}</td>
                <td class="hypothesis-text">
                  <bdi>{one.text}</bdi>
                </td>
                <td class="number">{one.length}</td>
                <td class="number">{fixed(one.sum)}</td>
                <td class="number">{fixed(one.score)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <BeamTree tree={tree} best={ranked[0].node} pruned={all} onForce={props.onForce} />
      <p class="hint">
        One column a step, best first. Framed ones were kept, filled ones ended, pale ones were pruned; the thick line
        is the best for this length penalty.
      </p>
    </figure>
  );
}
