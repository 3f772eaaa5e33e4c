// The Lab as a picture: all matrices with the names of their rows and columns.
import { largest } from "../../chart/canvas";
import { colourOf, css, inkOn } from "../../chart/colours";
import { textWidth } from "../../chart/text_size";
import { fixed, short } from "../../text/numbers";
import type { Rows } from "./attention";
import { matrices, names, result, STAGES, step, type StageName } from "./state";

interface Drawn {
  title: string;
  values: (number | null)[][]; // null: masked
  rows: readonly string[];
  cols: readonly string[];
  show: (value: number) => string;
  look: (value: number) => { fill: string; ink: string };
}

const SVG = "http://www.w3.org/2000/svg";
const CELL = { width: 62, height: 34 };
const GAP = 36;
const INK = "#1f2430";
const MUTED = "#667085";

type Put = (name: string, attributes: Record<string, string | number>, text?: string) => SVGElement;

/** Draws the inputs above and the stages reached so far below. */
export function labSheet(): SVGSVGElement {
  const { queries, keys, values } = names.value;
  const inputMatrix = (title: string, numbers: Rows, rows: readonly string[]): Drawn => ({
    title,
    values: numbers,
    rows,
    cols: [],
    show: short,
    look: () => ({ fill: "#ffffff", ink: "#1f2430" }),
  });
  const stageMatrix = (title: string, stage: StageName): Drawn => {
    const numbers: (number | null)[][] = result.value[stage];
    const weights = stage === "weights";
    const most = weights ? 1 : largest(numbers.flat().map((value) => value ?? 0));
    const look = (value: number) => {
      const colour = colourOf(value, weights ? "weights" : "signed", most, "light");
      return { fill: css(colour), ink: inkOn(colour) };
    };
    const cols = stage === "out" ? [] : keys;
    return {
      title,
      values: numbers,
      rows: queries,
      cols,
      show: weights || stage === "out" ? fixed : (value) => short(value, 2),
      look,
    };
  };
  const inputs = [
    inputMatrix("Q", matrices.value.q, queries),
    inputMatrix("K", matrices.value.k, keys),
    inputMatrix("V", matrices.value.v, values),
  ];
  const titles: Record<StageName, string> = {
    raw: "scores",
    scaled: "scaled",
    masked: "masked",
    weights: "weights",
    out: "output",
  };
  const stages = STAGES.slice(0, step.value).map((stage) => stageMatrix(titles[stage], stage));
  const sheet = [inputs, stages].filter((row) => row.length);
  return drawSheet(sheet, getComputedStyle(document.body).fontFamily, (text) => textWidth(text, 14));
}

/** Draws the matrices of each row side by side. */
function drawSheet(rows: Drawn[][], font: string, widthOf: (text: string) => number): SVGSVGElement {
  const sheet = document.createElementNS(SVG, "svg");
  const put: Put = (name, attributes, text = "") => {
    const element = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, String(value));
    element.textContent = text;
    sheet.append(element);
    return element;
  };
  sheet.setAttribute("font-family", font);
  sheet.setAttribute("font-size", "14");
  drawHatch(put);
  let [y, width] = [0, 0];
  for (const row of rows) {
    const head = row.some(({ cols }) => cols.length) ? 52 : 30; // height of titles and column names
    let x = 1;
    for (const matrix of row) {
      const nameWidth = Math.max(...matrix.rows.map(widthOf)) + 8;
      drawMatrix(put, matrix, x + nameWidth, y, head);
      x += Math.max(nameWidth + matrix.values[0].length * CELL.width, widthOf(matrix.title) + 8) + GAP;
    }
    width = Math.max(width, x - GAP + 1);
    y += head + Math.max(...row.map(({ values }) => values.length)) * CELL.height + GAP;
  }
  sheet.setAttribute("width", String(width));
  sheet.setAttribute("height", String(y - GAP + 1));
  return sheet;
}

function drawHatch(put: Put): void {
  const pattern = put("pattern", {
    id: "masked",
    width: 6,
    height: 6,
    patternUnits: "userSpaceOnUse",
    patternTransform: "rotate(45)",
  });
  for (const [fill, width] of [
    ["#eef1f5", 6],
    ["#c3cad6", 2],
  ] as const) {
    const stripe = document.createElementNS(SVG, "rect");
    for (const [key, value] of Object.entries({ fill, width, height: 6 })) stripe.setAttribute(key, String(value));
    pattern.append(stripe);
  }
}

function drawMatrix(put: Put, drawn: Drawn, x: number, y: number, head: number): void {
  const middle = { "text-anchor": "middle", "dominant-baseline": "central" };
  put("text", { x, y: y + 16, fill: INK, "font-weight": 600 }, drawn.title);
  drawn.cols.forEach((name, j) =>
    put("text", { x: x + (j + 0.5) * CELL.width, y: y + 40, fill: MUTED, ...middle }, name),
  );
  drawn.values.forEach((row, i) => {
    const top = y + head + i * CELL.height;
    put(
      "text",
      { x: x - 6, y: top + CELL.height / 2, fill: MUTED, "text-anchor": "end", "dominant-baseline": "central" },
      drawn.rows[i],
    );
    row.forEach((value, j) => {
      const left = x + j * CELL.width;
      const { fill, ink } = value === null ? { fill: "url(#masked)", ink: INK } : drawn.look(value);
      put("rect", { x: left, y: top, width: CELL.width, height: CELL.height, fill, stroke: "#d0d5dd" });
      put(
        "text",
        { x: left + CELL.width / 2, y: top + CELL.height / 2, fill: ink, ...middle },
        value === null ? "−∞" : drawn.show(value),
      );
    });
  });
}
