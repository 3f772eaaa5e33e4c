// Formulas in MathML. Parentheses are text because as operators they grow too tall.
import type { ComponentChildren } from "preact";

export function Formula(props: { children: ComponentChildren; label: string }) {
  return (
    <math aria-label={props.label}>
      <mrow>{props.children}</mrow>
    </math>
  );
}

export function Sub(props: { base: string; index: string }) {
  return (
    <msub>
      <mi>{props.base}</mi>
      <mi>{props.index}</mi>
    </msub>
  );
}

const Product = () => (
  <Formula label="Q times K transposed">
    <mi>Q</mi>
    <msup>
      <mi>K</mi>
      <mo>⊤</mo>
    </msup>
  </Formula>
);

export const ScoreFormula: Record<string, () => preact.JSX.Element> = {
  dot: Product,
  scaled: Product, // scaling is a separate step
  general: () => (
    <Formula label="Q times W times K transposed">
      <mi>Q</mi>
      <mi>W</mi>
      <msup>
        <mi>K</mi>
        <mo>⊤</mo>
      </msup>
    </Formula>
  ),
  additive: () => (
    <Formula label="w times tanh of W q times q plus W k times k">
      <mi>w</mi>
      <mo>·</mo>
      <mi>tanh</mi>
      <mtext>(</mtext>
      <Sub base="W" index="q" />
      <mi>q</mi>
      <mo>+</mo>
      <Sub base="W" index="k" />
      <mi>k</mi>
      <mtext>)</mtext>
    </Formula>
  ),
};

/** The attention equation. */
export function AttentionFormula() {
  return (
    <Formula label="Y equals softmax of Q K transposed over root d k, times V">
      <mi>Y</mi>
      <mo>=</mo>
      <mi>softmax</mi>
      <mtext>(</mtext>
      <mi>Q</mi>
      <msup>
        <mi>K</mi>
        <mo>⊤</mo>
      </msup>
      <mo>/</mo>
      <msqrt>
        <Sub base="d" index="k" />
      </msqrt>
      <mtext>)</mtext>
      <mi>V</mi>
    </Formula>
  );
}
