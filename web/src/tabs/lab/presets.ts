// The examples of the Lab, from the lectures.
import type { Rows, Score } from "./attention";

interface Preset {
  id: string;
  title: string;
  about: string;
  q: Rows;
  k: Rows;
  v: Rows;
  score: Score;
  mask: string; // none, causal, or rows of 0 (masked) and 1: 110-111
  queries?: string[];
  keys?: string[];
}

const WORDS = ["Jane", "visite", "l'Afrique", "en", "septembre"];
const MEANINGS = [
  [1, 0.1, 0, 0],
  [0.1, 1, 0.1, 0],
  [0, 0.1, 1, 0],
  [0, 0, 0.4, 0.4],
  [0, 0, 0.1, 1],
]; // person, action, place, time

const SWAPPED = [4, 1, 2, 3, 0]; // the first and the last word change places

export const PRESETS: readonly Preset[] = [
  {
    id: "d6",
    title: "Key-value lookup",
    score: "dot",
    mask: "none",
    about: "Two queries look up values by comparing themselves with three keys. The lecture does not scale the scores (D6).",
    q: [
      [2, -1, 0],
      [-2, 1, 4],
    ],
    k: [
      [2, 1, -1],
      [0, 3, -1],
      [1, 1, 3],
    ],
    v: [
      [2, 3, 1],
      [2, -1, 0],
      [0, 5, 1],
    ],
  },
  {
    id: "masked",
    title: "Masking",
    score: "dot",
    mask: "110",
    about: "The score of a masked key becomes −∞ before the softmax, so its weight is 0. The example masks the third key (D10).",
    q: [[1, 1]],
    k: [
      [1, 1],
      [2, 0],
      [3, 1],
    ],
    v: [
      [1, 0],
      [0, 1],
      [5, 5],
    ],
  },
  {
    id: "self",
    title: "Self-attention without parameters",
    score: "dot",
    mask: "none",
    queries: WORDS,
    keys: WORDS,
    about:
      "Queries, keys and values are the word vectors themselves, so each word attends to similar words (D7). The four dimensions are person, action, place and time.",
    q: MEANINGS,
    k: MEANINGS,
    v: MEANINGS,
  },
  {
    id: "swapped",
    title: "The same words in another order",
    score: "dot",
    mask: "none",
    queries: SWAPPED.map((i) => WORDS[i]),
    keys: SWAPPED.map((i) => WORDS[i]),
    about:
      "The words of the previous example, with “Jane” and “septembre” exchanged. Without positions, the rows of the output are exchanged in the same way, and no number changes (B1).",
    q: SWAPPED.map((i) => MEANINGS[i]),
    k: SWAPPED.map((i) => MEANINGS[i]),
    v: SWAPPED.map((i) => MEANINGS[i]),
  },
  {
    id: "content",
    title: "Content attention",
    score: "dot",
    mask: "none",
    queries: ["θ"],
    keys: WORDS,
    about:
      "The only query is a parameter θ, not a function of the text, and the values are also the keys. The output is one vector for the whole sentence (D2). This θ was chosen by hand: it asks for actions and places.",
    q: [[0, 2, 1, 0]],
    k: MEANINGS,
    v: MEANINGS,
  },
  {
    id: "jane",
    title: "Self-attention on a sentence",
    score: "scaled",
    mask: "none",
    queries: WORDS,
    keys: WORDS,
    about:
      "Self-attention on five words, after the projections W_Q, W_K and W_V, which were chosen by hand: the query of l'Afrique asks what is happening there (D8, D9, E9).",
    q: [
      [0.1, 2, 0.1],
      [1.1, 0.4, 1],
      [1.1, 2, 0.1],
      [0.4, 1.2, 0],
      [0.1, 1.2, 0],
    ],
    k: [
      [2, 0.2, 0],
      [0.2, 2, 0.1],
      [0, 0.2, 1],
      [0, 0, 1.2],
      [0, 0, 2.1],
    ],
    v: [
      [1.3, 0.1, 2],
      [3.1, 1.2, 0.3],
      [0.3, 2.1, 1],
      [0, 1.2, 1.6],
      [0, 1.2, 3.1],
    ],
  },
  {
    id: "heads",
    title: "Three heads of one word",
    score: "dot",
    mask: "none",
    queries: ["what?", "when?", "who?"],
    keys: WORDS,
    about:
      "Three queries of the word l'Afrique, one for each head: they ask for the action, the time and the person. The matrices W_Q of the heads were chosen by hand (D11).",
    q: [
      [0, 4.4, 0, 0],
      [0, 0, 0, 4.4],
      [4.4, 0, 0, 0],
    ],
    k: MEANINGS,
    v: MEANINGS,
  },
  {
    id: "search",
    title: "Attention as search",
    score: "dot",
    mask: "none",
    queries: ["how does attention work in translation"],
    keys: ["how attention works", "a translation with attention", "recurrent nets", "cooking pasta"],
    about:
      "A query is compared with four titles (keys), and the videos (values) are mixed. The columns are the words of the query: how, do, attention, work, in, translation. Texts are word counts of length 1, and the query is four times as long (D4).",
    q: [[1.633, 1.633, 1.633, 1.633, 1.633, 1.633]],
    k: [
      [0.577, 0, 0.577, 0.577, 0, 0],
      [0, 0, 0.5, 0, 0, 0.5],
      [0, 0, 0, 0, 0, 0],
      [0, 0, 0, 0, 0, 0],
    ],
    v: [
      [1, 0, 0, 0],
      [0, 1, 0, 0],
      [0, 0, 1, 0],
      [0, 0, 0, 1],
    ],
  },
];
