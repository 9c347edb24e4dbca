// Fill: what a masked model puts into the gaps of a text.
import { modelsFor, post } from "../api.js";
import { attempt, bar, debounced, el, field, modelPicker, newId, percent, say } from "../parts.js";

export const title = "Fill";

const GAP = "[MASK]", EXAMPLE = `The value of the ${GAP} is a ${GAP}.`;

export async function show(root, params, setParams) {
  const models = await modelsFor("fill");
  const state = { model: models.some((model) => model.id === params.model) ? params.model : models[0].id, text: params.text ?? EXAMPLE };
  let asking = null;
  const keep = (push = false) => setParams({ ...state }, { push });
  const text = el("textarea", { rows: 3, value: state.text, spellcheck: "false" });
  text.addEventListener("input", () => { state.text = text.value; keep(); soon(); });
  const gaps = el("div", { class: "papers" });
  const whole = el("div", {});
  const add = el("button", { type: "button", onclick: () => {
    text.setRangeText(GAP, text.selectionStart, text.selectionEnd, "end");
    state.text = text.value;
    keep();
    run();
    text.focus();
  } }, "Put a gap at the cursor");

  async function run() {
    asking?.abort();
    asking = new AbortController();
    const { signal } = asking;
    if (!state.text.includes(GAP)) {
      gaps.replaceChildren(el("p", { class: "soft" }, `No gap is left. Write ${GAP} where a word is missing, or put one at the cursor.`));
      whole.replaceChildren();
      return;
    }
    root.dataset.filling = "yes";
    const found = await attempt(() => post("/v1/fill", { model: state.model, text: state.text, top: 6 }, signal));
    if (!found || signal.aborted) return;
    const parts = state.text.split(GAP);
    gaps.replaceChildren(...found.gaps.map((fillings, i) => {
      const id = newId("gap");
      return el("section", { "aria-labelledby": id }, el("h2", { id }, `Gap ${i + 1}`),
        el("p", { class: "small soft" }, parts[i].length > 28 ? "…" : "", parts[i].slice(-28), el("b", {}, "▁▁▁"), parts[i + 1].slice(0, 28), parts[i + 1].length > 28 ? "…" : ""),
        el("ol", { class: "next" }, fillings.map((one) => el("li", {}, el("button", {
          type: "button", "aria-label": `Fill gap ${i + 1} with ${one.text}, ${percent(one.probability)}`, onclick: () => put(i, one.text),
        }, el("span", { class: "name" }, one.text), bar(one.probability), el("span", { class: "figure" }, percent(one.probability)))))));
    }));
    whole.replaceChildren(el("h2", {}, found.gaps.length > 1 ? "All gaps together" : "The texts"),
      el("ol", { class: "kept" }, found.texts.map((one) => el("li", {}, el("button", { type: "button", class: "plain", onclick: () => become(one.text) }, one.text), el("span", { class: "small soft" }, ` ${percent(one.probability)}`)))));
    root.dataset.filling = "no";
    say(`${found.gaps.length === 1 ? "One gap" : `${found.gaps.length} gaps`}, by ${state.model}.`);
  }

  function put(number, filling) {
    const parts = state.text.split(GAP);
    become(parts.slice(0, number + 1).join(GAP) + filling + parts.slice(number + 1).join(GAP));
  }
  function become(filled) {
    state.text = filled;
    keep(true); // the back button opens the gap again
  }

  const soon = debounced(run, 250);
  root.append(
    el("p", { class: "lead" }, "A masked model learned by having words hidden from it. It sees both sides of a gap and says what may stand there; choose a filling to put it in."),
    field(`Text with gaps (${GAP})`, text),
    el("div", { class: "controls" }, modelPicker(models, state.model, (value) => { state.model = value; keep(); run(); }), add),
    gaps, whole);
  await run();
  return () => asking?.abort();
}
