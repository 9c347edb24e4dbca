// Elements that views share.

export const byId = (id) => document.getElementById(id);

// An element: properties that begin with "on" are listeners, `class` and `style` are what they say, the rest attributes.
export function el(tag, props = {}, ...children) {
  return fill(document.createElement(tag), props, children);
}

export function svg(tag, props = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), props, children);
}

function fill(element, props, children) {
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [key, one] of Object.entries(value)) element.style.setProperty(key, one);
    else if (name === "value" || name === "checked" || name === "disabled") element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

// The status line, which is read aloud politely.
export function say(message, wrong = false) {
  const line = byId("status");
  line.textContent = message;
  line.classList.toggle("wrong", wrong);
}

// Runs a task and shows what went wrong in the status line; what was stopped on purpose is no error.
export async function attempt(task) {
  try {
    return await task();
  } catch (error) {
    if (error.name !== "AbortError") say(error.message, true);
    return undefined;
  }
}

export function debounced(action, milliseconds) {
  let timer = null;
  return (...values) => {
    clearTimeout(timer);
    timer = setTimeout(() => action(...values), milliseconds);
  };
}

let numbers = 0;
export const newId = (name) => `${name}-${(numbers += 1)}`;

// -- controls ----------------------------------------------------------------------------------------------

export function field(label, control) {
  control.id ||= newId("field");
  return el("div", { class: "field" }, el("label", { for: control.id }, label), control);
}

export function modelPicker(models, chosen, onchange, label = "Model") {
  const select = el("select", { onchange: () => onchange(select.value) });
  for (const model of models) select.append(el("option", { value: model.id }, named(model)));
  if (models.some((model) => model.id === chosen)) select.value = chosen;
  return Object.assign(field(label, select), { select });
}

export function named(model) {
  return model.id === model.kind ? model.id : `${model.id} (${model.kind})`;
}

// Checkboxes for several models.
export function modelChecks(models, chosen, onchange, label = "Models") {
  const boxes = models.map((model) => {
    const box = el("input", { type: "checkbox", value: model.id, checked: chosen.includes(model.id), onchange: () => onchange(values()) });
    return box;
  });
  const values = () => boxes.filter((box) => box.checked).map((box) => box.value);
  const labels = boxes.map((box, i) => el("label", {}, box, named(models[i])));
  return Object.assign(el("fieldset", { class: "checks" }, el("legend", {}, label), labels), { values });
}

// A slider with a number beside it: the same value, by hand or exactly; the number may go further, up to `most`.
export function slider(label, { min, max, step, value, off = null, most = max }, onchange) {
  const range = el("input", { type: "range", min, max, step, value, id: newId("slider") });
  const number = el("input", { type: "number", min, max: most, step, value, "aria-label": `${label}, exactly` });
  const note = el("span", { class: "soft small" });
  const tell = () => { note.textContent = off !== null && Number(range.value) === off ? "off" : ""; };
  range.addEventListener("input", () => { number.value = range.value; tell(); onchange(Number(range.value)); });
  number.addEventListener("input", () => {
    if (number.value === "" || !number.checkValidity()) return;
    range.value = number.value;
    tell();
    onchange(Number(number.value));
  });
  tell();
  return el("div", { class: "slider" }, el("label", { for: range.id }, label, " ", note), el("div", {}, range, number));
}

export function radios(label, name, options, chosen, onchange) {
  const boxes = options.map(([value, text]) =>
    el("label", {}, el("input", { type: "radio", name, value, checked: value === chosen, onchange: () => onchange(value) }), text));
  return el("fieldset", { class: "checks" }, el("legend", {}, label), boxes);
}

// A number of the address, at least `least` and at most `most`; what is no number is the usual one.
export function bounded(value, usual, least, most) {
  const found = value === undefined || value === null || value === "" ? NaN : Number(value);
  return Number.isNaN(found) ? usual : Math.max(least, Math.min(most, found));
}

// -- tokens ------------------------------------------------------------------------------------------------

export const MOST_BITS = 12, MOST_RANK = 1000; // where the colours are deepest

// Colours an element by bits or by rank (0 is the likeliest); an unknown value has no colour.
export function colour(element, by, value, most = by === "rank" ? MOST_RANK : MOST_BITS) {
  const depth = value === null || value === undefined ? 0
    : by === "rank" ? Math.log(1 + value) / Math.log(most) : value / most;
  element.classList.toggle("cold", by === "rank");
  element.style.setProperty("--a", Math.min(Math.max(depth, 0), 1).toFixed(3));
}

export function legend(by, most = by === "rank" ? MOST_RANK : MOST_BITS) {
  const [low, high] = by === "rank" ? ["the likeliest token", `rank ${most.toLocaleString("en")} or more`]
    : ["0 bits: no surprise", `${most} bits or more`];
  return el("p", { class: "legend small soft" }, low, el("i", { class: by === "rank" ? "cold" : "" }), high);
}

// A token's text where white space can be seen: a line end has a sign before it.
export const visible = (text) => text.replaceAll("\n", "↵\n");
// The same on one line, for lists and labels. Other control characters, for which no font has a sign, as their bytes.
export const inline = (text) => (text === "" ? "∅" : text.replaceAll("\n", "↵").replaceAll("\t", "⇥").replace(/^ +| +$/g, (spaces) => "␣".repeat(spaces.length))
  .replace(/[\0-\x1f\x7f]/g, (sign) => `<0x${sign.charCodeAt(0).toString(16).toUpperCase().padStart(2, "0")}>`));

