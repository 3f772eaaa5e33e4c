// The choice of a served model of certain architectures, for tabs that need a particular kind of network.
import { bundle, served, serverError, type ModelEntry } from "../state/api";
import { Alert, Select } from "./controls";

/** The models of these architectures; those of the first architecture come first. */
export function modelsOf(architectures: readonly string[]): ModelEntry[] {
  const models = served.value?.models ?? [];
  return architectures.flatMap((architecture) => models.filter((model) => model.architecture === architecture));
}

/** The model with this name, otherwise the first that fits. */
export function pickModel(name: string, architectures: readonly string[]): ModelEntry | undefined {
  const models = modelsOf(architectures);
  return models.find((model) => model.name === name) ?? models[0];
}

export function ModelSelect(props: {
  architectures: readonly string[];
  model: ModelEntry;
  onChange: (name: string) => void;
  testid: string;
}) {
  return (
    <Select
      label="Model"
      value={props.model.name}
      options={modelsOf(props.architectures).map(({ name }) => name)}
      onChange={props.onChange}
      testid={props.testid}
    />
  );
}

/** Why there is no model of a kind: the page is a saved file, the list is not there yet, or none is served. */
export function NoModel(props: { needs: string }) {
  if (bundle)
    return <Alert>This page is a saved file and has no model. Run `regard explore` to look into {props.needs}.</Alert>;
  if (served.value) return <Alert>The server has no model of this kind: {props.needs}.</Alert>;
  if (serverError.value) return null;
  return (
    <p class="notice" role="status">
      Loading the list of models …
    </p>
  );
}
