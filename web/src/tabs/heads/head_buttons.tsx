// All heads of a map at a glance: a button each, with what it is known by.
import { useMemo } from "preact/hooks";
import { Thumbnail } from "../../chart/matrix/thumbnail";
import { range, type Grid } from "../../maths/grid";
import { badges, BADGES, headStatistics, type Badge } from "../../maths/head_statistics";
import { TITLES } from "../../state/selection";
import { headWeights, type AttentionMap, type MapName } from "../../state/trace";

/** A head that is switched off. */
export interface Off {
  map: MapName;
  layer: number;
  head: number;
}

export const same = (a: Off, b: Off) => a.map === b.map && a.layer === b.layer && a.head === b.head;

interface Picture {
  values: ArrayLike<number>;
  cols: number;
  most?: number;
}

/** A button for each head, layers as rows. */
export function Thumbnails(props: {
  one: AttentionMap;
  name: MapName;
  picked: Off;
  off: Off[];
  onPick: (head: Off) => void;
}) {
  const { one, name } = props;
  const known = useMemo(() => knownBy(one), [one]);
  const small = useMemo(() => range(one.layers * one.heads).map((i) => thumbnailOf(one, i)), [one]);
  return (
    <div class="scroll">
      <table class="thumbnails" style={{ "--heads": one.heads }} aria-label={`${TITLES[name]} heads`}>
        <thead>
          <tr>
            <td />
            {range(one.heads).map((h) => (
              <th key={h} scope="col">
                head {h}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {range(one.layers).map((l) => (
            <tr key={l}>
              <th scope="row">layer {l}</th>
              {range(one.heads).map((h) => {
                const here = { map: name, layer: l, head: h };
                return (
                  <td key={h}>
                    <HeadButton
                      here={here}
                      picture={small[l * one.heads + h]}
                      known={known[l * one.heads + h]}
                      isOff={props.off.some((other) => same(other, here))}
                      picked={same(props.picked, here)}
                      onPick={props.onPick}
                    />
                  </td>
                );
              })}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function HeadButton(props: {
  here: Off;
  picture: Picture;
  known: Badge[];
  isOff: boolean;
  picked: boolean;
  onPick: (head: Off) => void;
}) {
  const { layer, head } = props.here;
  return (
    <button
      type="button"
      class={props.isOff ? "head off" : "head"}
      aria-pressed={props.picked}
      data-testid="head-button"
      data-layer={layer}
      data-head={head}
      onClick={() => props.onPick(props.here)}>
      <Thumbnail {...props.picture} label={`Layer ${layer}, head ${head}`} />
      <span class="badges">
        {props.isOff && <span class="head-badge">off</span>}
        {props.known.map((badge) => (
          <span class="head-badge" key={badge} title={BADGES[badge]} data-testid="badge">
            {badge}
          </span>
        ))}
      </span>
    </button>
  );
}

export function oneHead(one: AttentionMap, i: number): Grid {
  return {
    rows: one.rows,
    cols: one.cols,
    values: headWeights(one, Math.floor(i / one.heads), i % one.heads),
    mask: one.mask,
  };
}

function knownBy(one: AttentionMap): Badge[][] {
  return range(one.layers * one.heads).map((i) => badges(headStatistics(oneHead(one, i), isBetween(one))));
}

/** Whether a map is between two texts. */
export function isBetween(one: AttentionMap): boolean {
  return one.key === "source" && one.query !== "source";
}

/** Large maps bring small pictures of themselves along. */
function thumbnailOf(one: AttentionMap, i: number): Picture {
  if (!one.thumbnails) return { values: oneHead(one, i).values, cols: one.cols };
  const size = one.thumbnails.rows * one.thumbnails.cols;
  return { values: one.thumbnails.values.subarray(i * size, (i + 1) * size), cols: one.thumbnails.cols, most: 255 };
}
