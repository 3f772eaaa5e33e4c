// Diagrams of the RNN, GRU and LSTM cell, with the values of one unit at one step.
import { Figure } from "../../chart/figure";
import { Choice } from "../../controls/controls";
import { equals, factor, fixed, short } from "../../text/numbers";
import { shownPiece } from "../../text/pieces";
import { at, CELL_NAMES, shownCell, stepBefore, type Cell, type View } from "./state";

/** The values of the unit: before the step (c₀, h₀), the gates, and after the step. Null: the diagram has no values. */
type Values = Record<string, number> | null;

const EQUATIONS: Record<Cell, string[]> = {
  rnn: ["h′ = tanh(W x + U h + b)"],
  gru: ["r = σ(W x + U h + b)", "z = σ(W x + U h + b)", "n = tanh(W x + b + r (U h + b′))", "h′ = (1 − z) n + z h"],
  lstm: ["i, f, o = σ(W x + U h + b)", "g = tanh(W x + U h + b)", "c′ = f c + i g", "h′ = o tanh(c′)"],
};

export function CellFigure(props: { view: View }) {
  const { view } = props;
  const own = view.states.cell;
  const cell = shownCell.value || own;
  const values = cell === own ? valuesOf(view) : null;
  const token = shownPiece(view.states.tokens[view.step]);
  return (
    <Figure
      title={`The ${CELL_NAMES[cell]} cell`}
      name={`cell-${cell}`}
      note={
        values
          ? `The values of unit ${view.unit} at step ${view.step}, when the net reads x = “${token}”. Each gate has weights W, U and b of its own (C1).`
          : `This model has ${CELL_NAMES[own]} cells, so the diagram shows no values. For values, select a model with ${CELL_NAMES[cell]} cells.`
      }
    >
      <Choice
        label="Cell"
        value={cell}
        options={(["rnn", "gru", "lstm"] as const).map((value) => ({ value, label: CELL_NAMES[value] }))}
        onChange={(value) => (shownCell.value = value === own ? "" : value)}
        testid="recurrent-cell"
      />
      <div class="scroll" tabIndex={0} role="group" aria-label="The diagram of the cell">
        <svg class="cell" viewBox="0 0 640 340" width="640" height="340" role="img" aria-label={`Diagram of the ${CELL_NAMES[cell]} cell`}>
          {cell === "rnn" ? <Rnn values={values} /> : cell === "gru" ? <Gru values={values} /> : <Lstm values={values} />}
        </svg>
      </div>
      <ul class="equations" data-testid="recurrent-equations">
        {EQUATIONS[cell].map((equation) => (
          <li key={equation}>{equation}</li>
        ))}
      </ul>
      {values && (
        <ul class="equations numbers" data-testid="recurrent-sums">
          {sums(cell, values).map((sum) => (
            <li key={sum}>{sum}</li>
          ))}
        </ul>
      )}
    </Figure>
  );
}

function valuesOf(view: View): Values {
  const values = Object.fromEntries(Object.keys(view.values.values).map((name) => [name, at(view, name, view.step)]));
  const before = stepBefore(view);
  return { ...values, "h₀": at(view, "h", before), ...("c" in values ? { "c₀": at(view, "c", before) } : {}) };
}

/** The last equations of the cell with numbers. */
function sums(cell: Cell, values: Record<string, number>): string[] {
  const { i, f, g, o, c, h, z, n } = values;
  const number = (value: number) => factor(value);
  if (cell === "lstm")
    return [
      `c′ = ${number(f)}·${number(values["c₀"])} + ${number(i)}·${number(g)} ${equals(c)} ${fixed(c)}`,
      `h′ = ${number(o)}·tanh(${short(c)}) ${equals(h)} ${fixed(h)}`,
    ];
  if (cell === "gru")
    return [`h′ = (1 − ${number(z)})·${number(n)} + ${number(z)}·${number(values["h₀"])} ${equals(h)} ${fixed(h)}`];
  return [`h′ = ${fixed(h)}, from h = ${fixed(values["h₀"])} and the other units`];
}

/** A layer with a squashing function; its value stands below its name. */
function Gate(props: { x: number; y: number; name: string; values: Values; squash?: string }) {
  const { x, y, name, values } = props;
  return (
    <g>
      <rect class="cell-gate" x={x - 32} y={y - 22} width={64} height={44} rx={8} />
      <text class="cell-name" x={x} y={y - 4} text-anchor="middle">
        {name} <tspan class="cell-squash">{props.squash ?? "σ"}</tspan>
      </text>
      {values && (
        <text class="cell-value" x={x} y={y + 14} text-anchor="middle">
          {fixed(values[name])}
        </text>
      )}
    </g>
  );
}

/** An operation on two vectors, element by element. */
function Operation(props: { x: number; y: number; sign: string }) {
  return (
    <g>
      <circle class="cell-operation" cx={props.x} cy={props.y} r={14} />
      <text class="cell-sign" x={props.x} y={props.y} text-anchor="middle" dominant-baseline="central">
        {props.sign}
      </text>
    </g>
  );
}

