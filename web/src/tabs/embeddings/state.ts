// The state of the Embeddings tab.
import { computed } from "@preact/signals";
import { pickModel } from "../../controls/served_model";
import type { ModelEntry } from "../../state/api";
import { field } from "../../state/url";
import { quoted } from "../../text/python";
import { ALPHABET, LETTERS, PRINTED } from "./tables";

export const TABLED = ["transformer", "rnn-seq2seq", "rnn-attention", "encoder", "classifier", "rnn-lm", "transformer-lm"] as const;
export const ENCODERS = ["encoder"] as const;
const DEFAULT_WORD = "SUNNY";
const DEFAULT_SENTENCES = [
  "Le chat dort dans le jardin.",
  "The cat sleeps in the garden.",
  "Marie achète une voiture rouge.",
  "Marie buys a red car.",
  "Il faisait froid.",
  "It was cold.",
].join("\n");
const MAX_LETTERS = 12;

export const example = field<"letters" | "printed">("example", "letters");
export const wordField = field("word", DEFAULT_WORD);
export const pin = field("pin", "");
export const tabled = field("vectors", ""); // the model whose table is shown
export const count = field("words", 100);
export const target = field("near", ""); // the word whose nearest words are listed
export const encoder = field("encoder", "");
export const sentenceField = field("sentences", DEFAULT_SENTENCES);

export const table = computed(() => (example.value === "letters" ? LETTERS : PRINTED));

/** The rows that are looked up: the letters of the word, or the printed ones. */
export const indices = computed<number[]>(() => {
  if (example.value === "printed") return [2, 3, 1];
  const letters = [...wordField.value.toUpperCase()].map((letter) => ALPHABET.indexOf(letter)).filter((i) => i >= 0);
  return letters.length > 0 ? letters.slice(0, MAX_LETTERS) : indicesOf(DEFAULT_WORD);
});

function indicesOf(word: string): number[] {
  return [...word].map((letter) => ALPHABET.indexOf(letter));
}

export function tableModel(): ModelEntry | undefined {
  return pickModel(tabled.value, TABLED);
}

export const sentences = computed(() =>
  sentenceField.value
    .split("\n")
    .map((line) => line.trim())
    .filter((line) => line !== "")
    .slice(0, 30),
);

export function embeddingsCode(): string {
  const lines = [
    "import torch",
    "import regard",
    "from regard.look import principal_plane, word_table",
    "",
    "torch.manual_seed(123)",
    "table = torch.nn.Embedding(26, 5)",
    `indices = torch.tensor(${JSON.stringify(example.value === "letters" ? indices.value : indicesOf(DEFAULT_WORD)).replaceAll(",", ", ")})  # of the letters`,
    "one_hot = torch.nn.functional.one_hot(indices, 26).float()",
    "assert torch.equal(one_hot @ table.weight, table(indices))  # the product is the look-up",
  ];
  const model = tableModel();
  if (model) {
    lines.push(
      "",
      `words = word_table(regard.load(${quoted(model.name)}))`,
      `points, explained = principal_plane(words.vectors[:${count.value}])`,
    );
    if (target.value) lines.push(`print(words.nearest(${quoted(target.value)}))`);
  }
  const coder = pickModel(encoder.value, ENCODERS);
  if (coder)
    lines.push(
      "",
      `sentences = ${JSON.stringify(sentences.value).replaceAll('","', '", "')}`,
      `print(regard.load(${quoted(coder.name)}).similarity(sentences, sentences))`,
    );
  return [...lines, ""].join("\n");
}
