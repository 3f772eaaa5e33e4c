// A measured picture of a scene: BLEU by the length of the source, with intervals (D17).
import { Figure } from "../../chart/figure";
import { Plot } from "../../chart/plot";
import type { MeasuredCurves } from "../../state/api";
import { withCode } from "../../text/code_spans";

export function SceneCurves({ curves }: { curves: MeasuredCurves }) {
  const { lengths, words, systems } = curves;
  const values = (i: number) => systems.map(({ name, bleu }) => `${name} ${bleu[i].toFixed(1)}`).join(", ");
  return (
    <Figure title={curves.title} name="scene-curves" note={withCode(curves.note)}>
      <Plot
        testid="scene-curves"
        label={curves.title}
        curves={systems.map(({ name, bleu, low, high }) => ({ name, x: words, y: bleu, low, high }))}
        xTitle="words of the source"
        yTitle="BLEU"
        from={0}
        read={(i) => `${lengths[i]} words: ${values(i)}`}
        height={320}
      />
    </Figure>
  );
}
