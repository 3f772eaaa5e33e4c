// A map of the whole model, drawn from its configuration: where one is, and ways into every box.
import type { ComponentChildren } from "preact";
import { range } from "../../maths/grid";
import type { ModelEntry } from "../../state/api";
import { model } from "../../state/runs";
import { openTab } from "../../state/url";
import { openZoom } from "../zoom/place";
import type { MapName } from "../../state/trace";
import "./model_map.css";

export interface MapPlace {
  stack: string;
  layer: number;
}

interface MapProps {
  entry: ModelEntry;
  here: MapPlace;
  parts: string[]; // of the block that is open: self, cross, feed
  onPick: (place: MapPlace) => void;
}

const WEIGHTED: Record<string, string> = {
  self: "Self-attention",
  cross: "Cross-attention",
  feed: "Feed-forward",
};

export function ModelMap(props: MapProps) {
  const { entry, here } = props;
  const about = entry.about!;
  const recurrent = about.kind.startsWith("rnn");
  const { encoder = 0, decoder = 0 } = about.layers;
  const both = encoder > 0 && decoder > 0;
  const go = (tab: string) => () => {
    openTab(tab);
    model.value = entry.name; // the tabs open with the model of the map
  };
  const input = (
    <>
      <Place onClick={go("embeddings")} title="How words become vectors: the Embeddings tab">
        Embedding <small>{about.width} numbers</small>
      </Place>
      {about.positions && (
        <Place onClick={go("positions")} title="How positions are encoded: the Positions tab">
          Positions <small>{about.positions}</small>
        </Place>
      )}
    </>
  );
  return (
    <nav class="model-map" aria-label="Map of the model" data-testid="model-map">
      {encoder > 0 && (
        <Lane start={both ? "source" : "text"} end={both ? undefined : "vectors"}>
          {input}
          <Stack {...props} name="encoder" layers={encoder} onOther={recurrent ? go("recurrent") : undefined} />
        </Lane>
      )}
      {both && (
        <p class="map-bridge">
          <span aria-hidden="true">↓</span> the encoder's vectors:{" "}
          {recurrent && about.heads === 0
            ? "one state, all that the decoder gets"
            : "keys and values for the attention of the decoder"}
        </p>
      )}
      {decoder > 0 && (
        <Lane start={both ? "output so far" : "text so far"} end="next token">
          {input}
          <Stack {...props} name="decoder" layers={decoder} />
          <Place onClick={go("decode")} title="How the next token is chosen: the Decode tab">
            Softmax <small>a probability for each token</small>
          </Place>
        </Lane>
      )}
      <Block {...props} onHeads={go("heads")} />
      <p class="aside">
        You are in layer {here.layer} of the {here.stack}. {amount(about.parameters)} parameters in all.
      </p>
    </nav>
  );
}

function amount(count: number): string {
  return count.toLocaleString("en").replaceAll(",", "\u202f");
}

/** A row of the map: what goes in, the boxes on the way, what comes out. */
function Lane(props: { start: string; end?: string; children: ComponentChildren }) {
  return (
    <div class="map-lane">
      <span class="map-end">{props.start}</span>
      {props.children}
      {props.end && <span class="map-end out">{props.end}</span>}
    </div>
  );
}

function Place(props: { onClick: () => void; title: string; here?: boolean; children: ComponentChildren }) {
  return (
    <button
      type="button"
      class="map-box"
      title={props.title}
      aria-current={props.here ? "location" : undefined}
      data-testid="map-box"
      onClick={props.onClick}
    >
      {props.children}
    </button>
  );
}

/** The layers of a stack; `onOther` leads elsewhere where the layers have no worksheet. */
function Stack(props: MapProps & { name: string; layers: number; onOther?: () => void }) {
  const { here, name, layers } = props;
  return (
    <span class="map-stack" role="group" aria-label={name}>
      <span class="map-name">{name === "encoder" ? "Encoder" : "Decoder"}</span>
      <span class="map-layers">
        {range(layers).map((layer) => {
          const current = !props.onOther && here.stack === name && here.layer === layer;
          return (
            <button
              key={layer}
              type="button"
              class="map-layer"
              title={props.onOther ? "Gates and states: the Recurrent tab" : `Layer ${layer} of the ${name}`}
              aria-label={`Layer ${layer} of the ${name}${current ? ", you are here" : ""}`}
              aria-current={current ? "location" : undefined}
              data-testid={`map-${name}-${layer}`}
              onClick={props.onOther ?? (() => props.onPick({ stack: name, layer }))}
            >
              {layer}
            </button>
          );
        })}
      </span>
    </span>
  );
}

/** The sublayers of the open block. */
function Block(props: MapProps & { onHeads: () => void }) {
  const { entry, here, parts } = props;
  const shown = Object.keys(WEIGHTED).filter((part) => parts.includes(part));
  if (shown.length === 0) return null;
  const zoomMap: MapName = entry.about!.kind.startsWith("rnn")
    ? "rnn"
    : here.stack === "encoder"
      ? "enc_self"
      : shown.includes("cross")
        ? "cross"
        : "dec_self";
  const scrollTo = (part: string) => () =>
    document.querySelector(`[data-part="${part}"]`)?.scrollIntoView({ block: "start" });
  return (
    <div class="map-lane map-block">
      <span class="map-end">
        layer {here.layer} <small>you are here</small>
      </span>
      {shown.map((part) => (
        <Place key={part} onClick={scrollTo(part)} title={`Go to ${WEIGHTED[part].toLowerCase()} on this page`} here>
          {WEIGHTED[part]} {part !== "feed" && entry.about!.heads > 1 && <small>{entry.about!.heads} heads</small>}
        </Place>
      ))}
      <button type="button" class="link" data-testid="map-heads" onClick={props.onHeads}>
        All heads
      </button>
      <button
        type="button"
        class="link"
        data-testid="map-zoom"
        onClick={() => openZoom({ map: zoomMap, row: -1, col: -1, model: entry.name })}
      >
        Zoom into one weight
      </button>
    </div>
  );
}
