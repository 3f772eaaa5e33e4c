// A line that says what just happened, and goes away.
import { signal } from "@preact/signals";
import "./toast.css";

const said = signal("");
let timer = 0;

export function tell(text: string): void {
  said.value = text;
  clearTimeout(timer);
  timer = window.setTimeout(() => (said.value = ""), 5000);
}

export function Toast() {
  return (
    <p class="toast" role="status" data-testid="toast" hidden={!said.value}>
      {said.value}
    </p>
  );
}
