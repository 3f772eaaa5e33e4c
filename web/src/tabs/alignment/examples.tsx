// Example sentences with what to notice in each. tests/browser/tabs/test_alignment.py compares the claims with the models.
import { textFor, text } from "../../state/runs";
import { sceneTrace, type ModelEntry } from "../../state/api";
import { asHistoryEntry } from "../../state/url";
import { Button } from "../../controls/controls";
import content from "./examples.json";
import { unpin } from "./state";

interface Example {
  title: string;
  text: string;
  notice: string;
  output?: string; // what the notice speaks of
  links?: string[][]; // written words and the source words with their largest weight
}

function examplesOf(entry: ModelEntry): Example[] {
  return (content as Record<string, Example[]>)[entry.name] ?? [];
}

export function Examples(props: { entry: ModelEntry }) {
  const examples = examplesOf(props.entry);
  if (sceneTrace.value || examples.length === 0) return null;
  const current = textFor(props.entry);
  const choose = (example: Example) =>
    asHistoryEntry(() => {
      text.value = example.text;
      unpin();
    });
  return (
    <div class="examples" role="group" aria-label="Example sentences" data-testid="examples">
      <span class="aside">Examples</span>
      {examples.map((example) => (
        <Button
          key={example.title}
          title={example.text}
          pressed={example.text === current}
          onClick={() => choose(example)}
          testid="example"
        >
          {example.title}
        </Button>
      ))}
    </div>
  );
}

/** What to notice, if the picture shows an example. */
export function Notice(props: { entry: ModelEntry; output: string }) {
  const shown = examplesOf(props.entry).find(({ text }) => text === textFor(props.entry));
  if (!shown || sceneTrace.value || (shown.output !== undefined && shown.output !== props.output)) return null;
  return (
    <p class="notice-this" data-testid="notice">
      <b>Notice</b> {shown.notice}
    </p>
  );
}
