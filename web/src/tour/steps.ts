// The stops of the guided tour: a tab, an element on it, and what to know about it.
import { field } from "../state/url";

export interface Stop {
  tab: string;
  at: string; // CSS selector of what is pointed at
  title: string;
  text: string;
  prepare?: () => void;
}

const pin = field<string>("pin", "");

/** Read aloud, the texts take less than two minutes. */
export const STOPS: readonly Stop[] = [
  {
    tab: "alignment",
    at: "[data-testid=sentence]",
    title: "A sentence goes in",
    text: "Type one, or choose an example below. A real translation model reads it.",
  },
  {
    tab: "alignment",
    at: "[data-testid=weights]",
    title: "Arcs are attention",
    text: "Above is what the model reads, below what it writes. For each word that it writes, arcs show where it attends. A thicker arc is a larger weight.",
  },
  {
    tab: "alignment",
    at: "[data-testid=weights-how]",
    title: "Every weight can be opened",
    text: "Point at a word to see its arcs alone, and click to pin it. Then ask how the number is made.",
    prepare: () => (pin.value = "3.5"),
  },
  {
    tab: "zoom",
    at: "[data-testid=zoom-stage]",
    title: "One zoom",
    text: "From the sentence to one head, to one query and one key, their dot product, the softmax, and the weighted sum. All numbers are the model's own.",
  },
  {
    tab: "heads",
    at: ".thumbnails",
    title: "All heads",
    text: "Each head has its own pattern. Switch one off, and see whether the translation changes.",
  },
  {
    tab: "inside",
    at: "[data-testid=model-map]",
    title: "The whole model",
    text: "The map shows where you are. Click a box of it to go there; below, each number shows its calculation.",
  },
  {
    tab: "decode",
    at: "[data-testid=view-decode] h1",
    title: "The next word",
    text: "A model gives a probability to every token. Step through its choices, or force another token and watch what follows.",
  },
  {
    tab: "lab",
    at: "[data-testid=view-lab] h1",
    title: "By hand",
    text: "Attention on matrices that fit on a blackboard. Change a number and see every step follow.",
  },
  {
    tab: "lecture",
    at: "[data-testid=view-lecture] h1",
    title: "Questions",
    text: "Scenes that ask first and show afterwards, for a lecture or for yourself. That is all: press ? for the keys.",
  },
];
