// The basic controls that all tabs use: choices, sliders, inputs, buttons, alerts.
import type { ComponentChildren } from "preact";
import { useId } from "preact/hooks";
import { t } from "../text/messages/messages";
import { EXPLANATIONS } from "./explanations";
import "./controls.css";

interface Option<T> {
  value: T;
  label: string;
  title?: string;
}

/** What a control does, as its tooltip. */
interface Explained {
  label: string;
  title?: string; // otherwise the explanation of this label
}

function explain({ label, title }: Explained): string | undefined {
  const explanation = EXPLANATIONS[label.replace(/^(First|Second): /, "")];
  return title ?? (explanation && t(explanation));
}

/** A choice among a few options, shown side by side. */
export function Choice<T extends string | number>(props: {
  label: string;
  title?: string;
  bare?: boolean; // the label is only for screen readers
  value: T;
  options: readonly (T | Option<T>)[];
  onChange: (value: T) => void;
  testid?: string;
}) {
  const name = useId();
  return (
    <fieldset class="choice" data-testid={props.testid} title={explain(props)}>
      <legend class={props.bare ? "listen" : ""}>{t(props.label)}</legend>
      <div class="choice-row">
        {props.options.map((item) => {
          const option = typeof item === "object" ? item : { value: item, label: String(item) };
          return (
            <label key={option.value} title={option.title}>
              <input
                type="radio"
                name={name}
                value={option.value}
                checked={option.value === props.value}
                onChange={() => props.onChange(option.value)}
              />
              <span>{option.label}</span>
            </label>
          );
        })}
      </div>
    </fieldset>
  );
}

/** A choice from a drop-down list. */
export function Select<T extends string | number>(props: {
  label: string;
  title?: string;
  value: T;
  options: readonly (T | Option<T>)[];
  onChange: (value: T) => void;
  testid?: string;
}) {
  const options = props.options.map((item) => (typeof item === "object" ? item : { value: item, label: String(item) }));
  return (
    <label class="control" title={explain(props)}>
      <span>{t(props.label)}</span>
      <select
        data-testid={props.testid}
        value={String(props.value)}
        onChange={(event) => props.onChange(options[event.currentTarget.selectedIndex].value)}
      >
        {options.map((option) => (
          <option key={option.value} value={String(option.value)}>
            {option.label}
          </option>
        ))}
      </select>
    </label>
  );
}

/** A slider with its current value in the label. */
export function Slider(props: {
  label: string;
  title?: string;
  value: number;
  min: number;
  max: number;
  step: number;
  onChange: (value: number) => void;
  show?: (value: number) => string;
  testid?: string;
}) {
  const show = props.show ?? String;
  return (
    <label class="control slider" title={explain(props)}>
      <span>
        {t(props.label)} <b>{show(props.value)}</b>
      </span>
      <input
        type="range"
        data-testid={props.testid}
        min={props.min}
        max={props.max}
        step={props.step}
        value={props.value}
        aria-valuetext={show(props.value)}
        onInput={(event) => props.onChange(event.currentTarget.valueAsNumber)}
      />
    </label>
  );
}

/** An integer from min to max; invalid input leaves the value unchanged. */
export function NumberInput(props: {
  label: string;
  title?: string;
  value: number;
  min: number;
  max: number;
  onChange: (value: number) => void;
  testid?: string;
}) {
  return (
    <label class="control" title={explain(props)}>
      <span>{t(props.label)}</span>
      <input
        type="number"
        data-testid={props.testid}
        min={props.min}
        max={props.max}
        step={1}
        value={props.value}
        onChange={(event) => {
          const entered = Math.round(event.currentTarget.valueAsNumber);
          const fitting = Number.isFinite(entered) ? Math.min(props.max, Math.max(props.min, entered)) : props.value;
          event.currentTarget.value = String(fitting);
          props.onChange(fitting);
        }}
      />
    </label>
  );
}

export function Toggle(props: {
  label: string;
  title?: string;
  value: boolean;
  onChange: (value: boolean) => void;
  testid?: string;
}) {
  return (
    <label class="toggle" title={explain(props)}>
      <input
        type="checkbox"
        data-testid={props.testid}
        checked={props.value}
        onChange={(event) => props.onChange(event.currentTarget.checked)}
      />
      <span>{t(props.label)}</span>
    </label>
  );
}

export function Button(props: {
  children: ComponentChildren;
  onClick: () => void;
  title?: string;
  disabled?: boolean;
  main?: boolean;
  pressed?: boolean;
  expanded?: boolean;
  testid?: string;
}) {
  return (
    <button
      type="button"
      class={props.main ? "button main" : "button"}
      title={props.title}
      disabled={props.disabled}
      aria-label={typeof props.children === "string" && props.children.length > 1 ? undefined : props.title}
      aria-pressed={props.pressed}
      aria-expanded={props.expanded}
      data-testid={props.testid}
      onClick={props.onClick}
    >
      {props.children}
    </button>
  );
}

/** An error message that says what to do. */
export function Alert(props: { children: ComponentChildren; testid?: string }) {
  return (
    <p class="alert" role="alert" data-testid={props.testid ?? "alert"}>
      {props.children}
    </p>
  );
}

/** The title of a tab with a short introduction. */
export function Intro(props: { title: string; beside?: ComponentChildren; children: ComponentChildren }) {
  return (
    <header class="intro">
      <h1>{t(props.title)}</h1>
      {props.beside}
      <p>{props.children}</p>
    </header>
  );
}

/** Copies a text to the clipboard; returns whether that worked. */
export async function copyText(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false; // no permission or no secure origin; the caller shows the text instead
  }
}
