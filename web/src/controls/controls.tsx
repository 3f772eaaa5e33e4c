// The small parts of every tab: choices, sliders, buttons, texts, alerts.
import type { ComponentChildren } from "preact";
import { useId } from "preact/hooks";
import "./controls.css";

interface Option<T> {
  value: T;
  label: string;
  title?: string;
}

/** Some choices side by side, one of which holds. */
export function Choice<T extends string | number>(props: {
  label: string;
  value: T;
  options: readonly (T | Option<T>)[];
  onChange: (value: T) => void;
  testid?: string;
}) {
  const name = useId();
  return (
    <fieldset class="choice" data-testid={props.testid}>
      <legend>{props.label}</legend>
      <div class="choice-row">
        {props.options.map((given) => {
          const option = typeof given === "object" ? given : { value: given, label: String(given) };
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

/** A choice among many. */
export function Select<T extends string | number>(props: {
  label: string;
  value: T;
  options: readonly (T | Option<T>)[];
  onChange: (value: T) => void;
  testid?: string;
}) {
  const options = props.options.map((one) => (typeof one === "object" ? one : { value: one, label: String(one) }));
  return (
    <label class="control">
      <span>{props.label}</span>
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

/** A number on a line, with the number written beside it. */
export function Slider(props: {
  label: string;
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
    <label class="control slider">
      <span>
        {props.label} <b>{show(props.value)}</b>
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

/** A whole number from min to max; what is none is left as it was. */
export function NumberInput(props: {
  label: string;
  value: number;
  min: number;
  max: number;
  onChange: (value: number) => void;
  testid?: string;
}) {
  return (
    <label class="control">
      <span>{props.label}</span>
      <input
        type="number"
        data-testid={props.testid}
        min={props.min}
        max={props.max}
        step={1}
        value={props.value}
        onChange={(event) => {
          const given = Math.round(event.currentTarget.valueAsNumber);
          const fitting = Number.isFinite(given) ? Math.min(props.max, Math.max(props.min, given)) : props.value;
          event.currentTarget.value = String(fitting);
          props.onChange(fitting);
        }}
      />
    </label>
  );
}

export function Toggle(props: { label: string; value: boolean; onChange: (value: boolean) => void; testid?: string }) {
  return (
    <label class="toggle">
      <input
        type="checkbox"
        data-testid={props.testid}
        checked={props.value}
        onChange={(event) => props.onChange(event.currentTarget.checked)}
      />
      <span>{props.label}</span>
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
      data-testid={props.testid}
      onClick={props.onClick}
    >
      {props.children}
    </button>
  );
}

/** Something went wrong, and what to do about it. */
export function Alert(props: { children: ComponentChildren; testid?: string }) {
  return (
    <p class="alert" role="alert" data-testid={props.testid ?? "alert"}>
      {props.children}
    </p>
  );
}

/** A heading with a line that says what one sees. */
export function Intro(props: { title: string; children: ComponentChildren }) {
  return (
    <header class="intro">
      <h1>{props.title}</h1>
      <p>{props.children}</p>
    </header>
  );
}

/** Puts a text onto the clipboard and says so on the page. */
export async function copyText(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false; // no permission, or a page without a secure origin: the caller shows the text instead
  }
}
