// Tag: each word with its tag.
import { modelsFor, post } from "../api.js";
import { attempt, debounced, el, field, modelPicker, percent, roving, select } from "../parts.js";

export const title = "Tag";

const EXAMPLE = "The old man saw a dog in the park.";

export async function show(root, params, setParams) {
  const models = await modelsFor("tag");
  const state = { model: models.some((model) => model.id === params.model) ? params.model : models[0].id, text: params.text ?? EXAMPLE };
  let asking = null;
  const keep = () => setParams({ ...state });
  const text = el("textarea", { rows: 3, value: state.text, spellcheck: "false" });
  text.addEventListener("input", () => { state.text = text.value; keep(); soon(); });
  const paper = el("div", { class: "paper tagged", role: "listbox", "aria-label": "The words with their tags" });
  const readout = el("p", { class: "readout" });
  const key = el("ul", { class: "tags", "aria-label": "Tags" });
  const tell = (item) => {
    for (const old of paper.querySelectorAll(".at")) select(old, false);
    select(item, true);
    readout.textContent = item.dataset.says;
  };
  const move = roving(paper, tell);
  paper.addEventListener("pointerover", (event) => { const item = event.target.closest("[data-says]"); if (item) tell(item); });

  async function run() {
    asking?.abort();
    asking = new AbortController();
    const { signal } = asking;
    root.dataset.tagging = "yes";
    const lines = state.text.split("\n").filter((line) => line.trim()).slice(0, 64);
    const found = lines.length ? await attempt(() => post("/v1/tag", { model: state.model, text: lines }, signal)) : { data: [], tags: [] };
    if (!found || signal.aborted) return;
    const hue = new Map(found.tags.map((tag, i) => [tag, Math.round((360 * i * 0.381966) % 360)]));
    const used = new Map();
    paper.replaceChildren(...found.data.map(({ words }) => el("div", { class: "sentence" }, words.map(({ word, tag, probability }) => {
      used.set(tag, (used.get(tag) ?? 0) + 1);
      const says = `${word}: ${tag}, ${percent(probability)}`;
      return el("span", { "data-stop": true, "data-says": says, "aria-label": says, role: "option", "aria-selected": "false", tabindex: -1, class: `tag${probability < 0.5 ? " unsure" : ""}`, style: { "--hue": hue.get(tag) } },
        el("span", { class: "tag-word" }, word), el("span", { class: "tag-name" }, tag));
    }))));
    move.settle();
    readout.textContent = "Point at a word to see how sure the model is; a dashed edge: it is less than 50% sure.";
    key.replaceChildren(...[...used].sort((a, b) => b[1] - a[1]).map(([tag, count]) => el("li", { class: "tag", style: { "--hue": hue.get(tag) } }, el("span", { class: "tag-name" }, tag), ` ${count}`)));
    root.dataset.tagging = "no";
  }

  const soon = debounced(run, 250);
  root.append(
    el("p", { class: "lead" }, "A tagger reads a sentence from both sides and gives each word a label, such as its part of speech."),
    field("Text (each line is a sentence)", text), el("div", { class: "controls" }, modelPicker(models, state.model, (value) => { state.model = value; keep(); run(); })),
    paper, readout, key);
  await run();
  return () => asking?.abort();
}
