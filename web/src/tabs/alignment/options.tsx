// The options of the Alignment tab, behind "More".
import { Select, Toggle } from "../../controls/controls";
import { CutSlider, HeadSelects, LevelChoice } from "../../controls/weight_controls";
import { served } from "../../state/api";
import { aligningMap } from "../../state/selection";
import type { Trace } from "../../state/trace";
import { beside, cut, head, hide, layer, level, stretch, unpin } from "./state";

export function Options(props: { trace: Trace; name: string | null }) {
  const map = aligningMap(props.trace);
  const others = (served.value?.models ?? []).filter(({ kind, name }) => kind === "translator" && name !== props.name);
  if (!map) return null;
  return (
    <div class="bar options" data-testid="options">
      <LevelChoice
        value={level.value}
        onChange={(next) => {
          level.value = next;
          unpin();
        }}
      />
      <HeadSelects
        trace={props.trace}
        map={map}
        layer={layer.value}
        head={head.value}
        onLayer={(x) => (layer.value = x)}
        onHead={(x) => (head.value = x)}
      />
      {props.name !== null && others.length > 0 && (
        <Select
          label="Compare with"
          title="A second model on the same text, side by side"
          value={beside.value}
          options={[{ value: "", label: "none" }, ...others.map(({ name }) => name)]}
          onChange={(x) => (beside.value = x)}
          testid="beside"
        />
      )}
      <CutSlider value={cut.value} onChange={(x) => (cut.value = x)} />
      <Toggle
        label="Hide special tokens"
        title="Leave out tokens that are no words, such as </s>, the end of the sentence"
        value={hide.value}
        onChange={(x) => {
          hide.value = x;
          unpin();
        }}
        testid="hide"
      />
      <Toggle
        label="Stretch colour scale"
        title="The darkest colour is the largest weight shown, instead of 1"
        value={stretch.value}
        onChange={(x) => (stretch.value = x)}
        testid="stretch"
      />
    </div>
  );
}
