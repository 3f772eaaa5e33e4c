// Image, Series, Sound: what a model predicts for an input that is no text, and where each layer and head attends in it.
import { useEffect, useState } from "preact/hooks";
import { Figure } from "../../chart/figure";
import { LINES, scheme } from "../../chart/colours";
import { Alert, Intro } from "../../controls/controls";
import { NoModel } from "../../controls/served_model";
import { clamp } from "../../maths/grid";
import { shownInput } from "../../state/api";
import type { InputTrace, Place } from "../../state/input_trace";
import { useShown, waitingFor } from "../../state/runs";
import { AllQueries, AttentionControls, HeadTable, Legend, placedWeights, QueryButtons, VariableChoice } from "./attention";
import "./input.css";
import { Picture } from "./picture";
import { Prediction } from "./prediction";
import { SourceForm } from "./source_form";
import { file, nameOf, query, source, titleOf, useExamples, useInput, variable, viewOf, weightsFor, type View } from "./state";
import { InputPlot, WeightPlot } from "./timeline";

const INTROS = {
  pixels:
    "A picture is cut into patches, and the patches attend to each other like the words of a sentence (G4, G5). Point at a patch to see where it attends.",
  captions:
    "The decoder writes a word at a time, and attends to the cells of the picture (G4). Point at a word to see where it attends.",
  lines:
    "The past of a series is cut into patches, which attend to each other; a last layer reads them all and writes the forecast (G6). Point at a part of the past to see where it attends.",
  bands: "The decoder writes a token at a time and attends to moments of the recording (G6). Point at a token to see when it was heard.",
};

export function Input() {
  useShown([]);
  const from = source();
  const entry = from?.kind === "model" ? from.entry : null;
  const examples = useExamples(entry?.name ?? "");
  const known = examples.busy ? null : examples.value; // those of another model are no use
  const run = useInput(entry, known);
  const trace = from?.kind === "trace" ? from.trace : run.value;
  useEffect(() => {
    shownInput.value = trace;
    return () => {
      shownInput.value = null;
    };
  }, [trace]);
  const error = run.error || examples.error;
  const noInput = entry && known?.length === 0 && !file.value && !run.busy;
  return (
    <>
      <Intro title={titleOf(trace, entry)}>{INTROS[introOf(trace, entry?.reads)]}</Intro>
      {from ? (
        <SourceForm from={from} examples={known ?? []} trace={trace} busy={run.busy} />
      ) : (
        <NoModel needs="models of images, series or sound" />
      )}
      {entry && error && <Alert>{error}</Alert>}
      {entry && !trace && (run.busy || examples.busy) && (
        <p class="notice" role="status">
          {waitingFor(entry)}
        </p>
      )}
      {noInput && (
        <p class="notice" role="status">
          {entry.name} brings no examples along: choose a file.
        </p>
      )}
      {trace?.notes.map((note) => (
        <p class="notice" key={note}>
          {note}
        </p>
      ))}
      {trace && !(noInput && from?.kind === "model") && <Views trace={trace} busy={run.busy} />}
    </>
  );
}

function introOf(trace: InputTrace | null, reads: string | undefined): keyof typeof INTROS {
  if (trace) return trace.form === "pixels" && trace.scores.length === 0 ? "captions" : trace.form;
  return reads === "series" ? "lines" : reads === "sound" ? "bands" : "pixels";
}

function Views(props: { trace: InputTrace; busy: boolean }) {
  const { trace } = props;
  const view = viewOf(trace);
  const [pointed, setPointed] = useState<number | null>(null); // a query
  const [read, setRead] = useState<number | null>(null); // a key
  useEffect(() => {
    setPointed(null);
    setRead(null);
  }, [trace, view?.map]);
  const shown = view && pointed !== null && pointed < view.queries.length ? pointed : (view?.query ?? "mean");
  const parts: Parts | null = view && { view, shown, pointed, read, onPoint: setPointed, onRead: setRead };
  return (
    <div class="stacked" aria-busy={props.busy}>
      {trace.form === "pixels" ? <PictureView trace={trace} parts={parts} /> : <TimeView trace={trace} parts={parts} />}
      {parts && (
        <div class={trace.form === "pixels" ? "stacked" : "columns"}>
          <HeadTable view={parts.view} shown={shown} />
          {trace.form !== "pixels" && <AllQueries view={parts.view} shown={shown} pointed={read} />}
        </div>
      )}
    </div>
  );
}

interface Parts {
  view: View;
  shown: number | "mean";
  pointed: number | null;
  read: number | null;
  onPoint: (query: number | null) => void;
  onRead: (key: number | null) => void;
}

function pickQuery(place: number | null): void {
  query.value = place === null ? "" : String(place);
}

function markOf({ view, shown }: Parts): Place | null {
  return shown === "mean" ? null : view.queries[shown];
}

/** What the weights of the shown query say; about the pointed key if there is one. */
function Reading(props: { parts: Parts; weights: Float32Array }) {
  const { view, shown, read } = props.parts;
  const { keys } = view;
  const name = nameOf(view.queries, shown);
  if (read !== null && read < keys.length) {
    return (
      <>
        “{name}” attends to “{keys[read].text}” with weight {props.weights[read].toFixed(4)}
      </>
    );
  }
  const best = props.weights.indexOf(Math.max(...props.weights));
  return (
    <>
      “{name}” attends most to “{keys[best].text}” ({props.weights[best].toFixed(4)})
    </>
  );
}

