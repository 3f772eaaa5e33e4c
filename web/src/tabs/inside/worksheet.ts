// The numbers of a block, as the server or the engine of the page computes them.
import { askInside } from "../../state/api";
import { useAnswer } from "../../state/requests";
import type { Json } from "../../state/trace";
import { readBoxes, type Box } from "./box";

/** The boxes of a block for a token. */
export interface Worksheet {
  stack: string;
  layer: number;
  token: number;
  head: number;
  layers: number;
  heads: number;
  tokens: { text: string; special: boolean }[];
  boxes: Box[];
}

export interface WorksheetRequest {
  model: string;
  text: string;
  stack: string;
  layer: number;
  token: number;
  head: number;
}

/** The worksheet of a request; null asks for none. The previous one stays until the next is there. */
export function useWorksheet(request: WorksheetRequest | null) {
  const key = request ? `inside ${JSON.stringify(request)}` : "";
  const { value, busy, error } = useAnswer(key, async (stop) => {
    const answer = await askInside(request as unknown as Json, stop);
    return { ...answer, boxes: readBoxes(answer.boxes) } as Worksheet;
  });
  return { sheet: value, busy, error };
}
