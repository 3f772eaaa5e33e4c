// Questions to the server, each asked once: an answer is kept, and while the next one is on its way the last one stays.
import { useEffect, useRef, useState } from "preact/hooks";

const KEPT = 12; // answers, so that going back to a tab or a setting asks nothing

export interface Answer<T> {
  found: T | null;
  busy: boolean;
  error: string;
}

const answers = new Map<string, unknown>();

/** The answer to a question that `key` names; an empty key asks nothing and has none. */
export function useAnswer<T>(key: string, ask: (stop: AbortSignal) => Promise<T>): Answer<T> {
  const known = () => (answers.get(key) as T | undefined) ?? null;
  const [answer, setAnswer] = useState<Answer<T> & { key: string }>({
    found: known(),
    busy: key !== "" && !answers.has(key),
    error: "",
    key,
  });
  const last = useRef<T | null>(answer.found);
  useEffect(() => {
    const tell = (found: T | null, busy: boolean, error = "") => {
      last.current = found;
      setAnswer({ found, busy, error, key });
    };
    if (key === "" || answers.has(key)) return tell(key === "" ? null : known(), false);
    const stop = new AbortController();
    tell(last.current, true);
    ask(stop.signal).then(
      (found) => {
        remember(key, found);
        if (!stop.signal.aborted) tell(found, false);
      },
      (error: Error) => {
        if (!stop.signal.aborted) tell(last.current, false, error.message);
      },
    );
    return () => stop.abort();
  }, [key]);
  // Between a new question and its effect the state still tells of the old one.
  if (answer.key === key) return answer;
  return key === ""
    ? { found: null, busy: false, error: "" }
    : { found: known() ?? answer.found, busy: !answers.has(key), error: "" };
}

function remember(key: string, found: unknown): void {
  answers.set(key, found);
  for (const oldest of [...answers.keys()].slice(0, -KEPT)) answers.delete(oldest);
}
