// Textbook cards of a lesson: a formula, its symbols, sliders, and what chainrule computes for their places.
import { post } from "./api.js";
import { figure } from "./drawing.js";
import { attempt, bar, debounced, el, newId, slider } from "./parts.js";

export function card(lesson, part) {
  const values = Object.fromEntries(part.sliders.map((one) => [one.name, one.value]));
  const shown = el("figure", { "aria-live": "polite", "aria-busy": "true" });
  let asking = null;
  async function show() {
    asking?.abort();
    asking = new AbortController();
    const { signal } = asking;
    shown.setAttribute("aria-busy", "true");
    const found = await attempt(() => post("/v1/lessons/card", { lesson: lesson.number, card: part.card, values }, signal));
    if (signal.aborted) return;
    if (found) shown.replaceChildren(found.svg ? picture(part.title, values, found.svg) : numbers(part.title, found.numbers));
    shown.setAttribute("aria-busy", "false");
  }
  const later = debounced(show, 120);
  const heading = el("h4", { id: newId("card") }, part.title);
  const made = el("section", { class: "textbook", "aria-labelledby": heading.id }, heading,
    part.formula ? el("p", { class: "formula" }, part.formula) : null,
    el("dl", { class: "symbols" }, part.symbols.map(([symbol, meaning]) => [el("dt", {}, symbol), el("dd", {}, meaning)])),
    el("div", { class: "sliders" }, part.sliders.map((one) => slider(one.name, { min: one.low, max: one.high, step: one.step, value: one.value },
      (value) => { values[one.name] = value; later(); }))),
    shown,
    el("details", {}, el("summary", { class: "small", "aria-label": `The code of this card: ${part.title}` }, "The code of this card"), el("pre", { class: "code python", tabindex: 0 }, part.code)));
  // some cards train a small model first: only those that are read do
  const seen = new IntersectionObserver((entries) => {
    if (!entries.some((entry) => entry.isIntersecting)) return;
    seen.disconnect();
    show();
  }, { rootMargin: "200px" });
  seen.observe(made);
  return made;
}

function picture(title, values, text) {
  const settings = Object.entries(values).map(([name, value]) => `${name} = ${value}`).join(", ");
  return el("div", { class: "scroll fits", tabindex: 0, role: "region", "aria-label": `Picture: ${title}` },
    el("img", { src: `data:image/svg+xml,${encodeURIComponent(text)}`, alt: `${title}: ${settings}` }));
}

// Probabilities have bars: the whole width is 1.
function numbers(title, found) {
  const rows = Object.entries(found), areShares = rows.every(([, value]) => value >= 0 && value <= 1);
  return el("ol", { class: "next", "aria-label": title }, rows.map(([name, value]) =>
    el("li", { class: "row" }, el("span", { class: "name" }, name), areShares ? bar(value) : el("span", {}), el("span", { class: "figure" }, figure(value)))));
}
