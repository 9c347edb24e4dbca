// Runs: trainings and comparisons, while they go on and after.

import { get } from "../api.js";
import { figure, table } from "../drawing.js";
import { el } from "../parts.js";

export const title = "Runs";

export const SECONDS = 3;
const FACTS = {
  step: "step", tokens: "tokens seen", seconds: "seconds", loss: "training loss, bits per token",
  validation_loss: "validation loss, bits per token", best_validation_loss: "best validation loss",
  learning_rate: "learning rate", tokens_per_second: "tokens per second",
};
const WHAT = { run: "training", model: "trained model", comparison: "comparison" };

export async function show(root, params, setParams) {
  const list = el("ul", { class: "runs", "aria-label": "Trainings and comparisons" });
  const detail = el("div", {}), status = el("p", { class: "small soft", role: "status" });
  const view = el("div", { class: "split" }, el("nav", { "aria-label": "Runs" }, list), el("div", {}, status, detail));
  root.append(
    el("p", { class: "lead" }, "A model learns step by step: its loss, the bits it needs for a token, should fall. Validation is text that it does not learn from: where its loss rises again, the model has begun to learn by heart."),
    view);

  let chosen = params.run ?? "", drawn = "", listed = "";
  const isDark = () => {
    const [r, g, b] = (getComputedStyle(view).color.match(/[\d.]+/g) ?? [0, 0, 0]).map(Number);
    return r + g + b > 384;
  };
  const choose = async (name) => {
    chosen = name;
    setParams({ run: name });
    drawn = listed = "";
    await refresh();
  };

  async function refresh() {
    const found = await get("/v1/runs");
    found.data = onceEach(found.data);
    if (!found.has_folder || !found.data.length) {
      const how = found.has_folder ? "There is no training yet below the folder that the server was given." : "No folder of trainings was given: start the server with chainrule serve DIR --runs FOLDER.";
      status.textContent = how;
      view.classList.remove("split");
      list.replaceChildren();
      detail.replaceChildren();
      return;
    }
    view.classList.add("split");
    const names = found.data.map((one) => one.id);
    if (!names.includes(chosen)) {
      const live = found.data.find((one) => one.is_going_on) ?? found.data[0];
      if (chosen && !names.includes(`${chosen}.run`)) status.textContent = `${chosen} is no longer there; a training that ends leaves its model.`;
      chosen = names.includes(`${chosen}.run`) ? `${chosen}.run` : live.id;
    }
    const now = JSON.stringify([found.data, chosen]);
    if (now !== listed) {
      listed = now;
      const focused = list.contains(document.activeElement) ? document.activeElement.dataset.run : null;
      list.replaceChildren(...found.data.map((one) => entry(one, one.id === chosen, choose)));
      if (focused) [...list.querySelectorAll("button")].find((button) => button.dataset.run === focused)?.focus();
    }
    const theme = isDark() ? "dark" : "light";
    const mine = found.data.find((one) => one.id === chosen);
    const version = JSON.stringify([mine, theme]);
    if (version === drawn && !mine.is_going_on) return;
    const run = await get(`/v1/runs/${encodeURIComponent(chosen)}?chart=${theme}`);
    if (!run) return;
    if (run.id !== chosen) return; // another one was chosen meanwhile
    const parts = run.what === "comparison" ? ofComparison(run) : ofRun(run);
    const open = [...detail.querySelectorAll("details[open]")].map((one) => one.dataset.name);
    detail.replaceChildren(...parts);
    for (const one of detail.querySelectorAll("details")) one.open = open.includes(one.dataset.name);
    drawn = version;
  }

  async function follow() {
    try {
      if (!document.hidden) await refresh();
      if (status.dataset.failed) status.textContent = status.dataset.failed = "";
    } catch (error) {
      status.textContent = error.message;
      status.dataset.failed = "yes";
    }
    // until another view takes the place of this one
    if (view.isConnected) setTimeout(follow, 1000 * SECONDS);
  }
  await follow();
}

