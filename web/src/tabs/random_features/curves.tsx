// Random features in curves: the error against the number of features, the cost against the length.
import { Figure } from "../../chart/figure";
import { Plot, type Curve } from "../../chart/plot";
import { fixed, short } from "../../text/numbers";
import { exactOperations, featureOperations } from "./estimates";
import { choose, COUNTS, curves, ENDLESS, features, map, normalize, seeds, shown, sizes } from "./state";

const LENGTHS = Array.from({ length: 11 }, (_, i) => 2 ** (6 + i));

/** Medians of some draws with a band; a line that falls as F^-1/2; and the error that the lecture's formula keeps. */
export function Errors(props: { bias: number }) {
  const { plain, corrected } = curves.value!;
  const random = map.value !== "elu";
  const last = corrected.middle[COUNTS.length - 1];
  const all: Curve[] = [
    { name: map.value, x: COUNTS, y: corrected.middle, low: corrected.low, high: corrected.high },
    { name: "lecture's", x: COUNTS, y: plain.middle, low: plain.low, high: plain.high },
  ];
  if (random) {
    const half = COUNTS.map((F) => last * Math.sqrt(COUNTS[COUNTS.length - 1] / F));
    all.push({ name: "slope −½", x: COUNTS, y: half, dashed: true });
  }
  if (!normalize.value) all.push({ name: "limit", x: COUNTS, y: COUNTS.map(() => props.bias), dashed: true });
  const read = (i: number) => {
    const one = (name: string, { middle, low, high }: typeof plain) =>
      `${name} ${fixed(middle[i])}${high[i] > low[i] ? ` (${fixed(low[i])} to ${fixed(high[i])})` : ""}`;
    return `F = ${COUNTS[i]}: ${one(map.value, corrected)}, ${one("lecture's", plain)}`;
  };
  const drawn = seeds.value > 1 ? `Medians of ${seeds.value} draws, and from the least to the largest.` : "One draw.";
  const bias = normalize.value ? "" : ` The lecture's formula tends to its limit, ${fixed(props.bias)}, and not to 0.`;
  const slope = random ? " An error without bias falls along the slope: four times the features, half the error." : "";
  return (
    <Figure
      title="Error against the number of features"
      name="features-errors"
      note={`|weights − exact| / |exact|. ${drawn}${slope}${bias}`}
    >
      <Plot
        testid="features-errors"
        label="Relative error against the number of features"
        curves={all}
        xTitle="features F"
        yTitle="relative error"
        yTick={(value) => short(value)}
        logarithmic
        height={320}
        read={read}
        at={features.value === ENDLESS ? null : COUNTS.findIndex((F) => F === features.value)}
        onAt={(index) => index !== null && choose.features(COUNTS[index])}
      />
    </Figure>
  );
}

/** Multiplications that are counted, not measured. */
export function Costs() {
  const d = shown.value!.q[0].length;
  const { F, M } = sizes.value;
  const exact = LENGTHS.map((L) => exactOperations(L, d));
  const linear = LENGTHS.map((L) => featureOperations(L, d, M, F));
  const endless = F === ENDLESS;
  const all: Curve[] = [{ name: "exact", x: LENGTHS, y: exact }];
  if (!endless) all.unshift({ name: `${F} features`, x: LENGTHS, y: linear });
  const meeting = Math.ceil(featureOperations(1, d, M, F) / exactOperations(1, d));
  const read = (i: number) =>
    `L = ${LENGTHS[i].toLocaleString("en")}: exact ${power(exact[i])}` +
    (endless ? "" : `, ${F} features ${power(linear[i])}, ${short(exact[i] / linear[i], 1)} times less`);
  return (
    <Figure
      title="Cost against the length"
      name="features-costs"
      note={
        endless
          ? "Infinitely many features are a thought: nobody can pay for them."
          : `Multiplications of one head, counted: exact L²·2d, by features 2L·M·d + 2L·F·(d+1), for d = ${d}, M = ${M}, F = ${F}.`
      }
    >
      <Plot
        testid="features-costs"
        label="Multiplications against the length"
        curves={all}
        xTitle="length L"
        yTitle="multiplications"
        yTick={power}
        logarithmic
        height={320}
        read={read}
      />
      {!endless && (
        <p class="readout">
          Features are cheaper from L = <output data-testid="features-meeting">{meeting}</output> on. They remember{" "}
          {(F * (d + 1)).toLocaleString("en")} numbers of a text of any length, exact attention {2 * d} of each token.
        </p>
      )}
    </Figure>
  );
}

/** A large number in powers of ten: 2.1·10⁹. */
function power(value: number): string {
  const exponent = Math.floor(Math.log10(value) + 1e-12);
  const first = short(value / 10 ** exponent, 1);
  const raised = [...String(exponent)].map((digit) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[Number(digit)]).join("");
  return first === "1" ? `10${raised}` : `${first}·10${raised}`;
}
