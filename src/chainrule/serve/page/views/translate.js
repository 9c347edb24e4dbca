// Translate: a target for a source, and which source words each target word looked at.
import { modelsFor, post } from "../api.js";
import { attempt, bitsOf, el, field, modelPicker, percent, say, shownBits, slider } from "../parts.js";

export const title = "Translate";

export async function show(root, params, setParams) {
  const models = await modelsFor("translate");
  const state = {
    model: models.some((model) => model.id === params.model) ? params.model : models[0].id,
    text: params.text ?? "", beams: Math.max(1, Math.min(16, Number(params.beams) || 5)),
  };
  let asking = null;
  const keep = (push = false) => setParams({ ...state }, { push });
  const text = el("textarea", { rows: 3, value: state.text, spellcheck: "false" });
  text.addEventListener("input", () => { state.text = text.value; keep(); });
  text.addEventListener("keydown", (event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) run(); });
  const target = el("div", { class: "results", "aria-live": "polite" });

  async function run() {
    if (!state.text.trim()) return;
    asking?.abort();
    asking = new AbortController();
    const { signal } = asking;
    root.dataset.translating = "yes";
    const lines = state.text.split("\n").filter((line) => line.trim()).slice(0, 32);
    const found = await attempt(() => post("/v1/translate", { model: state.model, text: lines, beams: state.beams, alignments: true }, signal));
    if (!found || signal.aborted) return;
    target.replaceChildren(...found.data.map((one, i) => el("section", {},
      el("h2", {}, lines[i]), el("p", { class: "paper short" }, one.text || "(nothing)"),
      el("p", { class: "small soft" }, `${shownBits(bitsOf(one.log_prob))}${one.finished ? "" : "; it was cut off before it came to an end"}`),
      one.alignment && one.alignment.weights.length ? picture(one.alignment, i + 1) : null)));
    root.dataset.translating = "no";
    say(`${found.data.length === 1 ? "One line" : `${found.data.length} lines`} translated.`);
  }

  root.append(
    el("p", { class: "lead" }, "An encoder-decoder reads all of the source, then writes the target word by word. The table shows where it looked while it wrote each word: the stronger the colour, the more."),
    field("Source (each line by itself)", text),
    el("div", { class: "controls" }, modelPicker(models, state.model, (value) => { state.model = value; keep(); run(); }),
      slider("Beam width", { min: 1, max: 16, step: 1, value: state.beams }, (value) => { state.beams = value; keep(); }),
      el("button", { type: "button", class: "main", onclick: run }, "Translate")),
    target);
  await run();
  return () => asking?.abort();
}

function picture({ source, target, weights }, line) {
  const head = el("tr", {}, el("td", {}), source.map((word) => el("th", { scope: "col" }, el("span", {}, word))));
  const rows = target.map((word, t) => el("tr", {}, el("th", { scope: "row" }, word), weights[t].map((weight, s) =>
    el("td", { class: "shade cold", title: `${word} → ${source[s]}: ${percent(weight)}`, style: { "--a": weight.toFixed(3) } }, el("span", { class: "hidden" }, percent(weight))))));
  return el("div", { class: "scroll fits", tabindex: 0, role: "region", "aria-label": `Alignment of line ${line}` },
    el("table", { class: "alignment" }, el("caption", { class: "small" }, "Down: the target. Across: the source."), el("thead", {}, head), el("tbody", {}, rows)));
}
