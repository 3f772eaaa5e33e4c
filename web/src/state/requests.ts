// Requests to the server with a small cache. While a new answer is loading, the previous one stays visible.
import { signal } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";

const CACHED_ANSWERS = 12; // going back to a tab or a setting needs no new request

export interface Answer<T> {
  value: T | null;
  busy: boolean;
  error: string;
}

const answers = new Map<string, unknown>();
const running = new Set<() => void>(); // cancels a request
const attempts = signal(0);

/** Sends the requests again that have no answer, for example after an error. */
export function askAgain(): void {
  attempts.value++;
}

/** Cancels all running requests; the page keeps what it shows. */
export function cancelRequests(): void {
  for (const cancel of [...running]) cancel();
}

/** The answer to the request identified by `key`; an empty key sends no request and has no answer. */
export function useAnswer<T>(key: string, ask: (stop: AbortSignal) => Promise<T>): Answer<T> {
  const cached = () => (answers.get(key) as T | undefined) ?? null;
  const [answer, setAnswer] = useState<Answer<T> & { key: string }>({
    value: cached(),
    busy: key !== "" && !answers.has(key),
    error: "",
    key,
  });
  const last = useRef<T | null>(answer.value);
  const attempt = attempts.value;
  useEffect(() => {
    const update = (value: T | null, busy: boolean, error = "") => {
      last.current = value;
      setAnswer({ value, busy, error, key });
    };
    if (key === "" || answers.has(key)) return update(key === "" ? null : cached(), false);
    const stop = new AbortController();
    update(last.current, true);
    const cancel = () => {
      running.delete(cancel);
      stop.abort();
      update(last.current, false, "The request was cancelled.");
    };
    running.add(cancel);
    ask(stop.signal).finally(() => running.delete(cancel)).then(
      (value) => {
        remember(key, value);
        if (!stop.signal.aborted) update(value, false);
      },
      (error: Error) => {
        if (!stop.signal.aborted) update(last.current, false, error.message);
      },
    );
    return () => {
      running.delete(cancel);
      stop.abort();
    };
  }, [key, attempt]);
  // The effect of a new key has not run yet, so the state still belongs to the old key.
  if (answer.key === key) return answer;
  return key === ""
    ? { value: null, busy: false, error: "" }
    : { value: cached() ?? answer.value, busy: !answers.has(key), error: "" };
}

function remember(key: string, value: unknown): void {
  answers.set(key, value);
  for (const oldest of [...answers.keys()].slice(0, -CACHED_ANSWERS)) answers.delete(oldest);
}
