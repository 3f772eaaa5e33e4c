// The queries and keys of a head of a model, for the tab Random features.
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
import { modelHead, pin, type Place, type Shown } from "./state";

const which = field<string>("map", "");
const layer = field("layer", -1); // -1: the one that aligns best, or the first
const head = field("head", -1);
const OFF = 0.02; // more than rounding between the softmax of q·k and the weights of the trace

/** The sentence, and which head; what is found is put where the maps are made. */
export function ModelHead() {
  const run = useOrigin({ vectors: true });
  useShown([run.trace]);
  const names = run.trace ? mapsOf(run.trace) : [];
  const name = names.find((one) => one === which.value) ?? names.find((one) => one === "cross") ?? names[0];
  const place = run.trace && name ? placeIn(run.trace, name) : null;
  const problem = run.trace ? misfit(run.trace, place) : "";
  useEffect(() => {
    modelHead.value = run.trace && place && !problem ? { shown: headOf(run.trace, place), place } : null;
  }, [run.trace, place?.map, place?.layer, place?.head, problem]);
  return (
    <>
      <Sentence busy={run.busy} onNew={() => (pin.value = "")} />
      <Status run={run} />
      {run.trace && place && (
        <div class="bar">
          <MapChoice value={place.map} names={names} onChange={(value) => (which.value = value)} />
          <Select
            label="Layer"
            value={place.layer}
            options={range(run.trace.maps[place.map]!.layers)}
            testid="layer"
            onChange={(value) => {
              head.value = place.head; // the other half of the best one
              layer.value = value;
            }}
          />
          <Select
            label="Head"
            value={place.head}
            options={range(run.trace.maps[place.map]!.heads)}
            testid="head"
            onChange={(value) => {
              layer.value = place.layer;
              head.value = value;
            }}
          />
        </div>
      )}
      {problem && <Alert testid="features-misfit">{problem}</Alert>}
    </>
  );
}

function placeIn(trace: Trace, name: MapName): Place {
  const { layers, heads } = trace.maps[name]!;
  const best = name === "cross" || name === "rnn" ? trace.best_head : null;
  return {
    map: name,
    layer: clamp(layer.value < 0 ? (best?.layer ?? 0) : layer.value, layers),
    head: clamp(head.value < 0 ? (best?.head ?? 0) : head.value, heads),
  };
}

/** Why a head cannot be shown, or "". */
function misfit(trace: Trace, place: Place | null): string {
  if (!place) return "This model has no attention, so there is no head to show.";
  const one = trace.maps[place.map]!;
  if (!one.q || !one.k)
    return "This trace holds no queries and keys: make it with trace_text(…, vectors=True), or pick a model.";
  if (one.randomFeatures) return "";
  const found = exactWeights(headOf(trace, place), false);
  const start = (place.layer * one.heads + place.head) * found.length;
  const off = found.some((weight, i) => Math.abs(weight - one.weights[start + i]) > OFF);
  return off || trace.model.scale === null
    ? "The weights of this head are no softmax of q·k: its score is another, or adds something for the distance, and features stand for products of q and k alone."
    : "";
}

function headOf(trace: Trace, place: Place): Shown {
  const one = trace.maps[place.map]!;
  const group = Math.floor((place.head * one.k!.shape[1]) / one.heads); // several heads may share their keys
  const texts = (axis: string) => trace.axes[axis].tokens.map((token) => shownPiece(token.text));
  return {
    q: vectorsOf(one.q!, place.layer, place.head),
    k: vectorsOf(one.k!, place.layer, group),
    scale: trace.model.scale ?? 1,
    causal: place.map === "dec_self",
    rows: texts(one.query),
    cols: texts(one.key),
  };
}

/** The vectors of one head out of [layers, heads, tokens, width]. */
function vectorsOf({ shape, values }: Numbers, layer: number, head: number): Vectors {
  const [, heads, tokens, width] = shape;
  const start = (layer * heads + head) * tokens * width;
  return range(tokens).map((t) => Float64Array.from(values.slice(start + t * width, start + (t + 1) * width)));
}
