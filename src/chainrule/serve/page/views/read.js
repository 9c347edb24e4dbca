// Read: one text under several models, word by word on the bytes that they share.
import { modelsFor, post } from "../api.js";
import { IMPOSSIBLE, attempt, colour, debounced, el, field, inline, legend, modelChecks, modelPicker, newId, radios, roving, say, select, shownBits, visible, bytesOf } from "../parts.js";

export const title = "Read";

const MOST_BITS = 20, MOST_DIFFERENCE = 8; // of a word, where the colours are deepest
const LONGEST_SPAN = 8, SPANS = 5, CERTAIN = 60; // CERTAIN: bits that stand for ln 0 where spans are ranked
const LONGEST_TEXT = 20000; // characters; every word is an element of each model's column
const EXAMPLE = "The value of an expression is the value of its last part.\nThe cat sat on the mat, and a dog saw it.";

export async function show(root, params, setParams) {
  const models = await modelsFor("generate");
  const known = (params.models ?? "").split(",").filter((name) => models.some((model) => model.id === name));
  const state = {
    text: (params.text ?? EXAMPLE).replaceAll("\r\n", "\n"),
    models: known.length ? known : models.slice(0, 2).map((model) => model.id),
    a: params.a, b: params.b, by: params.by === "difference" ? "difference" : "bits",
  };
  let read = [], words = [], asking = null;
  const keep = () => setParams({ ...state, models: state.models.join(",") });
  const find = (name) => read.find((one) => one.name === name);

  const text = el("textarea", { rows: 5, spellcheck: "false" });
  const cut = el("p", { class: "problem", role: "status" });
  const take = (given) => {
    cut.textContent = given.length > LONGEST_TEXT ? `Of ${given.length.toLocaleString("en")} characters only the first ${LONGEST_TEXT.toLocaleString("en")} are kept and read.` : "";
    state.text = given.slice(0, LONGEST_TEXT);
    if (text.value !== state.text) text.value = state.text;
  };
  take(state.text);
  text.addEventListener("input", () => { take(text.value); keep(); soon(); });
  const results = el("div", { class: "results" });
  const totals = el("div", { class: "scroll narrow", tabindex: 0, role: "region", "aria-label": "Totals" });
  const papers = el("div", { class: "papers" });
  const readout = el("p", { class: "readout", "aria-live": "polite" });
  const spans = el("div", { class: "papers" });
  const pair = el("div", { class: "controls" });
  const key = el("div", {});

  async function run() {
    asking?.abort();
    asking = new AbortController();
    const { signal } = asking;
    root.dataset.reading = "yes";
    results.setAttribute("aria-busy", "true"); // what is shown is of an earlier text, until it is replaced
    const missing = state.models.length === 0 ? "Choose a model to read the text." : state.text === "" ? "There is nothing to read yet: type a text." : "";
    say(missing || "Reading …");
    const found = missing ? [] : await attempt(() => Promise.all(state.models.map((name) => post("/v1/score", { model: name, text: state.text }, signal))));
    if (signal.aborted) return;
    results.hidden = !found?.length;
    results.removeAttribute("aria-busy");
    if (!found?.length) {
      root.dataset.reading = "no";
      return;
    }
    words = wordsOf(state.text);
    read = found.map((score, i) => ({ name: state.models[i], score, bits: bitsOfWords(words, score.tokens) }));
    const [one, two] = [find(state.a) ?? read[0], find(state.b) ?? read[1]];
    state.a = one?.name;
    state.b = two && two !== one ? two.name : read.find((other) => other !== one)?.name;
    draw();
    root.dataset.reading = "no";
    say(`${read.length === 1 ? "One model has" : `${read.length} models have`} read ${bytesOf(state.text).toLocaleString("en")} bytes.`);
  }

  function draw() {
    const best = Math.min(...read.filter((one) => one.score.normalised).map((one) => one.score.bits ?? Infinity));
    totals.replaceChildren(el("table", {},
      el("thead", {}, el("tr", {}, ["model", "tokens", "bits", "bits per byte", "perplexity of a token"].map((name) => el("th", { scope: "col" }, name)))),
      el("tbody", {}, read.map(({ name, score }) => el("tr", { class: score.bits === best ? "best" : "" },
        el("th", { scope: "row" }, name, score.normalised ? null : el("span", { class: "small soft" }, " scores, not probabilities")),
        el("td", {}, score.tokens.length.toLocaleString("en")),
        score.bits === null ? el("td", { colspan: 3 }, IMPOSSIBLE)
          : [number(score.bits, 1), number(score.bits_per_byte, 3), number(score.perplexity, 1)].map((value) => el("td", {}, value)))))));
    pair.replaceChildren(...(read.length < 2 ? [] : [
      radios("Colour by", "by", [["bits", "bits of each"], ["difference", "difference"]], state.by, (value) => { state.by = value; keep(); paint(); }),
      ...(read.length < 3 ? [] : ["a", "b"].map((side) => modelPicker(read.map((one) => ({ id: one.name, kind: one.name })), state[side], (value) => {
        state[side] = value;
        keep();
        paint();
      }, side === "a" ? "Compare" : "with"))),
    ]));
    papers.replaceChildren(...read.map((one) => {
      const id = newId("paper");
      const paper = el("div", { class: "paper tokens scrolls", role: "listbox", "aria-labelledby": id });
      one.spans = words.map((word, i) => el("span", { "data-stop": true, "data-word": i, tabindex: -1, role: "option", "aria-selected": "false" }, word.end ? "■" : visible(word.text)));
      paper.append(...one.spans);
      roving(paper, (item) => point(Number(item.dataset.word))).settle();
      paper.addEventListener("pointerover", (event) => { if (event.target.dataset.word) point(Number(event.target.dataset.word)); });
      return el("section", { "aria-labelledby": id }, el("h2", { id }, one.name), paper);
    }));
    readout.textContent = "Point at a word to see what it takes under each model.";
    paint();
  }

  function paint() {
    const other = (one) => (one.name === state.a ? find(state.b) : find(state.a));
    const differ = state.by === "difference" && read.length > 1;
    for (const one of read) {
      one.spans.forEach((span, i) => {
        const value = differ ? capped(one.bits[i]) - capped(other(one).bits[i]) : one.bits[i];
        colour(span, "bits", Math.abs(value), differ ? MOST_DIFFERENCE : MOST_BITS);
        span.classList.toggle("cold", differ && value < 0);
        span.setAttribute("aria-label", `${words[i].end ? "the end" : inline(words[i].text.trim() || words[i].text)}, ${shownBits(one.bits[i])}`);
      });
    }
    key.replaceChildren(differ ? el("p", { class: "legend small soft" }, `${MOST_DIFFERENCE} bits better than the other`, el("i", { class: "two" }), `${MOST_DIFFERENCE} bits worse`)
      : legend("bits", MOST_BITS));
    const [a, b] = [find(state.a), find(state.b)];
    spans.replaceChildren(...(a && b ? [list(a, b), list(b, a)] : []));
  }

  function point(i) {
    for (const old of papers.querySelectorAll(".at")) select(old, false);
    for (const one of read) select(one.spans[i], true);
    const word = words[i].end ? "The end" : `“${inline(words[i].text.trim() || words[i].text)}”`;
    readout.textContent = `${word}: ${read.map((one) => `${one.name} ${shownBits(one.bits[i])}`).join(", ")}`;
  }

  function list(better, than) {
    const id = newId("spans");
    const found = bestSpans(better.bits.map(capped), than.bits.map(capped), words.map((word) => word.line), SPANS);
    const items = found.map((span) => {
      const part = words.slice(span.first, span.last).map((word) => word.text).join("");
      const before = words.slice(Math.max(0, span.first - 3), span.first).filter((word) => word.line === words[span.first].line).map((word) => word.text).join("").trimStart();
      return el("li", {}, el("button", { type: "button", class: "plain", onclick: () => reveal(span) },
        el("span", { class: "soft" }, before), el("mark", {}, words[span.first].end ? " the end" : visible(part).trimEnd())),
      el("span", { class: "small soft" }, ` ${against(sum(better.bits, span), sum(than.bits, span), than.name)}`));
    });
    return el("section", { "aria-labelledby": id, class: "spans" }, el("h2", { id }, `Where ${better.name} beats ${than.name} most`),
      items.length ? el("ol", {}, items) : el("p", { class: "soft" }, "Nowhere."));
  }

  function reveal(span) {
    for (const old of papers.querySelectorAll(".marked")) old.classList.remove("marked");
    for (const one of read) for (const item of one.spans.slice(span.first, span.last)) item.classList.add("marked");
    for (const one of read) one.spans[span.first].parentElement.scrollTop = one.spans[span.first].offsetTop - one.spans[span.first].parentElement.offsetTop - 60;
    papers.scrollIntoView({ block: "nearest" });
    point(span.first);
  }

  const soon = debounced(run, 350);
  root.append(
    el("p", { class: "lead" }, "How well does each model foresee a text? A bit is one yes-or-no question: a word of 10 bits was one of about 1,000 that seemed as likely. Models with different tokens are compared on the bytes of the text, which they share."),
    field("Text", text), cut,
    el("div", { class: "controls" }, modelChecks(models, state.models, (values) => { state.models = values; keep(); soon(); })),
    results);
  results.append(totals, pair, papers, key, readout, spans);
  await run();
  return () => asking?.abort();
}

