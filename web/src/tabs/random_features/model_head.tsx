// The queries and keys of a head of a model, for the Random features tab.
import { useEffect } from "preact/hooks";
import { Alert, Select } from "../../controls/controls";
import { Sentence, Status } from "../../controls/sentence";
import { MapChoice } from "../../controls/weight_controls";
import { clamp, range } from "../../maths/grid";
import { useOrigin, useShown } from "../../state/runs";
import { mapsOf } from "../../state/selection";
import type { MapName, Numbers, Trace } from "../../state/trace";
import { field } from "../../state/url";
import { shownPiece } from "../../text/pieces";
import { exactWeights, type Vectors } from "./estimates";
import { modelHead, pin, type HeadAddress, type Shown } from "./state";

const which = field<string>("map", "");
const layer = field("layer", -1); // -1: the head with the best alignment, or the first
const head = field("head", -1);
const TOLERANCE = 0.02; // rounding error between the softmax of q·k and the weights of the trace

/** The form for the sentence and the head; stores the vectors of the head in `modelHead`. */
export function ModelHead() {
  const run = useOrigin({ vectors: true });
  useShown([run.trace]);
  const names = run.trace ? mapsOf(run.trace) : [];
  const name = names.find((known) => known === which.value) ?? names.find((known) => known === "cross") ?? names[0];
  const address = run.trace && name ? addressIn(run.trace, name) : null;
  const problem = run.trace ? problemWith(run.trace, address) : "";
  useEffect(() => {
    modelHead.value = run.trace && address && !problem ? { shown: headOf(run.trace, address), address } : null;
  }, [run.trace, address?.map, address?.layer, address?.head, problem]);
  return (
    <>
      <Sentence busy={run.busy} onNew={() => (pin.value = "")} />
      <Status run={run} />
      {run.trace && address && (
        <div class="bar">
          <MapChoice value={address.map} names={names} onChange={(value) => (which.value = value)} />
          <Select
            label="Layer"
            value={address.layer}
            options={range(run.trace.maps[address.map]!.layers)}
            testid="layer"
            onChange={(value) => {
              head.value = address.head; // keep the head when only the layer changes
              layer.value = value;
            }}
          />
          <Select
            label="Head"
            value={address.head}
            options={range(run.trace.maps[address.map]!.heads)}
            testid="head"
            onChange={(value) => {
              layer.value = address.layer;
              head.value = value;
            }}
          />
        </div>
      )}
      {problem && <Alert testid="features-misfit">{problem}</Alert>}
    </>
  );
}

function addressIn(trace: Trace, name: MapName): HeadAddress {
  const { layers, heads } = trace.maps[name]!;
  const best = name === "cross" || name === "rnn" ? trace.best_head : null;
  return {
    map: name,
    layer: clamp(layer.value < 0 ? (best?.layer ?? 0) : layer.value, layers),
    head: clamp(head.value < 0 ? (best?.head ?? 0) : head.value, heads),
  };
}

/** Why a head cannot be shown; empty if it can. */
function problemWith(trace: Trace, address: HeadAddress | null): string {
  if (!address) return "This model has no attention, so there is no head to show.";
  const attention = trace.maps[address.map]!;
  if (!attention.q || !attention.k)
    return "This trace contains no queries and keys: record it with trace_text(…, vectors=True), or select a model.";
  if (attention.randomFeatures) return "";
  const weights = exactWeights(headOf(trace, address), false);
  const start = (address.layer * attention.heads + address.head) * weights.length;
  const off = weights.some((weight, i) => Math.abs(weight - attention.weights[start + i]) > TOLERANCE);
  return off || trace.model.scale === null
    ? "The weights of this head are not the softmax of q·k: it uses another score or adds a position bias. Random features approximate only products of q and k."
    : "";
}

function headOf(trace: Trace, address: HeadAddress): Shown {
  const attention = trace.maps[address.map]!;
  const group = Math.floor((address.head * attention.k!.shape[1]) / attention.heads); // grouped queries: several heads share their keys
  const texts = (axis: string) => trace.axes[axis].tokens.map((token) => shownPiece(token.text));
  return {
    q: vectorsOf(attention.q!, address.layer, address.head),
    k: vectorsOf(attention.k!, address.layer, group),
    scale: trace.model.scale ?? 1,
    causal: address.map === "dec_self",
    rows: texts(attention.query),
    cols: texts(attention.key),
  };
}

/** The vectors of a head from [layers, heads, tokens, width]. */
function vectorsOf({ shape, values }: Numbers, layer: number, head: number): Vectors {
  const [, heads, tokens, width] = shape;
  const start = (layer * heads + head) * tokens * width;
  return range(tokens).map((t) => Float64Array.from(values.slice(start + t * width, start + (t + 1) * width)));
}
