// Tokens: any text through any tokenizer that is served; the merges of byte-level BPE one after the other.
import { get, load, post } from "../api.js";
import { attempt, debounced, el, field, inline, modelPicker, piecesOf, roving, select, visible } from "../parts.js";

export const title = "Tokens";

const EXAMPLE = "The tokenizer cuts text into tokens: naïve café, unbelievably, 12345.";
const LONGEST = 200, COLOURS = 5;

export async function show(root, params, setParams) {
  const models = await load();
  const state = {
    model: models.some((model) => model.id === params.model) ? params.model : models[0].id,
    text: params.text ?? EXAMPLE, step: params.step === undefined ? null : Number(params.step),
  };
  let asking = null, merges = null, playing = null;
  const infos = new Map(await Promise.all(models.map(async (model) => [model.id, await attempt(() => get(`/tokenizer_info?model=${encodeURIComponent(model.id)}`))])));
  const keep = () => setParams({ ...state });

  const text = el("textarea", { rows: 3, value: state.text, spellcheck: "false" });
  text.addEventListener("input", () => { Object.assign(state, { text: text.value, step: null }); keep(); soon(); });
  const picker = modelPicker(models, state.model, choose, "Tokenizer of");
  const paper = el("div", { class: "paper tokens", role: "listbox", "aria-label": "The text, token by token" });
  const readout = el("p", { class: "readout" });
  const ids = el("p", { class: "ids" });
  const counts = el("div", { class: "scroll narrow", tabindex: 0, role: "region", "aria-label": "Tokens by each model" });
  const move = roving(paper, (item) => tell(item));
  paper.addEventListener("pointerover", (event) => { if (event.target.dataset.says) tell(event.target); });

  function choose(name) {
    Object.assign(state, { model: name, step: null });
    picker.select.value = name;
    keep();
    run();
  }

  function tell(item) {
    for (const old of paper.querySelectorAll(".at")) select(old, false);
    select(item, true);
    readout.textContent = item.dataset.says;
  }

  async function run() {
    asking?.abort();
    pause();
    asking = new AbortController();
    const { signal } = asking;
    root.dataset.tokenizing = "yes";
    const ask = (model) => post("/tokenize", { model: model.id, prompt: state.text }, signal);
    const found = await attempt(() => Promise.all(models.map(ask)));
    if (!found || signal.aborted) return;
    const one = found[models.findIndex((model) => model.id === state.model)];
    const tokens = one.tokens.map((id, i) => ({ id, name: one.token_strs[i], start: one.spans[i][0], end: one.spans[i][1] }));
    // a character of several tokens: the first block shows it, those after it (which hold no text) the bytes of the others
    paper.replaceChildren(...piecesOf(state.text, tokens).flatMap((piece) => piece.tokens.map((token, i) => {
      const number = piece.number + i, many = piece.tokens.length;
      const says = `Token ${number + 1}: ${inline(token.name)} (id ${token.id})${many > 1 ? `, part ${i + 1} of ${many} of ${inline(piece.text)}` : ""}`;
      const bytes = i ? token.name.replace(/<0x([0-9A-F]{2})>/g, "$1") : null;
      return el("span", { "data-stop": true, "data-says": says, "data-bytes": bytes, tabindex: -1, role: "option", "aria-selected": "false", "aria-label": says, class: `token c${number % COLOURS}` }, i ? null : visible(piece.text));
    })));
    move.settle();
    readout.textContent = `${one.count.toLocaleString("en")} tokens for ${one.bytes.toLocaleString("en")} bytes; point at one to see its id.`;
    ids.textContent = one.tokens.slice(0, 400).join(" ") + (one.count > 400 ? " …" : "");
    counts.replaceChildren(table(found));
    await replay(signal);
    root.dataset.tokenizing = "no";
  }

  function table(found) {
    const head = ["model", "tokens are", "vocabulary", "tokens", "bytes per token"].map((name) => el("th", { scope: "col" }, name));
    const rows = models.map((model, i) => {
      const info = infos.get(model.id), one = found[i];
      return el("tr", { class: model.id === state.model ? "best" : "" },
        el("th", { scope: "row" }, el("button", { type: "button", class: "plain", "aria-pressed": String(model.id === state.model), onclick: () => choose(model.id) }, model.id)),
        [info?.name ?? "", info?.vocab_size.toLocaleString("en") ?? "", one.count.toLocaleString("en"), one.count ? (one.bytes / one.count).toFixed(2) : ""].map((value) => el("td", {}, value)));
    });
    return el("table", {}, el("thead", {}, el("tr", {}, head)), el("tbody", {}, rows));
  }

  // -- merges
  const place = el("section", { class: "merges", "aria-labelledby": "merges-title", hidden: true });
  const words = el("div", { class: "paper merge-words" });
  const said = el("p", { class: "readout", "aria-live": "polite" });
  const back = el("button", { type: "button", onclick: () => { pause(); go(state.step - 1); } }, "Back");
  const step = el("button", { type: "button", onclick: () => { pause(); go(state.step + 1); } }, "Step");
  const play = el("button", { type: "button", onclick: () => (playing ? pause() : start()) }, "Play");
  place.append(el("h2", { id: "merges-title" }, "How the merges make these tokens"),
    el("p", { class: "soft small" }, "Byte-level BPE begins with single bytes. Of the pairs of neighbours that it learned to merge, it takes the one it learned first, everywhere, and again, until no pair is left."),
    el("div", { class: "controls" }, back, step, play), words, said);

  function start() {
    if (state.step >= merges.steps.length) go(0);
    play.textContent = "Pause";
    playing = setInterval(() => { go(state.step + 1); if (state.step >= merges.steps.length) pause(); }, 600);
  }
  function pause() {
    clearInterval(playing);
    playing = null;
    play.textContent = "Play";
  }

  async function replay(signal) {
    const bpe = infos.get(state.model)?.name === "bpe";
    place.hidden = !bpe;
    if (!bpe) return;
    const cut = Array.from(state.text).slice(0, LONGEST).join("");
    merges = await attempt(() => post("/v1/merges", { model: state.model, text: cut }, signal));
    if (merges) go(state.step ?? merges.steps.length);
    else place.hidden = true;
  }

  function go(to) {
    const last = merges.steps.length;
    const at = Math.max(0, Math.min(to, last));
    state.step = at === last ? null : at;
    keep();
    state.step = at;
    back.disabled = at === 0;
    step.disabled = at === last;
    const now = merges.words.map((word) => word);
    for (const one of merges.steps.slice(0, at)) for (const [number, tokens] of one.changed) now[number] = tokens;
    const just = at ? new Set(merges.steps[at - 1].changed.map(([number]) => number)) : new Set();
    const made = at ? merges.steps[at - 1].left + merges.steps[at - 1].right : null;
    let count = 0;
    words.replaceChildren(...now.map((word, number) => el("span", { class: "word" }, word.map((token) => {
      count += 1;
      return el("span", { class: `token c${(count - 1) % COLOURS}${just.has(number) && token === made ? " fresh" : ""}` }, visible(token));
    }))));
    const one = at ? merges.steps[at - 1] : null;
    said.textContent = `${at} of ${last} merges, ${count} tokens. ${one ? `Merge ${(one.rank + 1).toLocaleString("en")} of those it learned: ${inline(one.left)} + ${inline(one.right)}` : "Nothing is merged yet."}`
      + (Array.from(state.text).length > LONGEST ? ` (of the first ${LONGEST} characters)` : "");
  }

  const soon = debounced(run, 180);
  root.append(
    el("p", { class: "lead" }, "A model does not read letters but tokens: pieces of text from a list that was fixed before training. Type, and see where the cuts fall."),
    field("Text", text), el("div", { class: "controls" }, picker), paper, readout,
    el("details", {}, el("summary", {}, "Ids"), ids), place, el("h2", {}, "By every tokenizer that is served"), counts);
  await run();
  return () => { asking?.abort(); pause(); };
}
