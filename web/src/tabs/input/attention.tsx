// Which attention is shown: the map, the layer and the head, a button with a picture for each head, and the query.
import { useEffect, useMemo, useRef } from "preact/hooks";
import { scheme, css, weightColour } from "../../chart/colours";
import { Matrix } from "../../chart/matrix/matrix";
import { Thumbnail } from "../../chart/matrix/thumbnail";
import { Figure } from "../../chart/figure";
import { Choice, Select } from "../../controls/controls";
import { range, takeGrid } from "../../maths/grid";
import { asHistoryEntry } from "../../state/url";
import { shownPiece } from "../../text/pieces";
import type { Place } from "../../state/input_trace";
import { paintFrames } from "./picture";
import { head, layer, mapsOf, query, stack, variable, weightsFor, type View } from "./state";

const MAX_MATRIX_SIDE = 512;
const MAX_HEAD_PIXELS = 96; // on a side of the picture of a head

/** Selects for the map, the variable, the layer and the head. */
export function AttentionControls(props: { view: View }) {
  const { trace, map } = props.view;
  const { layers, heads } = map.attention;
  const titles = [...new Set(mapsOf(trace).map(({ title }) => title))];
  const numbers = (length: number) => range(length).map(String);
  return (
    <div class="bar">
      {titles.length > 1 && (
        <Choice label="Attention" value={map.title} options={titles} onChange={(title) => asHistoryEntry(() => { stack.value = title; query.value = ""; })} testid="input-map" />
      )}
      {layers > 1 && (
        <Select label="Layer" value={layer.value} options={[{ value: "all", label: "all" }, ...numbers(layers)]} onChange={(value) => (layer.value = value)} testid="input-layer" />
      )}
      {heads > 1 && (
        <Select
          label="Head"
          value={head.value}
          options={[{ value: "mean", label: "mean" }, { value: "max", label: "maximum" }, ...numbers(heads)]}
          onChange={(value) => (head.value = value)}
          testid="input-head"
        />
      )}
    </div>
  );
}

/** The variable of a series. */
export function VariableChoice(props: { names: string[]; row: number }) {
  if (props.names.length < 2) return null;
  const options = props.names.map((label, value) => ({ value, label }));
  const onChange = (row: number) => (variable.value = row);
  return props.names.length <= 5 ? (
    <Choice label="Column" value={props.row} options={options} onChange={onChange} testid="input-variable" />
  ) : (
    <Select label="Column" value={props.row} options={options} onChange={onChange} testid="input-variable" />
  );
}

/** Queries without a place, such as the class token or the words of a caption, and the mean of all queries. */
export function QueryButtons(props: { view: View; pointed: number | null; onPoint: (query: number | null) => void }) {
  const { queries, query: current } = props.view;
  const unplaced = range(queries.length).filter((i) => !queries[i].box);
  const shown = props.pointed ?? current;
  const pick = (value: string) => (query.value = value);
  return (
    <div class="queries" role="group" aria-label="Query" data-testid="input-queries">
      <span class="aside">Query</span>
      {unplaced.map((i) => (
        <button
          key={i}
          type="button"
          class="query"
          aria-pressed={shown === i}
          onPointerEnter={() => props.onPoint(i)}
          onPointerLeave={() => props.onPoint(null)}
          onFocus={() => props.onPoint(i)}
          onBlur={() => props.onPoint(null)}
          onClick={() => pick(String(i))}
        >
          <bdi>{shownPiece(queries[i].text).replaceAll("·", unplaced.length > 1 ? "·" : " ")}</bdi>
        </button>
      ))}
      <button type="button" class="query" aria-pressed={shown === "mean"} onClick={() => pick("mean")}>
        mean of all
      </button>
      {typeof current === "number" && queries[current].box && (
        <button
          type="button"
          class="query"
          aria-pressed={shown === current}
          title="Do not keep this query"
          onClick={() => pick("")}
        >
          {queries[current].text}
        </button>
      )}
    </div>
  );
}

