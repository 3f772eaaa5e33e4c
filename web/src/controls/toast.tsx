// A short message that disappears after a few seconds.
import { signal } from "@preact/signals";
import "./toast.css";

const message = signal("");
let timer = 0;

export function showMessage(text: string): void {
  message.value = text;
  clearTimeout(timer);
  timer = window.setTimeout(() => (message.value = ""), 5000);
}

export function Toast() {
  return (
    <p class="toast" role="status" data-testid="toast" hidden={!message.value}>
      {message.value}
    </p>
  );
}
