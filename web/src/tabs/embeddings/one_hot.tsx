// A one-hot row times a table is a row of the table: the word S U N N Y letter by letter; A1.
import { largest } from "../../chart/canvas";
import { Figure } from "../../chart/figure";
import { Matrix } from "../../chart/matrix/matrix";
import { Choice } from "../../controls/controls";
import { readPin, writePin } from "../../state/selection";
import { equals, factor, fixed, short } from "../../text/numbers";
import { example, indices, pin, table, wordField } from "./state";
import { multiply, oneHot } from "./tables";

export function OneHot() {
  const { names, dim, values } = table.value;
  const rows = indices.value;
  const left = oneHot(rows, names.length);
  const product = multiply(left, table.value);
  const labels = rows.map((index) => names[index]);
  const columns = Array.from({ length: dim }, (_, c) => String(c));
  const most = largest(values); // one colour scale for the table and the product
  const digits = example.value === "letters" ? 2 : 4;
  const chosen = readPin(pin.value, { rows: rows.length, cols: dim });
  const onPin = (cell: readonly [number, number] | null) => (pin.value = writePin(cell));
  return (
    <>
      <section class="panel settings">
        <div class="bar">
          <Choice
            label="Example"
            value={example.value}
            options={[
              { value: "letters", label: "A word, letter by letter" },
              { value: "printed", label: "The printed numbers" },
            ]}
            onChange={(value) => {
              example.value = value;
              pin.value = "";
            }}
            testid="one-hot-example"
          />
          {example.value === "letters" && (
            <label class="control">
              <span>Word of the letters A to Z</span>
              <input
                type="text"
                value={wordField.value}
                maxLength={12}
                spellcheck={false}
                data-testid="one-hot-word"
                onChange={(event) => (wordField.value = event.currentTarget.value.toUpperCase())}
              />
            </label>
          )}
        </div>
        <p class="note" data-testid="one-hot-about">
          {example.value === "letters"
            ? `${labels.join(" ")}: the columns ${rows.join(", ")} of ${names.length}. ${repeats(labels)}`
            : "torch.manual_seed(123); torch.nn.Embedding(4, 5) looks up rows 2, 3 and 1. The table has highest index + 1 = 4 rows."}
        </p>
      </section>
      <Figure
        title={`One-hot rows, ${rows.length} × ${names.length}`}
        name="one-hot"
        note="Each row has a single 1, in the column of its token. The rows are sparse: almost all of their numbers are 0."
      >
        <Matrix
          testid="one-hot"
          label={`One-hot rows of ${labels.join(" ")}`}
          values={left}
          rows={labels}
          cols={names}
          maxCell={34}
          digits={0}
          read={(i, k) => `row ${i}, “${labels[i]}”: column ${k} (${names[k]}) is ${left[i * names.length + k]}`}
        />
      </Figure>
      <div class="columns">
        <Figure title={`The table, ${names.length} × ${dim}`} name="embedding-table" note={`Trainable numbers, one row for each token. Here: torch.manual_seed(123); torch.nn.Embedding(${names.length}, ${dim}), rounded.`}>
          <Matrix
            testid="embedding-table"
            label="The embedding table"
            values={values}
            rows={names}
            cols={columns}
            scale="signed"
            most={most}
            maxCell={60}
            stretch
            digits={digits}
            read={(k, c) => `row ${k} (${names[k]}), dimension ${c}: ${short(values[k * dim + c], digits)}`}
            pin={chosen && [rows[chosen[0]], chosen[1]]}
          />
        </Figure>
        <Figure
          title={`One-hot × table, ${rows.length} × ${dim}`}
          name="embedding-product"
          note="The product picks one row of the table for each token. Click a number to mark where it comes from."
        >
          <Matrix
            testid="embedding-product"
            label="One-hot rows times the table"
            values={product}
            rows={labels}
            cols={columns}
            scale="signed"
            most={most}
            maxCell={60}
            stretch
            digits={digits}
            read={(i, c) => sum(i, c, digits)}
            pin={chosen}
            onPin={onPin}
          />
          <p class="readout">
            As a product: <output data-testid="one-hot-cost">{(rows.length * names.length * dim).toLocaleString("en")}</output>{" "}
            multiplications. As a look-up: none, {rows.length} rows are read.
          </p>
        </Figure>
      </div>
    </>
  );
}

function repeats(labels: string[]): string {
  const repeated = [...new Set(labels.filter((label, i) => labels.indexOf(label) !== i))];
  if (repeated.length === 0) return "";
  return `The rows of ${repeated.join(", ")} are equal wherever the letter occurs: a table knows the token, not its position.`;
}

function sum(row: number, c: number, digits: number): string {
  const { names, dim, values } = table.value;
  const index = indices.value[row];
  const term = (k: number) => `${k === index ? 1 : 0}·${factor(values[k * dim + c], digits)}`;
  const near = [0, index, names.length - 1].filter((k, i, all) => all.indexOf(k) === i);
  const terms = near.flatMap((k, i) => (i > 0 && k - near[i - 1] > 1 ? ["…", term(k)] : [term(k)]));
  const value = values[index * dim + c];
  return `${terms.join(" + ")} ${equals(value, digits)} ${fixed(value, digits)}: row ${index} of the table`;
}
