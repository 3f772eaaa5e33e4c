// The state of the Positions tab: a preset, the changes made to it, and the resulting tables.
import { computed, signal } from "@preact/signals";
import { field } from "../../state/url";
import {
  diagonals,
  innerProducts,
  positionTable,
  randomTable,
  tableVariance,
  waveVariance,
  type Kind,
  type PositionLayout,
  type Positions as Table,
} from "./tables";

export const PRESETS = [
  { id: "sentence", title: "100 positions, width 500", length: 100, dim: 500 },
  { id: "distance", title: "500 positions, width 128", length: 500, dim: 128 },
  { id: "small", title: "10 positions, width 8", length: 10, dim: 8 },
];
export const MAX_SIZE = 512;
const MAX_BASE = 1e9;

export const presetId = field("preset", "sentence");
export const kind = field<Kind>("kind", "sinusoidal");
export const layoutName = field<PositionLayout>("layout", "interleaved");
export const lengthField = field("n", 0); // 0: as in the preset
export const dimField = field("d", 0);
const baseField = field("base", 10000);
export const pin = field("pin", "");
export const pair = field("pair", "");
export const first = field("k", 0);

/** The base of the address if it gives wavelengths, otherwise that of the paper. */
export const base = {
  get value() {
    const { value } = baseField;
    return value > 1 && value <= MAX_BASE ? value : 10000;
  },
  set value(next: number) {
    baseField.value = next;
  },
};

export const preset = computed(() => PRESETS.find(({ id }) => id === presetId.value) ?? PRESETS[0]);
const validSize = (value: number, fallback: number) =>
  Number.isInteger(value) && value >= 2 && value <= MAX_SIZE ? value : fallback;
export const length = computed(() => validSize(lengthField.value, preset.value.length));
export const dim = computed(() => validSize(dimField.value, preset.value.dim));

/** The learned table of a loaded model, once it is available. */
export const trained = signal<{ model: string; table: Table } | null>(null);

export const table = computed<Table>(() => {
  const [n, d] = [length.value, dim.value];
  if (kind.value !== "learned") return positionTable(n, d, kind.value, layoutName.value, base.value);
  if (!trained.value) return randomTable(n, d, 1);
  const { length: rows, dim: cols, table } = trained.value.table;
  const used = Math.min(rows, n);
  return { length: used, dim: cols, table: table.slice(0, used * cols) };
});
export const products = computed(() => innerProducts(table.value));
export const byDistance = computed(() => diagonals(products.value, table.value.length));
export const variances = computed(() =>
  kind.value === "learned" ? tableVariance(table.value) : waveVariance(table.value.dim, base.value),
);

export function positionsCode(): string {
  const { length: n, dim: d } = table.value;
  const make: Record<Kind, string> = {
    sinusoidal: `table = regard.positions.sinusoidal(${n}, ${d}, layout="${layoutName.value}", base=${base.value}, dtype=torch.float64)`,
    rotary: [
      `rotary = regard.positions.Rotary(head_dim=${d}, layout="${layoutName.value}", base=${base.value})`,
      `start = torch.zeros(1, 1, ${n}, ${d})  # (B, H, T, D): the vector (1, 0) in each pair`,
      layoutName.value === "interleaved" ? "start[..., 0::2] = 1" : `start[..., : ${d / 2}] = 1`,
      `table = rotary.rotate(start, torch.arange(${n}))[0, 0].double()`,
    ].join("\n"),
    learned: `torch.manual_seed(1)\ntable = torch.nn.Embedding(${n}, ${d}).weight.detach().double()  # before training`,
  };
  return `import torch\nimport regard\n\n${make[kind.value]}\nproducts = table @ table.T\nprint(table.shape, products.diagonal())\n`;
}
