// Write: a text streams in, every token with its surprisal; another token anywhere begins a branch.
import { modelsFor, post, stream } from "../api.js";
import {
  attempt, bar, bitsOf, bounded, colour, debounced, el, field, inline, legend, modelPicker, percent, piecesOf, radios, roving, say, shownBits,
  slider, visible,
} from "../parts.js";

export const title = "Write";

const ALTERNATIVES = 8, SHOWN_NEXT = 16;
const MOST_TOKENS = 4096, MOST_SEED = 2 ** 53 - 1; // what the server, and a number of JavaScript, can have
const NAME_ONLY = /^(<0x[0-9A-F]{2}>)+$|^<\/?s>$|^<unk>$/; // names of tokens that are no text by themselves
let focusAfter = null; // which part has the focus after a branch has drawn the view anew

export async function show(root, params, setParams) {
  const models = await modelsFor("generate");
  const state = {
    model: models.some((model) => model.id === params.model) ? params.model : models[0].id,
    prompt: params.prompt ?? "The",
    t: bounded(params.t, 0.8, 0, 2), k: whole(params.k, 0, 0, 100), p: bounded(params.p, 0.95, 0.05, 1), n: whole(params.n, 60, 1, MOST_TOKENS),
    repeat: bounded(params.repeat, null, 1, 2), presence: bounded(params.presence, null, 0, 2), frequency: bounded(params.frequency, null, 0, 2),
    stop: (params.stop ?? "").slice(0, 200) || null,
    by: params.by === "rank" ? "rank" : "bits",
    seed: whole(params.seed, null, 0, MOST_SEED), keeps: params.keeps === "1" ? 1 : null, go: params.go,
  };
  // the fields of a request that say how the next token is chosen
  const sampling = () => ({
    model: state.model, temperature: state.t, top_p: state.p, top_k: state.k || -1, repetition_penalty: state.repeat ?? 1,
    presence_penalty: state.presence ?? 0, frequency_penalty: state.frequency ?? 0,
  });
  let pieces = [], text = state.prompt, finish = null, stopping = null, asking = null, ended = -1000; // ended: when, so that a late click on Stop begins nothing
  const keep = (push = false) => setParams({ ...state }, { push });

  // -- the controls
  const prompt = el("textarea", { rows: 3, value: state.prompt, spellcheck: "false" });
  const button = el("button", { type: "button", class: "main", onclick: () => (stopping ? stopping.abort() : performance.now() - ended > 400 && begin(prompt.value)) }, "Write");
  const onward = el("button", { type: "button", disabled: true, onclick: () => begin(text) }, "Go on");
  prompt.addEventListener("input", () => {
    stopping?.abort();
    Object.assign(state, { prompt: prompt.value, go: null, seed: state.keeps ? state.seed : null });
    [text, pieces, finish] = [prompt.value, [], null];
    keep();
    draw();
    soon();
  });
  prompt.addEventListener("keydown", (event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) begin(prompt.value); });
  const set = (name) => (value) => { state[name] = value; keep(); soon(); };
  const picker = modelPicker(models, state.model, (value) => {
    stopping?.abort();
    Object.assign(state, { model: value, go: null });
    [text, pieces, finish] = [state.prompt, [], null];
    keep();
    draw();
    soon();
  });
  const sliders = el("div", { class: "sliders" },
    slider("Temperature", { min: 0, max: 2, step: 0.05, value: state.t }, set("t")),
    slider("Top-k", { min: 0, max: 100, step: 1, value: state.k, off: 0 }, set("k")),
    slider("Top-p", { min: 0.05, max: 1, step: 0.01, value: state.p, off: 1 }, set("p")),
    slider("Tokens", { min: 1, max: 400, step: 1, value: state.n, most: MOST_TOKENS }, set("n")));
  const penalty = (label, name, { min, max }) => slider(label, { min, max, step: 0.05, value: state[name] ?? min, off: min }, (value) => set(name)(value === min ? null : value));
  const seed = el("input", { type: "number", class: "wide", min: 0, max: MOST_SEED, step: 1, placeholder: "random", value: state.keeps ? state.seed : "" });
  seed.addEventListener("input", () => { Object.assign(state, seed.value !== "" && seed.checkValidity() ? { seed: Number(seed.value), keeps: 1 } : { keeps: null }); keep(); });
  const stop = el("input", { type: "text", maxlength: 200, placeholder: "nowhere", spellcheck: "false", value: shownStop(state.stop) });
  stop.addEventListener("input", () => { state.stop = stop.value.replaceAll("\\n", "\n") || null; keep(); });
  const more = el("details", { open: Boolean(state.keeps || state.stop || state.repeat || state.presence || state.frequency) }, el("summary", {}, "Seed, stop and penalties"),
    el("div", { class: "controls" }, field("Seed", seed), field("Stop before (\\n is a line end)", stop)),
    el("div", { class: "sliders" },
      penalty("Repetition", "repeat", { min: 1, max: 2 }), penalty("Presence", "presence", { min: 0, max: 2 }), penalty("Frequency", "frequency", { min: 0, max: 2 })));

  // -- the text, and the card of a token
  const paper = el("div", { class: "paper tokens", role: "group", "aria-label": "The text, token by token" });
  const card = el("div", { class: "card", role: "dialog", "aria-label": "Alternatives", hidden: true });
  const sheet = el("div", { class: "sheet" }, paper, card);
  const key = el("div", {});
  const move = roving(paper, (item) => open(item));
  const shown = new Map(); // spans to pieces
  let opened = null;

  function draw() {
    close();
    shown.clear();
    if (pieces.length) paper.replaceChildren(...pieces.map(spanOf));
    else paper.replaceChildren(el("span", { class: "given" }, text), el("span", { class: "soft" }, text ? "" : "Nothing yet."));
    key.replaceChildren(legend(state.by));
    move.settle();
    onward.disabled = !pieces.length || stopping !== null;
  }

  function spanOf(piece) {
    const span = el("span", {
      "data-stop": true, tabindex: -1, role: "button", "aria-haspopup": "dialog",
      class: piece.before.length + piece.text.length <= state.prompt.length ? "given" : "",
      "aria-label": `${nameOf(piece)}: ${figures(piece)}`,
    }, piece.text === "" ? "■" : visible(piece.text));
    colour(span, state.by, state.by === "rank" ? piece.rank ?? (piece.bits === null ? null : ALTERNATIVES) : piece.bits);
    shown.set(span, piece);
    return span;
  }

  function open(span) {
    if (opened === span) return;
    opened?.classList.remove("at");
    opened = span;
    span.classList.add("at");
    const piece = shown.get(span);
    const own = Number.isFinite(piece.bits) ? 2 ** -piece.bits : 0;
    const list = piece.top.map((one) => {
      const p = Math.exp(one.log_prob);
      const dead = one.text === null;
      return el("li", {}, el("button", {
        type: "button", disabled: dead, title: dead ? "a part of a character, or the end: nothing to branch to" : "write on from here",
        onclick: () => begin(piece.before + one.text),
      }, el("span", { class: "name" }, inline(one.text ?? one.name)), bar(p), el("span", { class: "figure" }, percent(p))));
    });
    card.replaceChildren(
      el("p", {}, el("b", {}, nameOf(piece)), ` ${piece.bits === null ? "" : `p ${percent(own)}, `}${figures(piece)}`),
      el("p", { class: "small soft" }, "Instead, and on from there:"), el("ol", {}, list));
    card.hidden = false;
    const [at, around] = [span.getClientRects()[0] ?? span.getBoundingClientRect(), sheet.getBoundingClientRect()];
    const left = Math.max(0, Math.min(at.left - around.left, around.width - card.offsetWidth));
    card.style.left = `${left}px`;
    card.style.top = `${at.bottom - around.top + 2}px`;
  }

  function close() {
    opened?.classList.remove("at");
    opened = null;
    card.hidden = true;
  }

  paper.addEventListener("pointerover", (event) => { if (shown.has(event.target)) open(event.target); });
  paper.addEventListener("click", (event) => { if (shown.has(event.target)) open(event.target); });
  paper.addEventListener("keydown", (event) => {
    if ((event.key === "Enter" || event.key === " ") && shown.has(event.target)) {
      event.preventDefault();
      open(event.target);
      card.querySelector("button:enabled")?.focus();
    } else if (event.key === "Escape") close();
  });
  card.addEventListener("keydown", (event) => {
    const buttons = Array.from(card.querySelectorAll("button:enabled")), place = buttons.indexOf(document.activeElement);
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      buttons.at((place + (event.key === "ArrowDown" ? 1 : -1)) % buttons.length)?.focus();
    } else if (event.key === "Escape") {
      const span = opened;
      span?.focus();
      close();
    }
  });
  sheet.addEventListener("pointerleave", () => { if (!sheet.contains(document.activeElement)) close(); });
  root.addEventListener("pointerdown", (event) => { if (!sheet.contains(event.target)) close(); });
  sheet.addEventListener("focusout", (event) => { if (event.relatedTarget && !sheet.contains(event.relatedTarget)) close(); });

  // -- writing
  function begin(from) {
    stopping?.abort();
    focusAfter = document.activeElement === prompt ? "prompt" : "button";
    Object.assign(state, { prompt: from, go: 1, seed: state.keeps ? state.seed : Math.floor(Math.random() * 1e9) });
    if (!keep(true)) write(); // the same once more is no new step of the history
  }

  async function write() {
    stopping = new AbortController();
    button.textContent = "Stop";
    root.dataset.writing = "yes";
    say("Writing …");
    pieces = [];
    shown.clear();
    let echoed = false, failed = null, written = 0, first = null;
    [text, finish] = ["", null];
    const body = { ...sampling(), prompt: state.prompt, max_tokens: state.n, seed: state.seed ?? 0, stop: state.stop, logprobs: ALTERNATIVES, echo: true };
    const began = performance.now();
    try {
      await stream("/v1/completions", body, ({ choices: [choice] }) => {
        add(choice, !echoed);
        if (echoed) written += choice.logprobs?.tokens.length ?? 0;
        if (echoed) first ??= performance.now() - began;
        echoed = true;
        finish = choice.finish_reason ?? finish;
      }, stopping.signal);
    } catch (error) {
      if (error.name !== "AbortError") failed = error.message;
    }
    if (!root.isConnected) return; // another view has the status line now
    const seconds = (performance.now() - began) / 1000;
    [stopping, ended] = [null, performance.now()];
    button.textContent = "Write";
    if (!text.startsWith(state.prompt)) text = state.prompt; // it was stopped before anything came
    if (failed === null) await score().catch((error) => { failed = error.message; });
    if (!root.isConnected) return;
    draw();
    const how = finish === null ? "Stopped" : finish === "length" ? "As many tokens as asked for" : "The text came to an end";
    const speed = written && seconds > 0 ? `: ${counted(written)} in ${seconds.toFixed(seconds < 10 ? 2 : 0)} s, ${(written / seconds).toLocaleString("en", { maximumSignificantDigits: 2 })} tokens/s, the first after ${first.toFixed(0)} ms` : "";
    if (failed !== null) say(failed, true);
    else {
      say(`${how}${speed}; seed ${state.seed ?? 0}.`);
      await next();
    }
    root.dataset.writing = "no";
  }

  // New tokens, as the stream tells them; the tokens of the prompt come first, if together they are the prompt.
  function add(choice, isPrompt) {
    const told = choice.logprobs;
    if (isPrompt && told.tokens.join("") !== choice.text) {
      pieces.push({ text: choice.text, before: "", bits: null, rank: null, top: [], tokens: [] });
    } else {
      let before = text;
      told.tokens.forEach((token, i) => {
        const top = Object.entries(told.top_logprobs?.[i] ?? {}).map(([name, p]) => ({ name, text: NAME_ONLY.test(name) ? null : name, log_prob: p }));
        top.sort((a, b) => b.log_prob - a.log_prob);
        const better = top.filter((one) => one.log_prob > told.token_logprobs[i] + 1e-6).length;
        const ends = choice.finish_reason === "stop" && i === told.tokens.length - 1 && before + token !== text + choice.text;
        pieces.push({ text: ends ? "" : token, before, bits: bitsOf(told.token_logprobs[i]), rank: better < top.length ? better : null, top, tokens: [] });
        before += token;
      });
    }
    text += choice.text;
    const fresh = pieces.slice(paper.querySelectorAll("[data-stop]").length);
    if (shown.size === 0) draw(); else paper.append(...fresh.map(spanOf));
  }

  // All of the text once more, by /v1/score: exact ranks, and the bytes of each token.
  async function score() {
    if (!text) return;
    const found = await post("/v1/score", { model: state.model, text, top: ALTERNATIVES });
    const whole = finish === "stop";
    const tokens = found.tokens.map((token) => ({
      ...token,
      bits: bitsOf(token.log_prob),
      top: token.top.map((one) => ({ name: one.token, text: one.text && !one.text.includes("\ufffd") ? one.text : null, log_prob: one.log_prob })),
    }));
    const end = tokens.at(-1);
    const last = end && end.start === end.end ? tokens.pop() : null; // the end of the text, which is no character
    const scored = piecesOf(text, tokens);
    if (last && whole) scored.push({ text: "", before: text, bits: last.bits, rank: last.rank, top: last.top, tokens: [last] });
    // A sampler may write a text in other tokens than the tokenizer would: those that it wrote are shown. What was cut
    // otherwise than into characters, or has no bits, is shown as it was scored.
    const exact = pieces.every((piece) => piece.bits !== null && !piece.text.includes("\ufffd")) && pieces.map((piece) => piece.text).join("") === text;
    if (!exact) pieces = scored;
    const rank = new Map(scored.map((piece) => [`${piece.before.length} ${piece.text}`, piece.rank]));
    for (const piece of pieces) piece.rank ??= rank.get(`${piece.before.length} ${piece.text}`) ?? null;
  }

  // -- the next token
  const table = el("ol", { class: "next" });
  const about = el("p", { class: "small soft" });
  async function next() {
    asking?.abort();
    asking = new AbortController();
    const body = { ...sampling(), prompt: text, top: SHOWN_NEXT };
    const found = await attempt(() => post("/v1/next", body, asking.signal));
    if (!found) return;
    about.textContent = `${found.kept === 1 ? "One token" : `${found.kept.toLocaleString("en")} tokens`} may be chosen; the model's uncertainty is ${found.entropy_bits.toFixed(2)} bits.`;
    table.replaceChildren(...found.tokens.filter((one) => one.p > 0).map((one) => {
      const dead = one.text === "" || one.text.includes("\ufffd");
      return el("li", {}, el("button", {
        type: "button", class: one.q > 0 ? "" : "cut", disabled: dead, onclick: () => begin(text + one.text),
        "aria-label": `${inline(one.text || one.token)}: ${percent(one.p)} by the model, ${one.q > 0 ? percent(one.q) : "never"} by the sampler`,
      }, el("span", { class: "name" }, inline(dead ? one.token : one.text)), el("span", { class: "bars" }, bar(one.p, "model"), bar(one.q, "chosen")),
      el("span", { class: "figure" }, one.q > 0 ? percent(one.q) : "cut")));
    }));
  }
  const soon = debounced(() => { if (!stopping) next(); }, 90);

  root.append(
    el("p", { class: "lead" }, "A language model writes one token at a time. The colour of a token says how surprising it was to the model; point at one to see what else it might have written, and choose another to go on from there."),
    el("div", { class: "columns" },
      el("div", {},
        field("Beginning of the text", prompt),
        el("div", { class: "controls" }, picker, button, onward,
          radios("Colour by", "by", [["bits", "surprisal"], ["rank", "rank"]], state.by, (value) => { state.by = value; keep(); draw(); })),
        sheet, key),
      el("section", { class: "side", "aria-labelledby": "next-title" },
        el("h2", { id: "next-title" }, "The next token"), sliders, more,
        el("p", { class: "legend small soft" }, el("i", { class: "flat model" }), "the model", el("i", { class: "flat chosen" }), "after the sliders"),
        table, about)));
  draw();
  if (focusAfter) (focusAfter === "prompt" ? prompt : button).focus();
  focusAfter = null;
  if (state.go) write(); else next();
  return () => { stopping?.abort(); asking?.abort(); };
}

const nameOf = (piece) => (piece.text === "" ? "the end" : inline(piece.text));
const figures = (piece) => (piece.bits === null ? "not read yet" : `${shownBits(piece.bits)}${piece.rank === null ? "" : `, rank ${(piece.rank + 1).toLocaleString("en")}`}`);
const counted = (tokens) => (tokens === 1 ? "one token" : `${tokens.toLocaleString("en")} tokens`);
const shownStop = (stop) => (stop ?? "").replaceAll("\n", "\\n");
const whole = (value, usual, least, most) => { const found = bounded(value, usual, least, most); return found === null ? null : Math.round(found); };