const sum = (bits, span) => bits.slice(span.first, span.last).reduce((total, one) => total + one, 0);
const against = (bits, other, name) => (Number.isFinite(other) ? `${shownBits(bits).replace(/ bits$/, "")} against ${shownBits(other)}` : `${shownBits(bits)}; not possible for ${name}`);
const capped = (bits) => Math.min(bits, CERTAIN);
const number = (value, digits) => value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });

// The words of a text with the bytes where they begin; a run of visible characters with the white space before it, or a
// line end. Characters of scripts without spaces are words of their own. Last comes the end of the text, of no bytes.
export function wordsOf(text) {
  const east = "\\u2e80-\\u9fff\\uac00-\\ud7af\\uf900-\\ufaff";
  const word = new RegExp(`\\n|[^\\S\\n]*(?:[${east}]|[^\\s${east}]{1,24})|[^\\S\\n]+`, "gu");
  const words = [];
  let start = 0, line = 0;
  for (const [found] of text.matchAll(word)) {
    words.push({ text: found, start, line });
    start += bytesOf(found);
    if (found === "\n") line += 1;
  }
  if (text && !text.endsWith("\n")) words.push({ text: "", start, line, end: true });
  return words;
}

// The bits of each word: what a token takes is spread evenly over its bytes; one without bytes is where it stands.
export function bitsOfWords(words, tokens) {
  const bits = new Array(words.length).fill(0);
  let at = 0;
  const end = (i) => (i + 1 < words.length ? words[i + 1].start : Infinity);
  for (const token of tokens) {
    while (end(at) <= token.start) at += 1;
    const own = token.bits >= 9999 ? Infinity : token.bits;
    if (token.end === token.start) { bits[at] += own; continue; }
    for (let i = at; i < words.length && words[i].start < token.end; i += 1) {
      const share = Math.min(end(i), token.end) - Math.max(words[i].start, token.start);
      if (share > 0) bits[i] += own * (share / (token.end - token.start));
    }
  }
  return bits;
}

// The spans of a line in which a model gains most over another, the largest first, none twice.
export function bestSpans(better, other, lines, count) {
  const taken = new Array(better.length).fill(false), found = [];
  while (found.length < count) {
    let best = null, most = 0.05;
    for (let first = 0; first < better.length; first += 1) {
      let gain = 0;
      for (let last = first; last < Math.min(better.length, first + LONGEST_SPAN); last += 1) {
        if (taken[last] || lines[last] !== lines[first]) break;
        gain += other[last] - better[last];
        if (gain > most) [best, most] = [{ first, last: last + 1 }, gain];
      }
    }
    if (!best) break;
    found.push(best);
    taken.fill(true, best.first, best.last);
  }
  return found;
}
