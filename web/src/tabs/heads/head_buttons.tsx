// An overview of all heads of a map: a button for each, with a thumbnail and badges.
import { useMemo } from "preact/hooks";
import { Thumbnail } from "../../chart/matrix/thumbnail";
import { range, type Grid } from "../../maths/grid";
import { BADGES, badgesOf, headStatistics, type Badge } from "../../maths/head_statistics";
import { TITLES } from "../../state/selection";
import { headWeights, type AttentionMap, type MapName } from "../../state/trace";

/** The address of a head. */
export interface HeadAddress {
  map: MapName;
  layer: number;
  head: number;
}

export const same = (a: HeadAddress, b: HeadAddress) => a.map === b.map && a.layer === b.layer && a.head === b.head;

interface Picture {
  values: ArrayLike<number>;
  cols: number;
  most?: number;
}

/** A button for each head, layers as rows. */
export function HeadButtons(props: {
  attention: AttentionMap;
  name: MapName;
  picked: HeadAddress;
  off: HeadAddress[];
  onPick: (head: HeadAddress) => void;
}) {
  const { attention, name } = props;
  const badges = useMemo(() => allBadges(attention), [attention]);
  const thumbnails = useMemo(
    () => range(attention.layers * attention.heads).map((i) => thumbnailOf(attention, i)),
    [attention],
  );
  return (
    <div class="scroll">
      <table class="thumbnails" style={{ "--heads": attention.heads }} aria-label={`${TITLES[name]} heads`}>
        <thead>
          <tr>
            <td />
            {range(attention.heads).map((h) => (
              <th key={h} scope="col">
                head {h}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {range(attention.layers).map((l) => (
            <tr key={l}>
              <th scope="row">layer {l}</th>
              {range(attention.heads).map((h) => {
                const here = { map: name, layer: l, head: h };
                return (
                  <td key={h}>
                    <HeadButton
                      here={here}
                      picture={thumbnails[l * attention.heads + h]}
                      badges={badges[l * attention.heads + h]}
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
  here: HeadAddress;
  picture: Picture;
  badges: Badge[];
  isOff: boolean;
  picked: boolean;
  onPick: (head: HeadAddress) => void;
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
        {props.badges.map((badge) => (
          <span class="head-badge" key={badge} title={BADGES[badge]} data-testid="badge">
            {badge}
          </span>
        ))}
      </span>
    </button>
  );
}

export function oneHead(attention: AttentionMap, i: number): Grid {
  return {
    rows: attention.rows,
    cols: attention.cols,
    values: headWeights(attention, Math.floor(i / attention.heads), i % attention.heads),
    mask: attention.mask,
  };
}

function allBadges(attention: AttentionMap): Badge[][] {
  const between = isBetween(attention);
  return range(attention.layers * attention.heads).map((i) => badgesOf(headStatistics(oneHead(attention, i), between)));
}

/** Whether a map relates two different texts. */
export function isBetween(attention: AttentionMap): boolean {
  return attention.key === "source" && attention.query !== "source";
}

/** The thumbnail of a head; traces with large maps contain them. */
function thumbnailOf(attention: AttentionMap, i: number): Picture {
  if (!attention.thumbnails) return { values: oneHead(attention, i).values, cols: attention.cols };
  const { rows, cols, values } = attention.thumbnails;
  return { values: values.subarray(i * rows * cols, (i + 1) * rows * cols), cols, most: 255 };
}