function PictureView(props: { trace: InputTrace; parts: Parts | null }) {
  const { trace, parts } = props;
  const isCaption = trace.scores.length === 0;
  const prediction = (
    <section class="panel" aria-label="Prediction">
      <h2>{isCaption ? "Caption" : "Prediction"}</h2>
      <Prediction trace={trace} row={0} />
    </section>
  );
  if (!parts) return prediction;
  const { view, shown, pointed, read } = parts;
  const weights = weightsFor(view.grid, shown);
  const most = Math.max(1e-9, ...placedWeights(view.keys, weights));
  const hasPlaces = view.queries.some(({ box }) => box);
  const queries = <QueryButtons view={view} pointed={pointed} onPoint={parts.onPoint} />;
  const rest = view.keys.flatMap(({ text, box }, i) => (box ? [] : [`“${text}” ${weights[i].toFixed(4)}`]));
  return (
    <div class={trace.frames > 1 ? "stacked" : isCaption ? "input-columns two" : "input-columns"}>
      {isCaption && prediction}
      <Figure title={trace.frames > 1 ? "Video" : "Image"} name="input-picture" note={hasPlaces ? "Point at a patch to make it the query; click to keep it." : "Point at a word to see where it attends; click to keep it."}>
        {!hasPlaces && queries}
        <Picture
          trace={trace}
          shade={null}
          places={hasPlaces ? view.queries : view.keys}
          pointed={hasPlaces ? pointed : read}
          marked={markOf(parts)}
          onPoint={hasPlaces ? parts.onPoint : parts.onRead}
          onPick={hasPlaces ? pickQuery : undefined}
          label={`${trace.source}, ${trace.output}`}
          testid="input-picture"
        />
        {hasPlaces && queries}
        <AttentionControls view={view} />
      </Figure>
      <Figure title="Attention" name="input-attention" note="Where the query attends. Point to read a weight.">
        <Picture
          trace={trace}
          shade={{ keys: view.keys, weights, most }}
          places={view.keys}
          pointed={read}
          marked={markOf(parts)}
          onPoint={parts.onRead}
          label="Attention weights over the picture"
          testid="input-attention"
        />
        <Legend most={most} />
        <p class="readout picture-readout" aria-live="polite" data-testid="input-readout">
          <Reading parts={parts} weights={weights} />
        </p>
        {rest.length > 0 && <p class="hint">Not in the picture: {rest.join(", ")}</p>}
      </Figure>
      {!isCaption && prediction}
    </div>
  );
}

function TimeView(props: { trace: InputTrace; parts: Parts | null }) {
  const { trace, parts } = props;
  const row = clamp(variable.value, trace.rows);
  const queries = parts?.view.queries ?? [];
  const weights = parts && weightsFor(parts.view.grid, parts.shown);
  const hasPlaces = queries.some(({ box }) => box);
  return (
    <Figure
      title={trace.form === "lines" ? "The series, its forecast, and the attention to the past" : "The recording and the attention to it"}
      name="input-time"
    >
      <div class="bar">
        {trace.form === "lines" && <VariableChoice names={trace.rowRuler.labels} row={row} />}
        {parts && <AttentionControls view={parts.view} />}
        {trace.form === "lines" && trace.continuation && <LineNames truth={trace.continuation.truth !== null} />}
      </div>
      {trace.form === "bands" && (
        <div class="transcript">
          <span class="aside">Transcript</span>
          <Prediction trace={trace} row={row} />
        </div>
      )}
      {parts && <QueryButtons view={parts.view} pointed={parts.pointed} onPoint={parts.onPoint} />}
      <InputPlot
        trace={trace}
        row={row}
        places={hasPlaces ? queries : (parts?.view.keys ?? [])}
        pointed={parts ? (hasPlaces ? parts.pointed : parts.read) : null}
        marked={parts && markOf(parts)}
        onPoint={(place) => (hasPlaces ? parts?.onPoint : parts?.onRead)?.(place)}
        onPick={(place) => hasPlaces && pickQuery(place)}
      />
      {parts && (
        <>
          <WeightPlot
            trace={trace}
            keys={parts.view.keys}
            weights={weights!}
            pointed={parts.read}
            marked={markOf(parts)}
            onPoint={parts.onRead}
          />
          <p class="readout" aria-live="polite" data-testid="input-readout">
            <Reading parts={parts} weights={weights!} />
          </p>
        </>
      )}
      {trace.form === "lines" && <Prediction trace={trace} row={row} />}
    </Figure>
  );
}

/** The colours of the lines. */
function LineNames(props: { truth: boolean }) {
  const [truth, forecast] = LINES[scheme.value];
  return (
    <ul class="line-names" aria-label="Lines">
      <li class="history">history</li>
      {props.truth && <li style={{ "--line": truth }}>truth</li>}
      <li class="forecast" style={{ "--line": forecast }}>
        forecast
      </li>
    </ul>
  );
}
