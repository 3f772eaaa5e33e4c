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
  mask: string; // none, causal, or rows of 0 and 1: 110-111
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

export const PRESETS: readonly Preset[] = [
  {
    id: "d6",
    title: "Key and value",
    score: "dot",
    mask: "none",
    about: "Two queries look something up among three keys. The lecture does not scale the scores (D6).",
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
    title: "Masked",
    score: "dot",
    mask: "110",
    about: "The third key is barred: its score becomes −∞ before the softmax, so its weight is 0 (D10).",
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
    title: "Self-attention without weights",
    score: "dot",
    mask: "none",
    queries: WORDS,
    keys: WORDS,
    about:
      "Queries, keys and values are the same vectors: each word mixes in the words that resemble it (D7). Their numbers: person, action, place, time.",
    q: MEANINGS,
    k: MEANINGS,
    v: MEANINGS,
  },
  {
    id: "jane",
    title: "A sentence",
    score: "scaled",
    mask: "none",
    queries: WORDS,
    keys: WORDS,
    about:
      "Self-attention on five words with trained matrices already applied: l'Afrique asks what is happening there (D8, D9, E9).",
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
];