/** A button for each head, layers as rows: its weights for the query, or all its queries by keys. */
export function HeadTable(props: { view: View; shown: number | "mean" }) {
  const { view, shown } = props;
  const { attention } = view.map;
  const { layers, heads } = attention;
  const grids = useMemo(
    () => range(layers * heads).map((i) => takeGrid(attention, { layer: Math.floor(i / heads), head: i % heads })),
    [attention],
  );
  if (layers * heads === 1) return null;
  const pictures = view.trace.form === "pixels";
  return (
    <Figure
      title="All heads"
      name="input-heads"
      note={
        pictures
          ? "The weights of each head for the query, each picture with its own colour scale. Click a head to show it."
          : "Each head with a row for each query and a column for each key. Click a head to show it."
      }
    >
      <div class="scroll">
        <table class={pictures ? `thumbnails ${view.trace.frames > 1 ? "videos" : "pictures"}` : "thumbnails"} style={{ "--heads": heads }} aria-label="Heads">
          <thead>
            <tr>
              <td />
              {range(heads).map((h) => (
                <th key={h} scope="col">
                  head {h}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {range(layers).map((l) => (
              <tr key={l}>
                <th scope="row">layer {l}</th>
                {range(heads).map((h) => {
                  const grid = grids[l * heads + h];
                  const weights = weightsFor(grid, shown);
                  const most = Math.max(1e-9, ...placedWeights(view.keys, weights));
                  return (
                    <td key={h}>
                      <button
                        type="button"
                        class="head"
                        aria-pressed={view.choice.layer === l && view.choice.head === h}
                        data-testid="input-head-button"
                        onClick={() => asHistoryEntry(() => ([layer.value, head.value] = [String(l), String(h)]))}
                      >
                        {pictures ? (
                          <HeadPicture view={view} weights={weights} most={most} label={`Layer ${l}, head ${h}`} />
                        ) : (
                          <span class="head-map">
                            <Thumbnail values={grid.values} cols={grid.cols} most={Math.max(1e-9, largestOf(grid.values))} label={`Layer ${l}, head ${h}`} />
                          </span>
                        )}
                        <span class="aside">max {most.toFixed(2)}</span>
                      </button>
                    </td>
                  );
                })}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </Figure>
  );
}

function largestOf(values: Float32Array): number {
  return values.reduce((most, value) => Math.max(most, value), 0);
}

/** The weights of the keys that have a place. */
export function placedWeights(keys: Place[], weights: Float32Array): Float32Array {
  return weights.filter((_, i) => keys[i].box);
}

function HeadPicture(props: { view: View; weights: Float32Array; most: number; label: string }) {
  const { view, weights, most } = props;
  const canvas = useRef<HTMLCanvasElement>(null);
  const on = scheme.value;
  useEffect(
    () => {
      const { frames, rows, cols } = view.trace;
      const step = Math.ceil(Math.max(rows, cols) / MAX_HEAD_PIXELS);
      paintFrames(canvas.current!, view.trace, range(frames), { keys: view.keys, weights, most }, on, step);
    },
    [view.trace, view.keys, weights, most, on],
  );
  return <canvas class="thumbnail" ref={canvas} role="img" aria-label={props.label} />;
}

/** The colour scale of the weights. */
export function Legend(props: { most: number }) {
  const stops = range(11).map((i) => `${css(weightColour(i / 10, scheme.value))} ${10 * i}%`);
  return (
    <div class="weight-legend" aria-label={`Colours from weight 0 to ${props.most.toFixed(3)}`} role="img">
      <span class="number">0</span>
      <span class="weight-legend-bar" style={{ background: `linear-gradient(to right, ${stops.join(", ")})` }} />
      <span class="number">{props.most.toFixed(3)}</span>
    </div>
  );
}

/** All queries by all keys of the chosen head. */
export function AllQueries(props: { view: View; shown: number | "mean"; pointed: number | null }) {
  const { grid, queries, keys } = props.view;
  if (Math.max(grid.rows, grid.cols) > MAX_MATRIX_SIDE) return null;
  const short = (place: Place) => (place.box ? place.text.split(":")[0] : shownPiece(place.text));
  return (
    <Figure title="All queries" name="input-matrix" note="A row for each query, a column for each key. Click a row to select its query.">
      <Matrix
        testid="input-matrix"
        label={`${grid.rows} queries by ${grid.cols} keys`}
        values={grid.values}
        rows={queries.map(short)}
        cols={keys.map(short)}
        rowTitle="query"
        colTitle="key"
        most={Math.max(1e-9, largestOf(grid.values))}
        stretch
        maxCell={24}
        minRow={22}
        read={(row, col) =>
          `${queries[row].text} attends to ${keys[col].text} with weight ${grid.values[row * grid.cols + col].toFixed(4)}`
        }
        pin={typeof props.shown === "number" && props.pointed !== null ? [props.shown, props.pointed] : null}
        onPin={(cell) => (query.value = cell ? String(cell[0]) : "")}
      />
    </Figure>
  );
}