// A training that left its run folder X.run beside its model X is listed once, as the run, which has its report.
export function onceEach(data) {
  const names = new Set(data.map((one) => one.id));
  return data.filter((one) => one.what !== "model" || !names.has(`${one.id}.run`));
}

function entry(one, isChosen, choose) {
  const state = one.is_going_on ? el("small", { class: "live" }, `${WHAT[one.what]}, going on`) : el("small", {}, WHAT[one.what]);
  const button = el(
    "button",
    { type: "button", "aria-current": isChosen ? "true" : null, "data-run": one.id, onclick: () => choose(one.id) },
    el("span", {}, one.id.replaceAll(":", " / ")), state,
  );
  return el("li", {}, button);
}

function heading(run) {
  const when = new Date(1000 * run.changed).toLocaleString();
  const state = run.is_going_on ? el("span", { class: "live" }, `going on; looked at every ${SECONDS} seconds`) : `last changed ${when}`;
  return [
    el("h2", {}, run.id.replaceAll(":", " / ")),
    el("p", { class: "small soft" }, [WHAT[run.what], run.kind].filter(Boolean).join(", "), ", ", state),
    run.report ? el("p", {}, el("a", { href: run.report, target: "_blank", rel: "noopener noreferrer" }, "Open the report (a new tab)")) : null,
  ].filter(Boolean);
}

function ofRun(run) {
  const facts = Object.entries(FACTS).filter(([key]) => run.summary[key] !== undefined);
  const parts = heading(run);
  if (!run.points.length) return [...parts, el("p", {}, "Nothing was measured yet.")];
  parts.push(el("dl", { class: "facts" }, facts.map(([key, name]) => el("div", {}, el("dt", {}, name), el("dd", {}, figure(run.summary[key], 4))))));
  if (run.chart) {
    const losses = run.points.filter((one) => one.loss !== undefined);
    const told = losses.length ? ` Training from ${figure(losses[0].loss)} to ${figure(losses.at(-1).loss)}.` : "";
    const best = run.summary.best_validation_loss === undefined ? "" : ` Best validation ${figure(run.summary.best_validation_loss)}.`;
    const alt = `The loss in bits per token by step.${told}${best} The numbers are in the table below.`;
    parts.push(el("img", { class: "chart", alt, src: `data:image/svg+xml;charset=utf-8,${encodeURIComponent(run.chart)}` }));
  } else if (run.note) parts.push(el("p", { class: "small soft" }, run.note));
  const some = thinned(run.points.filter((one) => one.loss !== undefined || one.validation_loss !== undefined), 100);
  const rows = some.map((one) => [one.step.toLocaleString("en"), figure(one.loss, 4), figure(one.validation_loss, 4)]);
  const settings = Object.entries(run.settings).map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, typeof value === "object" ? JSON.stringify(value) : String(value))));
  parts.push(el("details", { "data-name": "numbers" }, el("summary", {}, "Numbers"), table("Loss by step, bits per token", ["step", "training", "validation"], rows)));
  if (settings.length) parts.push(el("details", { "data-name": "settings" }, el("summary", {}, "Settings"), el("dl", { class: "facts" }, settings)));
  return parts;
}

function thinned(points, most) {
  const every = Math.ceil(points.length / most);
  return points.filter((one, i) => i % every === 0 || i === points.length - 1);
}

function ofComparison(run) {
  const rows = run.models.map((one) => [
    one.name, one.loss === null ? "–" : figure(one.loss, 4), figure(one.training_seconds), figure(one.megabytes), figure(one.parameters),
  ]);
  const loss = run.task === "language" ? "bits per byte" : "loss";
  return [
    ...heading(run),
    run.advice ? el("p", {}, run.advice) : null,
    run.is_finished ? null : el("p", { class: "small soft" }, "It is not finished: some models are still to come."),
    table("The models, the best first", ["model", loss, "training, s", "MB", "parameters"], rows),
    ...run.failures.map((one) => el("p", { class: "problem" }, `${one.name} failed: ${one.error}`)),
    run.report ? null : el("p", { class: "small soft" }, "There is no report yet: chainrule report makes one."),
  ].filter(Boolean);
}