/** A state or an input, with its value below. */
function End(props: { x: number; y: number; name: string; value?: number }) {
  return (
    <g>
      <text class="cell-name" x={props.x} y={props.y - 8} text-anchor="middle">
        {props.name}
      </text>
      {props.value !== undefined && (
        <text class="cell-value" x={props.x} y={props.y + 18} text-anchor="middle">
          {fixed(props.value)}
        </text>
      )}
    </g>
  );
}

/** A path through these points, with an arrow head at its end. */
function Arrow(props: { points: [number, number][] }) {
  const { points } = props;
  const [[x0, y0], [x, y]] = points.slice(-2);
  const [dx, dy] = [Math.sign(x - x0), Math.sign(y - y0)];
  const [left, right] = [
    [x - 8 * dx - 4 * dy, y - 8 * dy + 4 * dx],
    [x - 8 * dx + 4 * dy, y - 8 * dy - 4 * dx],
  ];
  return (
    <g>
      <polyline class="cell-wire" points={points.join(" ")} />
      <polygon class="cell-head" points={[[x, y], left, right].join(" ")} />
    </g>
  );
}

/** x and h together run along the bottom; every gate reads both. */
function Inputs(props: { gates: number[]; values: Values }) {
  const last = Math.max(...props.gates);
  return (
    <g>
      <End x={36} y={280} name="h" value={props.values?.["h₀"]} />
      <End x={110} y={330} name="x" />
      <polyline class="cell-wire" points={`60,280 ${last},280`} />
      <Arrow points={[[110, 312], [110, 282]]} />
      {props.gates.map((x) => (
        <Arrow key={x} points={[[x, 280], [x, 224]]} />
      ))}
    </g>
  );
}

function Rnn(props: { values: Values }) {
  const h = props.values?.h;
  return (
    <g>
      <Inputs gates={[300]} values={props.values} />
      <g>
        <rect class="cell-gate" x={250} y={180} width={100} height={44} rx={8} />
        <text class="cell-name" x={300} y={208} text-anchor="middle">
          tanh
        </text>
      </g>
      <Arrow points={[[350, 202], [580, 202]]} />
      <End x={604} y={208} name="h′" value={h} />
    </g>
  );
}

function Gru(props: { values: Values }) {
  const { values } = props;
  return (
    <g>
      <Inputs gates={[170, 300, 450]} values={values} />
      <End x={36} y={62} name="h" value={values?.["h₀"]} />
      <Arrow points={[[60, 62], [286, 62]]} />
      <Arrow points={[[314, 62], [436, 62]]} />
      <Arrow points={[[464, 62], [580, 62]]} />
      <End x={604} y={62} name="h′" value={values?.h} />
      {/* the reset gate scales the state that the new content reads */}
      <Arrow points={[[170, 62], [170, 102]]} />
      <Arrow points={[[170, 180], [170, 130]]} />
      <Arrow points={[[184, 116], [382, 116], [382, 202], [418, 202]]} />
      {/* the update gate mixes old state and new content */}
      <Arrow points={[[300, 180], [300, 76]]} />
      <Arrow points={[[300, 150], [436, 150]]} />
      <text class="cell-squash" x={400} y={142} text-anchor="middle">
        1 − z
      </text>
      <Arrow points={[[450, 180], [450, 164]]} />
      <Arrow points={[[450, 136], [450, 76]]} />
      <Gate x={170} y={202} name="r" values={values} />
      <Gate x={300} y={202} name="z" values={values} />
      <Gate x={450} y={202} name="n" values={values} squash="tanh" />
      <Operation x={170} y={116} sign="×" />
      <Operation x={300} y={62} sign="×" />
      <Operation x={450} y={150} sign="×" />
      <Operation x={450} y={62} sign="+" />
    </g>
  );
}

function Lstm(props: { values: Values }) {
  const { values } = props;
  return (
    <g>
      <Inputs gates={[160, 260, 350, 440]} values={values} />
      <End x={36} y={62} name="c" value={values?.["c₀"]} />
      <Arrow points={[[60, 62], [146, 62]]} />
      <Arrow points={[[174, 62], [291, 62]]} />
      <Arrow points={[[319, 62], [580, 62]]} />
      <End x={604} y={62} name="c′" value={values?.c} />
      <Arrow points={[[160, 180], [160, 76]]} />
      <Arrow points={[[260, 180], [260, 124], [291, 124]]} />
      <Arrow points={[[350, 180], [350, 124], [319, 124]]} />
      <Arrow points={[[305, 110], [305, 76]]} />
      <Arrow points={[[520, 62], [520, 96]]} />
      <rect class="cell-gate" x={490} y={96} width={60} height={28} rx={8} />
      <text class="cell-squash" x={520} y={114} text-anchor="middle">
        tanh
      </text>
      <Arrow points={[[520, 124], [520, 188]]} />
      <Arrow points={[[472, 202], [506, 202]]} />
      <Arrow points={[[534, 202], [580, 202]]} />
      <End x={604} y={208} name="h′" value={values?.h} />
      <Gate x={160} y={202} name="f" values={values} />
      <Gate x={260} y={202} name="i" values={values} />
      <Gate x={350} y={202} name="g" values={values} squash="tanh" />
      <Gate x={440} y={202} name="o" values={values} />
      <Operation x={160} y={62} sign="×" />
      <Operation x={305} y={124} sign="×" />
      <Operation x={305} y={62} sign="+" />
      <Operation x={520} y={202} sign="×" />
    </g>
  );
}