// Marks an item of a list as the one that is told about.
export function select(item, chosen) {
  item.classList.toggle("at", chosen);
  item.setAttribute("aria-selected", String(chosen));
}

// A group of spans of which one is in the tab order; arrow keys move among them.
export function roving(group, onfocus) {
  let at = null;
  const items = () => Array.from(group.querySelectorAll("[data-stop]"));
  const go = (item) => {
    if (!item) return;
    if (at) at.tabIndex = -1;
    at = item;
    at.tabIndex = 0;
    at.focus();
  };
  group.addEventListener("focusin", (event) => {
    const item = event.target.closest("[data-stop]");
    if (!item) return;
    if (at && at !== item) at.tabIndex = -1;
    at = item;
    at.tabIndex = 0;
    onfocus?.(item);
  });
  group.addEventListener("keydown", (event) => {
    if (!event.target.closest("[data-stop]")) return;
    const every = items(), place = every.indexOf(at);
    const moves = { ArrowRight: place + 1, ArrowLeft: place - 1, Home: 0, End: every.length - 1, ArrowDown: null, ArrowUp: null };
    if (!(event.key in moves)) return;
    event.preventDefault();
    go(moves[event.key] === null ? beside(every, at, event.key === "ArrowDown") : every[moves[event.key]]);
  });
  return {
    // after the group has got new items, the first (or the one that had it) is in the tab order
    settle: () => {
      const every = items();
      if (!every.includes(at)) at = every[0] ?? null;
      if (at) at.tabIndex = 0;
    },
    go: (place) => go(items().at(place)),
  };
}

// The item that stands in the next line below or above, nearest to the same place.
function beside(every, from, down) {
  const here = from.getBoundingClientRect();
  let best = null, least = Infinity;
  for (const item of every) {
    const there = item.getBoundingClientRect();
    const below = down ? there.top - here.bottom : here.top - there.bottom;
    if (below < -4) continue;
    const far = below * 100 + Math.abs(there.left - here.left);
    if (far < least) [best, least] = [item, far];
  }
  return best;
}

// -- numbers -----------------------------------------------------------------------------------------------

export const percent = (p) => (p >= 0.9995 ? "100%" : p >= 0.1 ? `${(100 * p).toFixed(1)}%` : p >= 1e-6 ? `${(100 * p).toPrecision(2)}%` : p > 0 ? "<0.0001%" : "0");
export const bitsOf = (logProb) => (logProb <= -9999 ? Infinity : -logProb / Math.LN2);
// What has probability 0 has no bits: the model cannot write it.
export const IMPOSSIBLE = "not possible for this model";
export const shownBits = (bits) => (Number.isFinite(bits) ? `${bits.toFixed(bits < 100 ? 2 : 1)} bits` : IMPOSSIBLE);

// A horizontal bar for a probability: the whole width is 1, so that bars of different lists compare.
export function bar(share, kind = "") {
  return el("span", { class: `bar ${kind}`, style: { "--w": `${(100 * Math.max(0, Math.min(share, 1))).toFixed(2)}%` }, "aria-hidden": "true" });
}

// A list of tokens with bars of their probabilities.
export function bars(tokens, label, marked = null) {
  return el("ol", { class: "next", "aria-label": label }, tokens.map(({ token, probability }) =>
    el("li", { class: token === marked ? "row marked-row" : "row" }, el("span", { class: "name" }, inline(token)), bar(probability), el("span", { class: "figure" }, percent(probability)))));
}

// -- texts and their bytes ---------------------------------------------------------------------------------

const encoder = new TextEncoder();
export const bytesOf = (text) => encoder.encode(text).length;

// The characters of a text before each byte: place[b] is how many of its UTF-16 units begin before byte b.
export function placesOf(text) {
  const place = new Uint32Array(bytesOf(text) + 1);
  let byte = 0, unit = 0;
  for (const character of text) {
    const size = bytesOf(character);
    place[byte] = unit;
    unit += character.length;
    for (let i = 1; i < size; i += 1) place[byte + i] = unit; // inside a character: it belongs to what begins it
    byte += size;
  }
  place[byte] = unit;
  return place;
}

// The parts of a text that its tokens {start, end, ...} stand for; together they are the text. White space that no
// token has goes to the token after it, and a token that shows no character of its own is told with the one before it.
export function piecesOf(text, tokens) {
  const place = placesOf(text), pieces = [];
  let from = 0;
  tokens.forEach((token, i) => {
    const to = Math.max(from, place[Math.min(token.end, place.length - 1)]);
    const last = pieces.at(-1);
    if (to === from && last && token.end > token.start) {
      last.tokens.push(token);
      last.bits = (last.bits ?? 0) + (token.bits ?? 0);
      return;
    }
    pieces.push({ text: text.slice(from, to), before: text.slice(0, from), number: i, tokens: [token], bits: token.bits, rank: token.rank, top: token.top });
    from = to;
  });
  if (from < text.length) {
    if (pieces.length) pieces.at(-1).text += text.slice(from);
    else pieces.push({ text, before: "", number: 0, tokens: [], bits: null, rank: null, top: null });
  }
  return pieces;
}
