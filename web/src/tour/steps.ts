// The stops of the guided tour: a tab, an element on it, and what to know about it.
export interface Stop {
  tab: string;
  at: string; // CSS selector of what is pointed at
  title: string;
  text: string;
  prepare?: () => void;
}

/** Read aloud, the texts take less than two minutes. */
export const STOPS: readonly Stop[] = [
  {
    tab: "alignment",
    at: "[data-testid=sentence]",
    title: "A sentence goes in",
    text: "Type one, or choose an example below. A real translation model runs on it, with no network and no account.",
  },
  {
    tab: "alignment",
    at: "[data-testid=weights]",
    title: "Arcs are attention",
    text: "Above is what the model reads, below what it writes. For each word that it writes, arcs show where it attends. A thicker arc is a larger weight.",
  },
  {
    tab: "heads",
    at: ".thumbnails",
    title: "All heads",
    text: "Each head has its own pattern. Switch one off, and see whether the translation changes.",
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
