// One to many, many to one, many to many: what a recurrent net can map to what.
import { Figure } from "../../chart/figure";
import { range } from "../../maths/grid";

interface Shape {
  title: string;
  note: string;
  inputs: number[]; // steps with an input
  outputs: number[];
  steps: number;
}

const SHAPES: Shape[] = [
  { title: "One to many", note: "an image to its caption", inputs: [0], outputs: [0, 1, 2, 3], steps: 4 },
  { title: "Many to one", note: "a sentence to its class: regard classify", inputs: [0, 1, 2, 3], outputs: [3], steps: 4 },
  {
    title: "Many to many, in step",
    note: "each letter to the next one: shakespeare-lstm",
    inputs: [0, 1, 2, 3],
    outputs: [0, 1, 2, 3],
    steps: 4,
  },
  {
    title: "Many to many, one after the other",
    note: "a sentence to its translation: demo-rnn-seq2seq",
    inputs: [0, 1, 2],
    outputs: [2, 3, 4],
    steps: 5,
  },
];

export function Shapes() {
  return (
    <Figure
      title="What can be mapped to what"
      name="recurrent-shapes"
      testid="recurrent-shapes"
      note="The same cell at every step: inputs below, states in the middle, outputs above. A net of this kind has the same parameters for any length."
    >
      <div class="shapes">
        {SHAPES.map((shape) => (
          <Drawing key={shape.title} {...shape} />
        ))}
      </div>
    </Figure>
  );
}

function Drawing({ title, note, inputs, outputs, steps }: Shape) {
  const x = (step: number) => 20 + 56 * step;
  const width = x(steps - 1) + 56;
  return (
    <div>
      <h3>{title}</h3>
      <svg class="shape" viewBox={`0 0 ${width} 170`} width={width} height={170} role="img" aria-label={`${title}: ${note}`}>
        {range(steps).map((step) => (
          <g key={step}>
            {inputs.includes(step) && (
              <>
                <rect class="shape-input" x={x(step)} y={130} width={32} height={30} rx={5} />
                <path class="shape-arrow" d={`M${x(step) + 16} 130 V 106 m -5 6 l 5 -6 l 5 6`} />
              </>
            )}
            <rect class="shape-state" x={x(step)} y={70} width={32} height={34} rx={5} />
            {step + 1 < steps && <path class="shape-arrow" d={`M${x(step) + 32} 87 H ${x(step + 1) - 2} m -6 -5 l 6 5 l -6 5`} />}
            {outputs.includes(step) && (
              <>
                <path class="shape-arrow" d={`M${x(step) + 16} 70 V 44 m -5 6 l 5 -6 l 5 6`} />
                <rect class="shape-output" x={x(step)} y={10} width={32} height={32} rx={5} />
              </>
            )}
          </g>
        ))}
      </svg>
      <p class="note">{note}</p>
    </div>
  );
}
