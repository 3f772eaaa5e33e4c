// Curves of the Random features tab: the error by number of features, the cost by sequence length.
import { Figure } from "../../chart/figure";
import { Plot, type Curve } from "../../chart/plot";
import { fixed, short } from "../../text/numbers";
import { exactOperations, featureOperations } from "./estimates";
import { choose, COUNTS, curves, features, INFINITE, map, normalize, seeds, shown, sizes } from "./state";

const LENGTHS = Array.from({ length: 11 }, (_, i) => 2 ** (6 + i));

/** The median error over several draws with a band, a reference slope F^-1/2, and the bias of the lecture's formula. */
export function Errors(props: { bias: number }) {
  const { plain, corrected } = curves.value!;
  const random = map.value !== "elu";
  const last = corrected.middle[COUNTS.length - 1];
  const all: Curve[] = [
    { name: map.value, x: COUNTS, y: corrected.middle, low: corrected.low, high: corrected.high },
    { name: "lecture", x: COUNTS, y: plain.middle, low: plain.low, high: plain.high },
  ];
  if (random) {
    const slopeLine = COUNTS.map((F) => last * Math.sqrt(COUNTS[COUNTS.length - 1] / F));
    all.push({ name: "slope −½", x: COUNTS, y: slopeLine, dashed: true });
  }
  if (!normalize.value) all.push({ name: "limit", x: COUNTS, y: COUNTS.map(() => props.bias), dashed: true });
  const read = (i: number) => {
    const describe = (name: string, { middle, low, high }: typeof plain) =>
      `${name} ${fixed(middle[i])}${high[i] > low[i] ? ` (${fixed(low[i])} to ${fixed(high[i])})` : ""}`;
    return `F = ${COUNTS[i]}: ${describe(map.value, corrected)}, ${describe("lecture", plain)}`;
  };
  const drawn = seeds.value > 1 ? `Median of ${seeds.value} draws; the band shows the minimum and maximum.` : "A single draw.";
  const bias = normalize.value ? "" : ` The error of the lecture's formula converges to ${fixed(props.bias)}, not to 0.`;
  const slope = random ? " The error of an unbiased estimate follows the slope −½: four times the features, half the error." : "";
  return (
    <Figure
      title="Error by number of features"
      name="features-errors"
      note={`|weights − exact| / |exact|. ${drawn}${slope}${bias}`}
    >
      <Plot
        testid="features-errors"
        label="Relative error by number of features"
        curves={all}
        xTitle="features F"
        yTitle="relative error"
        yTick={(value) => short(value)}
        logarithmic
        height={320}
        read={read}
        at={features.value === INFINITE ? null : COUNTS.findIndex((F) => F === features.value)}
        onAt={(index) => index !== null && choose.features(COUNTS[index])}
      />
    </Figure>
  );
}

/** The number of multiplications by sequence length; counted, not measured. */
export function Costs() {
  const d = shown.value!.q[0].length;
  const { F, M } = sizes.value;
  const exact = LENGTHS.map((L) => exactOperations(L, d));
  const linear = LENGTHS.map((L) => featureOperations(L, d, M, F));
  const infinite = F === INFINITE;
  const all: Curve[] = [{ name: "exact", x: LENGTHS, y: exact }];
  if (!infinite) all.unshift({ name: `${F} features`, x: LENGTHS, y: linear });
  const crossover = Math.ceil(featureOperations(1, d, M, F) / exactOperations(1, d));
  const read = (i: number) =>
    `L = ${LENGTHS[i].toLocaleString("en")}: exact ${power(exact[i])}` +
    (infinite ? "" : `, ${F} features ${power(linear[i])}, ${short(exact[i] / linear[i], 1)} times fewer`);
  return (
    <Figure
      title="Cost by sequence length"
      name="features-costs"
      note={
        infinite
          ? "F = ∞ shows the limit; it cannot be computed with features."
          : `Multiplications per head: exact attention L²·2d, random features 2L·M·d + 2L·F·(d+1), with d = ${d}, M = ${M}, F = ${F}.`
      }
    >
      <Plot
        testid="features-costs"
        label="Multiplications by sequence length"
        curves={all}
        xTitle="length L"
        yTitle="multiplications"
        yTick={power}
        logarithmic
        height={320}
        read={read}
      />
      {!infinite && (
        <p class="readout">
          Features need fewer multiplications from L = <output data-testid="features-meeting">{crossover}</output>. Their state
          has {(F * (d + 1)).toLocaleString("en")} numbers for a text of any length; exact attention stores {2 * d} numbers per
          token.
        </p>
      )}
    </Figure>
  );
}

/** A large number in powers of ten: 2.1·10⁹. */
function power(value: number): string {
  const exponent = Math.floor(Math.log10(value) + 1e-12);
  const first = short(value / 10 ** exponent, 1);
  const superscript = [...String(exponent)].map((digit) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[Number(digit)]).join("");
  return first === "1" ? `10${superscript}` : `${first}·10${superscript}`;
}
