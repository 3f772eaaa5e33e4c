// The form of the tab: the model or a recorded trace, an example, or a file that is chosen or dropped.
import { useEffect, useRef, useState } from "preact/hooks";
import { Alert, Button, Select, Slider } from "../../controls/controls";
import { openedInputs, served, type Example, type InputKind, type ModelEntry } from "../../state/api";
import { columnName, type InputTrace } from "../../state/input_trace";
import { trace as traceName } from "../../state/runs";
import { bytes } from "../../state/trace";
import { asHistoryEntry, keepOnly } from "../../state/url";
import { at, clearInput, example, file, inputModels, openFile, reader, type Source } from "./state";

const ACCEPTED: Record<InputKind, string> = { text: "", image: "image/*", series: ".csv,.tsv,text/csv", sound: ".wav,audio/wav" };
const FILES: Record<InputKind, string> = { text: "", image: "an image", series: "a CSV file", sound: "a WAV file" };
const MAX_GALLERY = 32; // examples that are shown as pictures

export function SourceForm(props: { from: NonNullable<Source>; examples: Example[]; trace: InputTrace | null; busy: boolean }) {
  const { from } = props;
  return (
    <div class="panel settings" data-testid="input-source">
      <div class="bar">
        <Sources from={from} />
        {from.kind === "model" && <FileButton entry={from.entry} />}
        {from.kind === "model" && !hasPictures(props.examples) && props.examples.length > 0 && (
          <Select
            label="Example"
            value={file.value ? "" : example.value || props.examples[0].name}
            options={[...(file.value ? [{ value: "", label: file.value.file.name }] : []), ...props.examples.map(({ name }) => name)]}
            onChange={pickExample}
            testid="input-example"
          />
        )}
        {from.kind === "model" && props.trace && <RowSlider trace={props.trace} />}
      </div>
      {from.kind === "model" && hasPictures(props.examples) && <Gallery examples={props.examples} busy={props.busy} />}
    </div>
  );
}

function pickExample(name: string): void {
  if (name === "") return;
  asHistoryEntry(() => {
    clearInput();
    example.value = name;
  });
}

function hasPictures(examples: Example[]): boolean {
  return examples.some(({ thumbnail }) => thumbnail);
}

/** The choice of a model or a recorded trace. */
function Sources(props: { from: NonNullable<Source> }) {
  const { from } = props;
  const models = inputModels().map(({ name }) => ({ value: `model:${name}`, label: name }));
  const traces = openedInputs.value.map(({ name }) => ({ value: `trace:${name}`, label: `trace: ${name}` }));
  return (
    <Select
      label={models.length > 0 ? "Model" : "Trace"}
      value={from.kind === "model" ? `model:${from.entry.name}` : `trace:${from.name}`}
      options={[...models, ...traces]}
      onChange={(chosen) =>
        asHistoryEntry(() => {
          const [kind, name] = [chosen.slice(0, 5), chosen.slice(6)];
          file.value = null;
          keepOnly(["tab", "presenter", "text", "model"]);
          if (kind === "trace") traceName.value = name;
          else reader.value = name;
        })
      }
      testid="input-model"
    />
  );
}

/** A button that opens a file; a file can also be dropped anywhere on the page. */
function FileButton(props: { entry: ModelEntry }) {
  const input = useRef<HTMLInputElement>(null);
  const [over, setOver] = useState(false);
  const [problem, setProblem] = useState("");
  const open = (chosen: File | undefined) => {
    if (!chosen) return;
    const most = served.value?.limits.file_bytes ?? Infinity;
    const tooLarge = chosen.size > most;
    setProblem(
      tooLarge
        ? `${chosen.name} has ${(chosen.size / 2 ** 20).toFixed(1)} MiB; the limit is ${Math.floor(most / 2 ** 20)} MiB. Please send a smaller file.`
        : chosen.size === 0
          ? `${chosen.name} is empty.`
          : "",
    );
    if (!tooLarge && chosen.size > 0) asHistoryEntry(() => openFile(chosen));
  };
  useEffect(() => {
    const hasFiles = (event: DragEvent) => event.dataTransfer?.types.includes("Files") ?? false;
    const drag = (event: DragEvent) => {
      if (!hasFiles(event)) return;
      event.preventDefault();
      setOver(event.type === "dragover");
    };
    const drop = (event: DragEvent) => {
      if (!hasFiles(event)) return;
      event.preventDefault();
      setOver(false);
      open(event.dataTransfer!.files[0]);
    };
    const page = document.documentElement;
    page.addEventListener("dragover", drag);
    page.addEventListener("dragleave", drag);
    page.addEventListener("drop", drop);
    return () => {
      page.removeEventListener("dragover", drag);
      page.removeEventListener("dragleave", drag);
      page.removeEventListener("drop", drop);
    };
  }, []);
  const what = FILES[props.entry.reads];
  return (
    <>
      <div class={over ? "drop over" : "drop"} data-testid="input-drop">
        <Button onClick={() => input.current!.click()} testid="input-choose">
          Choose {what}
        </Button>
        <span class="aside">{file.value ? file.value.file.name : over ? "drop it" : "or drop it here"}</span>
      </div>
      <input
        ref={input}
        type="file"
        hidden
        data-testid="input-file"
        accept={ACCEPTED[props.entry.reads]}
        aria-label={`Choose ${what}`}
        onChange={(event) => {
          open(event.currentTarget.files?.[0]);
          event.currentTarget.value = "";
        }}
      />
      {problem && <Alert>{problem}</Alert>}
    </>
  );
}

/** Examples as small pictures. */
function Gallery(props: { examples: Example[]; busy: boolean }) {
  const current = file.value ? "" : example.value || props.examples[0].name;
  return (
    <div class="gallery" role="group" aria-label="Examples" aria-busy={props.busy}>
      {props.examples.slice(0, MAX_GALLERY).map((entry) => (
        <button
          key={entry.name}
          type="button"
          class="example"
          aria-pressed={entry.name === current}
          title={entry.name}
          data-testid="input-example-picture"
          onClick={() => pickExample(entry.name)}
        >
          {entry.thumbnail ? <Pixels packed={entry.thumbnail} label={entry.name} /> : entry.name}
        </button>
      ))}
    </div>
  );
}

function Pixels(props: { packed: { [name: string]: any }; label: string }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  useEffect(() => {
    const [height, width, channels] = props.packed.shape as number[];
    const values = bytes(props.packed.uint8);
    const pixels = new ImageData(width, height);
    for (let i = 0; i < width * height; i++) {
      const colour = [0, 1, 2].map((c) => values[i * channels + (channels > 2 ? c : 0)]);
      pixels.data.set([...colour, 255], 4 * i);
    }
    Object.assign(canvas.current!, { width, height });
    canvas.current!.getContext("2d")!.putImageData(pixels, 0, 0);
  }, [props.packed]);
  return <canvas ref={canvas} role="img" aria-label={props.label} />;
}

/** The first row of a series that is forecast. */
function RowSlider(props: { trace: InputTrace }) {
  const { continuation, cols } = props.trace;
  if (!continuation || continuation.least === continuation.most) return null;
  return (
    <Slider
      label="Forecast from"
      value={at.value >= 0 ? at.value : continuation.first}
      min={continuation.least}
      max={continuation.most}
      step={1}
      show={(row) => (row === continuation.first ? columnName(props.trace, cols).replace(/[T ](\d\d:\d\d)(:00)?$/, " $1") : `row ${row}`)}
      onChange={(row) => (at.value = row)}
      testid="input-at"
    />
  );
}
