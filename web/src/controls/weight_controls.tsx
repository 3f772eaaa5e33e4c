// Controls that pick which attention weights a tab shows: the map, the layer, the head, words or pieces, a threshold.
import { range } from "../maths/grid";
import { MEANINGS, TITLES } from "../state/selection";
import type { MapName, Trace } from "../state/trace";
import { Choice, Select, Slider } from "./controls";

/** Selects for layer and head; hidden if the model has a single head. */
export function HeadSelects(props: {
  trace: Trace;
  map: MapName;
  layer: string;
  head: string;
  onLayer: (layer: string) => void;
  onHead: (head: string) => void;
  name?: string; // tells two pairs of selects apart
  prefix?: string;
}) {
  const { layers, heads } = props.trace.maps[props.map]!;
  if (layers * heads === 1) return null;
  const best = props.trace.best_head && (props.map === "cross" || props.map === "rnn");
  const mixes = [
    ...(best ? [{ value: "best", label: "best alignment" }] : []),
    { value: "mean", label: "mean" },
    { value: "max", label: "maximum" },
  ];
  const numbers = (length: number) => range(length).map(String);
  const id = props.prefix ?? "";
  const head = props.head === "best" && !best ? "mean" : props.head;
  return (
    <>
      {head !== "best" && (
        <Select
          label={props.name ? `${props.name}: layer` : "Layer"}
          value={props.layer}
          options={[{ value: "all", label: "all" }, ...numbers(layers)]}
          onChange={props.onLayer}
          testid={`${id}layer`}
        />
      )}
      <Select
        label={props.name ? `${props.name}: head` : "Head"}
        value={head}
        options={[...mixes, ...numbers(heads)]}
        onChange={props.onHead}
        testid={`${id}head`}
      />
    </>
  );
}

/** Words or subwords on the axes. */
export function LevelChoice(props: { value: string; onChange: (level: string) => void }) {
  const options = [
    { value: "word", label: "words" },
    { value: "piece", label: "subwords" },
  ];
  return <Choice label="Units" value={props.value} options={options} onChange={props.onChange} testid="level" />;
}

/** The smallest weight that is shown. */
export function CutSlider(props: { value: number; onChange: (least: number) => void }) {
    return (
    <Slider
      label="Hide weights below"
      value={props.value}
      min={0}
      max={0.5}
      step={0.01}
      onChange={props.onChange}
      show={(least) => least.toFixed(2)}
      testid="cut"
    />
  );
}

/** The choice of the attention map. */
export function MapChoice(props: { value: MapName; names: MapName[]; onChange: (name: MapName) => void }) {
  const options = props.names.map((value) => ({ value, label: TITLES[value], title: MEANINGS[value] }));
  return <Choice label="Attention" value={props.value} options={options} onChange={props.onChange} testid="map" />;
}
