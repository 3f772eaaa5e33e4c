// The plan of a lecture: its scenes in their order, with minutes.
import { Select } from "../../controls/controls";
import type { Scene } from "../../state/api";
import { at, choosePlan, go, plan, plans, planId, scenes, type Plan } from "./state";

export function PlanChoice() {
  if (plans.value.length === 0) return null;
  const options = plans.value.map(({ id, title, scenes }) => ({
    value: id,
    label: `${id}: ${title}, ${sum(scenes.map(({ minutes }) => minutes))} min`,
  }));
  return (
    <Select
      label="Lecture"
      value={planId.value}
      options={[{ value: "", label: `all ${scenes.value && !plan.value ? scenes.value.length : ""} scenes` }, ...options]}
      onChange={choosePlan}
      testid="lecture-plan"
    />
  );
}

/** The clock of the plan at the current scene. */
export function PlanClock() {
  if (!plan.value) return null;
  const minutes = plan.value.scenes.map((entry) => entry.minutes);
  const begin = sum(minutes.slice(0, at.value));
  return (
    <span class="muted" data-testid="lecture-clock">
      minute {begin} to {begin + minutes[at.value]} of {sum(minutes)}
    </span>
  );
}

/** The whole plan as a table; a click on a title opens the scene. */
export function PlanTable() {
  if (!plan.value || !scenes.value) return null;
  return (
    <details class="panel plan" data-testid="lecture-plan-table">
      <summary>
        Plan of {plan.value.id}: {plan.value.title} <span class="aside">({plan.value.by})</span>
      </summary>
      <table>
        <thead>
          <tr>
            <th>from minute</th>
            <th>minutes</th>
            <th>scene</th>
            <th>topic</th>
          </tr>
        </thead>
        <tbody>{rows(plan.value, scenes.value)}</tbody>
      </table>
    </details>
  );
}

function rows(chosen: Plan, shown: Scene[]) {
  let begin = 0;
  return chosen.scenes.map(({ minutes }, i) => {
    const from = begin;
    begin += minutes;
    return (
      <tr key={i} aria-current={i === at.value ? "step" : undefined}>
        <td class="number">{from}</td>
        <td class="number">{minutes}</td>
        <td>
          <button type="button" class="quiet" onClick={() => go(i)}>
            {shown[i].title}
          </button>
        </td>
        <td>{shown[i].tag}</td>
      </tr>
    );
  });
}

function sum(numbers: number[]): number {
  return numbers.reduce((total, number) => total + number, 0);
}
