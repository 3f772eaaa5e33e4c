// The picture of the Alignment tab, and the row of weights beside or below it.
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { Arcs } from "../../chart/arcs/arcs";
import { largest } from "../../chart/canvas";
import { Figure } from "../../chart/figure";
import { Matrix, type Cell } from "../../chart/matrix/matrix";
import { WordWeights } from "../../chart/word_weights";
import {
  aligningMap,
  AXIS_TITLES,
  cap,
  MEANINGS,
  nameChoice,
  pickWeights,
  readCell,
  readChoice,
  readPin,
  writePin,
  type Shown,
} from "../../state/selection";
import type { Trace } from "../../state/trace";
import { shownPiece } from "../../text/pieces";
import { headOf, HowLink } from "../zoom/how_link";
import { chosenView, cut, head, hide, layer, level, stretch } from "./state";

const MAX_ROWS = 20; // rows listed beside the matrix

export function Weights(props: { trace: Trace; pin: { value: string }; side: 0 | 1; children?: ComponentChildren }) {
  const { trace, pin, side } = props;
  const name = aligningMap(trace)!;
  const choice = readChoice(trace, name, layer.value, head.value);
  const shown = pickWeights(trace, name, choice, { words: level.value === "word", hide: hide.value, cut: cut.value });
  const { grid, rows, cols } = shown;
  const texts = (spans: typeof rows) => spans.map((span) => shownPiece(span.text));
  const fitting = readPin(pin.value, grid);
  const arcs = chosenView(trace) === "arcs";
  const title = `${cap(MEANINGS[name])}${nameChoice(trace.maps[name]!, choice)}`;
  const common = {
    read: (row: number, col: number) => readCell(shown, row, col),
    pin: fitting,
    onPin: (next: Cell | null) => (pin.value = writePin(next)),
    label: `Attention weights: ${MEANINGS[name]}${nameChoice(trace.maps[name]!, choice)}`,
    testid: side === 0 ? "weights" : "beside-weights",
  };
  return (
    <Figure title={title} name={common.testid}>
      <div class={arcs ? "stacked" : "side-by-side"}>
        {arcs ? (
          <Arcs
            shown={shown}
            axes={{ above: AXIS_TITLES[trace.maps[name]!.key], below: AXIS_TITLES[trace.maps[name]!.query] }}
            drawn={`${trace.source} → ${trace.output}`}
            {...common}
          />
        ) : (
          <Matrix
            values={grid.values}
            mask={grid.mask}
            rows={texts(rows)}
            cols={texts(cols)}
            rowTitle={AXIS_TITLES[trace.maps[name]!.query]}
            colTitle={AXIS_TITLES[trace.maps[name]!.key]}
            maxCell={60}
            most={stretch.value ? largest(grid.values) : 1}
            {...common}
          />
        )}
        {fitting ? (
          <PinnedRow shown={shown} row={fitting[0]} testid={`${common.testid}-row`}>
            <HowLink
              trace={trace}
              map={name}
              row={rows[fitting[0]]}
              col={cols[fitting[1]]}
              weight={grid.values[fitting[0] * grid.cols + fitting[1]]}
              {...headOf(choice)}
              testid={common.testid}
            />
          </PinnedRow>
        ) : (
          !arcs && <Strongest shown={shown} query={trace.maps[name]!.query} />
        )}
      </div>
      {props.children}
    </Figure>
  );
}

function PinnedRow(props: { shown: Shown; row: number; testid: string; children: ComponentChildren }) {
  const { row, shown } = props;
  const { grid, rows, cols } = shown;
  return (
    <div class="reading">
      <p>
        Attention of{" "}
        <b>
          <bdi>{rows[row].text}</bdi>
        </b>{" "}
        <span class="aside with-keys">(Esc unpins)</span>
      </p>
      <WordWeights
        words={cols}
        weights={grid.values.subarray(row * grid.cols, (row + 1) * grid.cols)}
        label={`Weights of ${rows[row].text}`}
        testid={props.testid}
      />
      {props.children}
    </div>
  );
}

/** The column with the largest weight, for each row. */
function Strongest(props: { shown: Shown; query: string }) {
  const { query } = props;
  const [all, setAll] = useState(false);
  const { grid, rows, cols } = props.shown;
  const best = rows.slice(0, all ? rows.length : MAX_ROWS).map((_, i) => {
    const row = grid.values.subarray(i * grid.cols, (i + 1) * grid.cols);
    return row.indexOf(Math.max(...row));
  });
  return (
    <table class="reading links" data-testid="links">
      <thead>
        <tr>
          <th>{AXIS_TITLES[query]}</th>
          <th>attends most to</th>
          <th>weight</th>
        </tr>
      </thead>
      <tbody>
        {best.map((j, i) => (
          <tr key={i}>
            <th scope="row">
              <bdi title={rows[i].text}>{shownPiece(shortWord(rows[i].text))}</bdi>
            </th>
            <td>
              <bdi title={cols[j].text}>{shownPiece(shortWord(cols[j].text))}</bdi>
            </td>
            <td class="number">{grid.values[i * grid.cols + j].toFixed(2)}</td>
          </tr>
        ))}
      </tbody>
      {rows.length > best.length && (
        <tfoot>
          <tr>
            <td colSpan={3}>
              <button type="button" class="link" data-testid="all-rows" onClick={() => setAll(true)}>
                Show {rows.length - best.length} more
              </button>
            </td>
          </tr>
        </tfoot>
      )}
    </table>
  );
}

const MAX_LETTERS = 28; // of a word in the table

function shortWord(word: string): string {
  return word.length > MAX_LETTERS ? `${word.slice(0, MAX_LETTERS - 1)}…` : word;
}
