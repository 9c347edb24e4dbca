// Inside: what goes on in a model when it predicts one token of a text.
import { load, post } from "../api.js";
import { figure, heatMap, short, table, textOf, thumbnail, tokenStrip, vector } from "../drawing.js";
import { IMPOSSIBLE, bar, bars, el, field, inline, modelPicker, newId, percent, roving, svg } from "../parts.js";

export const title = "Inside";

const EXAMPLE = "the cat saw the dog";
const COUNTED = ["ngram", "anygram", "mixture"]; // kinds without an embedding table
const OPEN = ["generate", "translate"]; // what models do that can be looked into
const VIEW_OF = { fill: "Fill", tag: "Tag" };
const quoted = (token) => `“${inline(token)}”`;
const NEXT = "next"; // the state of the view in which the token after the text is guessed

export async function show(root, params, setParams) {
  const models = await load();
  const usual = models.find((one) => OPEN.includes(one.verb)) ?? models[0];
  const state = {
    model: models.some((one) => one.id === params.model) ? params.model : usual.id,
    text: (params.text || EXAMPLE).slice(0, 2000), token: params.token || "", head: params.head || "", stage: params.stage || "",
  };
  const keep = () => setParams(Object.fromEntries(Object.entries(state).filter(([, value]) => value !== "")));
  const text = el("textarea", { name: "text", rows: 3, maxlength: 2000, spellcheck: "false", value: state.text });
  const found = el("div", { class: "found" }), near = el("div", {});

  let asks = 0;
  async function look() {
    const { kind, verb } = models.find((one) => one.id === state.model);
    if (VIEW_OF[verb]) {
      found.replaceChildren(el("p", { class: "soft" }, `A model of the kind ${kind} shows only the neighbours of a token here; what it answers is in the view `,
        el("a", { href: `#/${verb}?${new URLSearchParams({ model: state.model })}` }, VIEW_OF[verb]), "."));
      return;
    }
    const mine = (asks += 1), asked = { model: state.model, text: state.text };
    if (state.token === NEXT) asked.after = true;
    else if (state.token) asked.token = Number(state.token) || 0;
    found.setAttribute("aria-busy", "true");
    let parts;
    try {
      parts = shown(await post("/v1/inside", asked), state, choose, keep);
    } catch (error) {
      parts = [el("p", { class: "problem", role: "alert" }, error.message)];
    }
    if (mine !== asks) return; // something else was asked meanwhile
    found.replaceChildren(...parts.flat(Infinity).filter(Boolean));
    found.removeAttribute("aria-busy");
  }
  function choose(place, count) {
    state.token = place < count ? String(place + 1) : NEXT;
    keep();
    look().then(() => found.querySelector("[aria-pressed=true]")?.focus());
  }
  const kindOf = () => models.find((one) => one.id === state.model)?.kind;
  const label = () => (kindOf() === "seq2seq" ? "Text to translate" : "Text");
  const nearby = () => near.replaceChildren(...(COUNTED.includes(kindOf()) ? [] : [neighbourSection(state)]));
  const place = field(label(), text);
  function again(event) {
    event?.preventDefault();
    Object.assign(state, { text: text.value, token: "", head: "", stage: "" });
    place.querySelector("label").textContent = label();
    keep();
    look();
    nearby();
  }
  text.addEventListener("keydown", (event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) again(); });
  root.append(
    el("p", { class: "lead" }, "A language model guesses each next token from those before it. Here you see where one guess comes from: what a network looks at and remembers on the way, or what an n-gram model has counted."),
    el("form", { onsubmit: again }, place,
      el("div", { class: "controls" }, modelPicker(models, state.model, (value) => { state.model = value; again(); }), el("button", { class: "main", type: "submit" }, "Look inside"))),
    found, near);
  nearby();
  await look();
}

function shown(answer, state, choose, keep) {
  const notes = (answer.notes ?? []).map((note) => el("p", { class: "small soft" }, `Note: ${note}.`));
  if (answer.family === "translation") return [notes, ofTranslation(answer, state, keep)];
  const sections = { network: ofNetwork, ngram: ofNgram, mixture: ofMixture };
  return [tokensToChoose(answer, choose), prediction(answer), notes, sections[answer.family](answer, state, keep)];
}

function prediction(answer) {
  const p = answer.probability ?? answer.score;
  const name = answer.probability === undefined ? "a score of" : "a probability of";
  const before = textOf(answer.tokens.slice(-8)).trim();
  return el("p", { class: "sentence" }, `After “${answer.tokens.length > 8 ? "… " : ""}${before}” the model gives `, el("b", {}, inline(answer.target)),
    ` ${name} ${figure(p)}: ${p === 0 ? `it is ${IMPOSSIBLE}` : `${figure(answer.bits)} bits of surprise`}.`);
}

function tokensToChoose(answer, choose) {
  const count = answer.text_tokens.length;
  const strip = tokenStrip(answer.text_tokens, { label: "Tokens of the text; choose the one to guess", onChoose: (i) => choose(i, count), chosen: answer.token - 1, more: ["what comes next?"] });
  return el("div", {}, el("p", { class: "small soft" }, "Choose the token to guess:"), strip.group);
}

function section(heading, why, ...content) {
  const id = newId("look");
  return el("section", { class: "look", "aria-labelledby": id }, el("h2", { id }, heading), el("p", { class: "soft" }, why), content);
}

function ramp(low, high, kind = "cold") {
  return el("p", { class: "legend of-map small soft" }, low, el("i", { class: kind, "aria-hidden": "true" }), high);
}

// small weights are raised, so that they are seen at all
const depth = (weight) => (weight === null ? null : Math.sqrt(Math.max(weight, 0)));
const ofWeights = () => ramp("0%", "100% (the middle is 25%)");

// -- networks ----------------------------------------------------------------------------------------------

function ofNetwork(answer, state, keep) {
  if (answer.path) return [theWay(answer, state, keep), gradients(answer)];
  return [
    answer.attention ? section("Attention", "Each small picture is a head: a row for each token that is read, and in it how much the head looks at each earlier token. Choose a head to see it large.",
      headGrid(headsOf(answer.attention), answer.tokens, answer.tokens, state, keep)) : null,
    answer.states.length ? overTime(answer) : null, likely(answer), gradients(answer),
  ];
}

// The way of one token through a Transformer: a picture of all of it, and the part that is chosen in detail.
function theWay(answer, state, keep) {
  const { path, tokens } = answer, blocks = path.blocks.length, last = tokens.at(-1);
  const names = ["Embedding", ...path.blocks.map((_, i) => `Block ${i + 1}`), "Next token"];
  const detail = el("div", { class: "stage" });
  const picture = el("div", { class: "scroll fits way", tabindex: 0, role: "region", "aria-label": "The way of the token through the network" });
  const buttons = names.map((name, i) => el("button", { type: "button", "data-stop": true, tabindex: -1, "aria-pressed": "false", onclick: () => go(i, true) }, name));
  const steps = el("div", { class: "stages", role: "group", "aria-label": "Parts of the network" }, buttons);
  const move = roving(steps);
  const draw = (at) => picture.replaceChildren(wayPicture(answer, at, headAt(answer, state, at), (i) => go(i, true)));
  function go(at, isChosen = false) {
    buttons.forEach((button, i) => {
      button.setAttribute("aria-pressed", String(i === at));
      button.tabIndex = i === at ? 0 : -1;
    });
    draw(at);
    const more = at === 0 ? atEmbedding(answer) : at > blocks ? atOutput(answer) : atBlock(answer, at - 1, state, () => { keep(); draw(at); });
    detail.replaceChildren(...more.flat(Infinity).filter(Boolean));
    if (!isChosen) return;
    state.stage = String(at);
    keep();
  }
  const asked = Number(state.stage || state.head.split(".")[0] || 1);
  go(Number.isInteger(asked) ? Math.max(0, Math.min(blocks + 1, asked)) : 1);
  move.settle();
  queueMicrotask(() => { picture.scrollTop = picture.scrollHeight; });
  return section(`The way of ${quoted(last)}`,
    `Every token has a vector, and each line of the picture is the vector of one token on its way from left to right. In each block the vector of ${quoted(last)} takes something from the tokens that it looks at (attention), then is worked on by itself (feed-forward). Above each part stands what the model would guess if it stopped there.`,
    el("div", { class: "columns" }, el("div", {}, picture, steps), el("div", { class: "side" }, el("h3", {}, "The next token"), expected(answer))), detail);
}

const WAY = { row: 24, column: 128, top: 46 };

function headAt({ path }, state, at) {
  const [block, head] = state.head.split(".").map(Number);
  return block === at && path.blocks[at - 1]?.heads[head - 1] !== undefined ? head - 1 : null;
}

// Tokens downwards, parts of the network to the right; the lines into the last token are as wide as its attention weights.
function wayPicture({ path, tokens, attention }, at, head, choose) {
  const stages = path.blocks.length + 1, rows = tokens.length;
  const left = Math.max(...tokens.map((token) => short(token).length)) * 7.6 + 52;
  const width = left + WAY.column * stages + 24, height = WAY.top + WAY.row * rows + 6;
  const x = (stage) => left + WAY.column * stage, y = (row) => WAY.top + WAY.row * (row + 0.5);
  const parts = [], query = rows - 1;
  for (let stage = 0; stage < stages; stage += 1) {
    const [best] = path.guesses[stage];
    const name = stage ? `block ${stage}` : "embedding";
    parts.push(svg("g", { class: stage === at ? "column at" : "column", onclick: () => choose(stage) },
      svg("title", {}, `${name}: here it would guess ${inline(best.token)}, ${percent(best.probability)}`),
      svg("rect", { x: x(stage) - 34, y: 2, width: WAY.column - 16, height: height - 4, rx: 8 }),
      svg("text", { x: x(stage) + 22, y: 18, "text-anchor": "middle", class: "stage-name" }, name),
      svg("text", { x: x(stage) + 22, y: 36, "text-anchor": "middle", class: "guess" }, `${short(best.token, 8)} ${percent(best.probability)}`)));
  }
  tokens.forEach((token, row) => parts.push(
    svg("text", { x: left - 44, y: y(row) + 4, "text-anchor": "end", class: row === query ? "here" : "" }, short(token)),
    svg("line", { class: row === query ? "stream here" : "stream", x1: left - 36, x2: width - 6, y1: y(row), y2: y(row) })));
  path.blocks.forEach((block, l) => {
    const heads = attention[l].map((one) => one[query]);
    const weights = l + 1 === at && head !== null ? heads[head] : heads[0].map((_, key) => heads.reduce((sum, one) => sum + one[key], 0) / heads.length);
    weights.forEach((weight, key) => {
      if (weight < 0.004) return;
      const [x0, x1] = [x(l) + 30, x(l + 1) - 4];
      parts.push(svg("path", {
        class: l + 1 === at ? "look at" : "look", d: `M${x0} ${y(key)}C${x0 + 40} ${y(key)} ${x1 - 46} ${y(query)} ${x1} ${y(query)}`,
        "stroke-width": (0.6 + 7 * weight).toFixed(2), "stroke-opacity": (0.15 + 0.75 * weight).toFixed(3),
      }, svg("title", {}, `block ${l + 1}: ${quoted(tokens[query])} looks at ${quoted(tokens[key])}, ${percent(weight)}`)));
    });
  });
  for (let stage = 0; stage < stages; stage += 1) tokens.forEach((_, row) => parts.push(svg("circle", { class: row === query ? "here" : "", cx: x(stage), cy: y(row), r: row === query ? 6 : 2.5 })));
  return svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${rows} tokens through ${stages - 1} blocks; what the last one looks at, block by block` }, parts);
}

function atEmbedding({ path, tokens }) {
  const name = quoted(tokens.at(-1));
  return [
    el("h3", {}, "Embedding"),
    el("p", { class: "soft" }, `The network has a vector for each token of its vocabulary. It begins with that of ${name}${path.position ? `, and adds one for the place of ${name} in the text` : ""}.`),
    vector(`the vector of ${name}`, path.embedding),
    path.position ? vector(`the vector of place ${tokens.length}`, path.position) : null,
    path.position || path.embedding.join() !== path.first.join() ? vector("what goes into block 1", path.first) : null,
    guessHere(path, 0),
  ];
}

const guessHere = (path, stage) => [el("h4", {}, "What it would guess here"), el("div", { class: "half" }, bars(path.guesses[stage], "What it would guess here"))];

function atBlock(answer, l, state, keep) {
  const { path, tokens, attention } = answer, block = path.blocks[l], name = quoted(tokens.at(-1));
  const before = l ? path.blocks[l - 1].out : path.first;
  const most = Math.max(...block.hidden.units.map(({ value }) => Math.abs(value)), 1e-9);
  const units = block.hidden.units.map(({ unit, value }) => el("li", { class: "row" }, el("span", { class: "name" }, `unit ${unit + 1}`), bar(Math.abs(value) / most, value < 0 ? "below" : ""), el("span", { class: "figure" }, figure(value))));
  const heads = attention[l].map((weights, h) => ({ name: `${l + 1}.${h + 1}`, l, h, weights, adds: block.heads[h] }));
  return [
    el("h3", {}, `Block ${l + 1}`), vector("the vector before the block", before),
    el("h4", {}, "Attention"),
    el("p", { class: "soft" }, `Each head makes of the vector a query, a key and a value. It compares the query of ${name} with the keys of all tokens so far, and takes a mean of their values, with more weight where they agree. The number below a head is the length of what it adds.`),
    headGrid(heads, tokens, tokens, state, keep, (head) => ofHead(head, block, tokens)),
    vector("what attention adds", block.attention), vector("the vector after attention", block.middle),
    el("h4", {}, "Feed-forward"),
    el("p", { class: "soft" }, `The vector goes by itself through ${block.hidden.count.toLocaleString("en")} hidden units, of which ${block.hidden.above.toLocaleString("en")} are above 0. These are the largest:`),
    el("ol", { class: "next many", "aria-label": "The largest hidden units" }, units),
    vector("what the feed-forward part adds", block.feedforward), vector("the vector after the block", block.out),
    guessHere(path, l + 1),
  ];
}

// The numbers by which one head looks at tokens.
function ofHead(head, block, tokens) {
  const scores = block.scores[head.h], weights = head.weights.at(-1);
  const rows = tokens.map((token, key) => [inline(token), figure(scores[key]), percent(weights[key]), bar(weights[key])]);
  return [
    ["query", "key", "value"].map((part) => vector(`${part} of ${quoted(tokens.at(-1))}`, block[part][head.h])),
    el("details", {}, el("summary", {}, `Scores and weights of ${tokens.length} tokens`),
      table("score = query · key / √d (with a bias for the distance, if the design has one); weight = e^score / Σ e^score", ["token", "score", "weight", ""], rows)),
  ];
}

// The most likely tokens, and the one that is guessed if it is not among them.
function expected({ likely, target, probability, score }) {
  const tokens = likely.map((one) => ({ token: one.token, probability: one.probability ?? one.score }));
  if (!tokens.some((one) => one.token === target)) tokens.push({ token: target, probability: probability ?? score });
  return bars(tokens, "The most likely tokens", target);
}

function atOutput({ path }) {
  return [
    el("h3", {}, "Next token"),
    el("p", { class: "soft" }, "The last vector is compared with a vector for each token of the vocabulary. Softmax turns these scores into probabilities, which sum to one."),
    vector("the last vector", path.blocks.at(-1).out),
    el("h4", {}, "How the guess was made"),
    table("The best guess, and the probability of it, if the model stopped there", ["after", "guess", "p"],
      path.guesses.map(([best], stage) => [stage ? `block ${stage}` : "the embedding", inline(best.token), percent(best.probability)])),
  ];
}

const headsOf = (attention) => attention.flatMap((layer, l) => layer.map((weights, h) => ({ name: `${l + 1}.${h + 1}`, l, h, weights })));

/** Small pictures of heads, and the chosen one large, with `more` about it. */
function headGrid(heads, rows, columns, state, keep, more = () => []) {
  const large = el("div", {});
  const buttons = heads.map((head, i) => el("button", { type: "button", "data-stop": true, tabindex: -1, "aria-pressed": "false", "aria-label": `layer ${head.l + 1}, head ${head.h + 1}`, onclick: () => choose(i) },
    thumbnail(head.weights, columns.length), el("span", { "aria-hidden": "true" }, `head ${head.name}`), head.adds === undefined ? null : el("span", { class: "soft", "aria-hidden": "true" }, figure(head.adds))));
  const enlarge = (i) => {
    buttons.forEach((button, j) => button.setAttribute("aria-pressed", String(i === j)));
    large.replaceChildren(...[enlarged(heads[i], rows, columns), more(heads[i])].flat(Infinity));
  };
  const choose = (i) => {
    state.head = heads[i].name;
    enlarge(i);
    keep();
  };
  const grid = el("div", { class: "heads", role: "group", "aria-label": "Heads" }, buttons);
  roving(grid).settle();
  const first = Math.max(0, heads.findIndex((head) => head.name === state.head));
  buttons.forEach((button, i) => { button.tabIndex = i === first ? 0 : -1; });
  enlarge(first);
  return [heads.length > 1 ? grid : null, large];
}

function enlarged(head, rows, columns) {
  const name = `Layer ${head.l + 1}, head ${head.h + 1}`;
  const weight = (r, c) => head.weights[r][c] ?? null;
  const isText = rows === columns;
  const best = (r) => head.weights[r].map((one, c) => [one, c]).sort((a, b) => b[0] - a[0]).slice(0, 4).filter(([one]) => one > 0);
  const says = (r) => `${quoted(rows[r])} looks at ${best(r).map(([one, c]) => `${quoted(columns[c])} ${percent(one)}`).join(", ")}`;
  const strip = tokenStrip(columns, {
    label: isText ? `${name}: tokens; the one in focus shows what it looks at` : `${name}: tokens of the source`,
    onLook: isText ? (i) => map.show(i, i) : undefined,
  });
  const readout = el("output", { class: "readout says", "aria-live": "polite" });
  const map = heatMap({
    rows, columns, level: (r, c) => depth(weight(r, c)),
    caption: `${name}: a row for each ${isText ? "token" : "token that is written"}, a column for each token that it looks at.`,
    describe: (r, c) => `${quoted(rows[r])} → ${quoted(columns[c])}: ${percent(weight(r, c) ?? 0)}`,
    start: [rows.length - 1, 0],
    onCell: (r) => {
      strip.shade(head.weights[r].map(depth));
      strip.items.forEach((item, i) => item.classList.toggle("here", isText && i === r));
      readout.textContent = says(r);
    },
  });
  map.show(rows.length - 1, best(rows.length - 1)[0]?.[1] ?? 0);
  const how = isText ? "Point at a token, or reach it by Tab and the arrow keys, to see what it looks at:" : "What the row in the map looks at:";
  return [el("h4", {}, name), el("p", { class: "small soft" }, how), strip.group, readout, el("details", { open: columns.length <= 24 }, el("summary", {}, "All tokens at once"), map.figure, ofWeights())];
}

// -- recurrent networks ------------------------------------------------------------------------------------

const MEANINGS = {
  input: "how much of the new is let in", forget: "how much of the memory is kept", output: "how much of the memory is shown",
  candidate: "what is new, between -1 and 1", reset: "how much of the state the new is made from", update: "how much of the state is kept",
  c: "the memory", h: "the state that the network shows",
};

// How the gates and states of a layer change from token to token: the mean of all units, or one of them with its arithmetic.
function overTime(answer) {
  const layers = 1 + Math.max(...answer.states.map((one) => one.layer));
  const parts = Array.from({ length: layers }, (_, layer) => {
    const lines = [...answer.gates.map((one) => ({ ...one, name: one.gate })), ...answer.states.map((one) => ({ ...one, name: one.state }))].filter((one) => one.layer === layer);
    const select = el("select", { onchange: () => draw() }, el("option", { value: "" }, "mean of all units"),
      lines[0].units.map(({ unit }) => el("option", { value: unit }, `unit ${unit + 1}`)));
    const place = el("div", {}), sum = el("output", { class: "readout equation", "aria-live": "polite" });
    function draw() {
      const unit = select.value === "" ? null : Number(select.value);
      const values = Object.fromEntries(lines.map((one) => [one.name, unit === null ? one.mean : one.units.find((other) => other.unit === unit).values]));
      const most = Object.fromEntries(lines.map((one) => [one.name, one.range ? 1 : Math.max(...values[one.name].map(Math.abs), 1e-9)]));
      const map = heatMap({
        rows: lines.map((one) => one.name), columns: answer.tokens,
        level: (r, c) => values[lines[r].name][c] / most[lines[r].name],
        caption: `Layer ${layer + 1}, ${unit === null ? "mean of all units" : `unit ${unit + 1}`}, while the text is read.`,
        describe: (r, c) => `${lines[r].gate ? `${lines[r].gate} gate` : `state ${lines[r].name}`}, ${unit === null ? "mean of all units" : `unit ${unit + 1}`}, at ${quoted(answer.tokens[c])}: ${values[lines[r].name][c]} (${MEANINGS[lines[r].name]})`,
        start: [0, answer.tokens.length - 1],
        onCell: (_, c) => { sum.textContent = unit === null ? "" : arithmetic(values, c); },
      });
      sum.textContent = "";
      place.replaceChildren(map.figure);
      map.show(0, answer.tokens.length - 1);
    }
    draw();
    return el("section", {}, layers > 1 ? el("h3", {}, `Layer ${layer + 1}`) : null, el("div", { class: "controls" }, field("Show", select)), place, sum);
  });
  const why = answer.gates.length
    ? "Gates are small valves between 0 (shut) and 1 (open), a value for each unit: they decide at each token what is remembered. Choose a unit to see its arithmetic; the units that change most are offered."
    : "The state is what the network remembers: a value for each unit, new at each token. The units that change most are offered.";
  return section(answer.gates.length ? "Gates" : "States", why, parts, ramp("-1, or the lowest state", "1, or the highest", "two flipped"));
}

// One step of one unit, with its numbers; nothing at the first token, which has no state before it that is shown.
function arithmetic({ input, forget, output, candidate, update, c, h }, t) {
  const shown = (value) => (value < 0 ? `(${figure(value)})` : figure(value));
  if (t === 0) return "";
  if (c && !input) {
    return `c = forget · c before + (1 - forget) · candidate = ${shown(forget[t])} · ${shown(c[t - 1])} + ${shown(1 - forget[t])} · ${shown(candidate[t])} = ${figure(c[t])};  h = output · c = ${shown(output[t])} · ${shown(c[t])} = ${figure(h[t])}`;
  }
  if (c) {
    return `c = forget · c before + input · candidate = ${shown(forget[t])} · ${shown(c[t - 1])} + ${shown(input[t])} · ${shown(candidate[t])} = ${figure(c[t])};  h = output · tanh(c) = ${shown(output[t])} · ${shown(Math.tanh(c[t]))} = ${figure(h[t])}`;
  }
  if (!update) return "";
  return `h = (1 - update) · candidate + update · h before = ${shown(1 - update[t])} · ${shown(candidate[t])} + ${shown(update[t])} · ${shown(h[t - 1])} = ${figure(h[t])}`;
}

function gradients(answer) {
  const rows = Object.entries(answer.gradients).flatMap(([name, values]) =>
    name === "embedding" ? [{ name: "token", values }] : values.map((one, layer) => ({ name: `${name}, layer ${layer + 1}`, values: one })));
  const every = rows.flatMap((row) => row.values).filter((value) => value > 0);
  const low = Math.log10(Math.min(...every, 1)), high = Math.log10(Math.max(...every, 1e-30));
  const level = (value) => (value > 0 ? (high > low ? 0.08 + (0.92 * (Math.log10(value) - low)) / (high - low) : 1) : 0);
  const strip = tokenStrip(answer.tokens, { label: "Tokens that were read; those in a stronger colour matter more" });
  const most = Math.max(...answer.gradients.embedding, 1e-30);
  strip.shade(answer.gradients.embedding.map((value) => value / most));
  const map = heatMap({
    rows: rows.map((row) => row.name), columns: answer.tokens,
    level: (r, c) => level(rows[r].values[c]),
    caption: "Size of the gradient, by a logarithmic scale.",
    describe: (r, c) => `${rows[r].name} at ${quoted(answer.tokens[c])}: gradient ${figure(rows[r].values[c])}`,
  });
  return section("What the guess depends on",
    `How much the guess would change if a token${rows.length > 1 ? ", or the network's memory after it," : ""} were a little different. Where the colour fades to the left, early words are forgotten.`,
    strip.group, map.figure, every.length ? ramp(figure(10 ** low), figure(10 ** high)) : null);
}

// -- n-grams -----------------------------------------------------------------------------------------------

const contextName = (context) => (context === null ? "every token alike" : context.length ? textOf(context).trim() || context.map(inline).join("") : "(no context)");

function ofNgram(answer) {
  const letter = answer.is_probability ? "p" : "S";
  const mixes = "share" in answer.contexts[0];
  const facts = (items) => el("div", { class: "facts" }, items.filter(Boolean).map((one) => el("span", {}, one)));
  const steps = answer.contexts.flatMap((line, i) => {
    const isLast = i === answer.contexts.length - 1;
    const counts = [
      line.count !== null && line.count !== undefined ? `counted ${line.count.toLocaleString("en")}` + (line.total ? ` of ${line.total.toLocaleString("en")}` : "") : "",
      line.types ? `followed by ${line.types === 1 ? "one token only" : `${line.types.toLocaleString("en")} different tokens`}` : "",
    ];
    const own = mixes
      ? [`its own part ${figure(line.own, 4)}`, `adds ${figure(line.share, 4)}`]
      : [line.stored === null ? "" : `stored ${letter} = ${figure(line.stored, 4)}`];
    const seen = mixes || line.seen;
    const verdict = mixes ? "" : !line.seen ? "never seen in training" : line.stored === null ? `seen, but never followed by ${quoted(answer.target)}` : `seen, followed by ${quoted(answer.target)}`;
    const card = el("li", { class: `${seen ? "seen" : "unseen"}${isLast ? " last" : ""}` },
      el("div", { class: "ctx" }, contextName(line.context), " → ", inline(answer.target)),
      facts([verdict, ...counts, ...own, `${letter} from here down: ${figure(line.probability, 4)}`]));
    if (isLast) return [card];
    const weight = mixes ? `the shorter context counts with weight ${figure(line.weight, 4)}` : `back off to a shorter context: × ${figure(line.weight, 4)}`;
    return [card, el("li", { class: "down" }, el("span", { "aria-hidden": "true" }, "↓ "), weight)];
  });
  const parts = [
    section(mixes ? "The contexts that are mixed" : "The contexts that were tried",
      mixes ? "Every context that was seen in training says something; longer ones count more. The parts add up to the probability."
        : "The longest context comes first. Where the model has not seen the token after it, it forgets the oldest word and pays a weight for that.",
      el("ol", { class: "ladder" }, steps), el("p", { class: "equation" }, answer.equation)),
  ];
  if (answer.terms?.length) {
    const rows = answer.terms.map((term) => [
      contextName(term.context), ...[term.count, term.total, term.discount].map((one) => figure(one)),
      ...[term.own, term.weight, term.lower, term.probability].map((one) => figure(one, 4)),
    ]);
    parts.push(section("The stored probability is itself a sum", "What the context's own counts give, less a discount, and a share of what the shorter context says.",
      table("p = own + γ · p of the shorter context", ["context", "count", "of", "discount", "own", "γ", "shorter", "p"], rows)));
  }
  parts.push(el("details", {}, el("summary", {}, "As lines of text"), answer.lines.map((line) => el("p", { class: "equation" }, line))));
  return [...parts, likely(answer)];
}

function likely(answer) {
  return section("What it expected most", "The tokens with the highest probability at this place.", el("div", { class: "half" }, expected(answer)));
}

// -- mixtures ----------------------------------------------------------------------------------------------

function ofMixture(answer) {
  const linear = answer.form === "linear";
  const total = answer.parts.reduce((sum, part) => sum + part.share, 0) || 1;
  const rows = answer.parts.map((part) => [
    part.name, figure(part.weight, 4), figure(part.probability, 4), figure(part.share, 4), linear ? bar(part.share / total) : "",
  ]);
  const by = answer.value === null ? "The weights are the same everywhere." : `The weights depend on the ${answer.by} of the context, here ${figure(answer.value)}.`;
  return [
    section("The models of the mixture", `Each model gives the token a probability of its own; the weights say how much each of them is believed. ${by}`,
      table(linear ? "weight × p, added up; the bar is the part of the sum" : "p to the power of the exponent, multiplied",
        ["model", linear ? "weight" : "exponent", "p", linear ? "adds" : "factor", ""], rows),
      el("p", { class: "equation" }, answer.equation)),
    likely(answer),
  ];
}

// -- encoder-decoders --------------------------------------------------------------------------------------

function ofTranslation(answer, state, keep) {
  const { source, target, weights } = answer;
  const map = heatMap({
    rows: target, columns: source,
    level: (r, c) => depth(weights[r][c]),
    caption: "A row for each token that is written, a column for each token of the source.",
    describe: (r, c) => `when ${quoted(target[r])} was written, ${quoted(source[c])} had ${(100 * weights[r][c]).toFixed(1)} % of the attention`,
  });
  const parts = [
    el("p", { class: "sentence" }, "It writes: ", el("b", {}, answer.text || "(nothing)")),
    section("Where in the source it looks", "For each token that it writes, the model looks back at the source; the stronger the colour of a cell, the more it looks there.", map.figure, ofWeights()),
  ];
  if (answer.attention.flat().length > 1) {
    parts.push(section("Each head by itself", "What is above is their mean in one layer.", headGrid(headsOf(answer.attention), target, source, state, keep)));
  }
  return parts;
}

// -- neighbours --------------------------------------------------------------------------------------------

function neighbourSection(state) {
  const token = el("input", { type: "text", name: "token", maxlength: 200, autocomplete: "off", spellcheck: "false", value: "the" });
  const found = el("div", { "aria-live": "polite" });
  async function ask(event) {
    event.preventDefault();
    try {
      const answer = await post("/v1/neighbours", { model: state.model, token: token.value, top: 12 });
      const items = answer.data.map((one) => el("li", { class: "row" }, el("span", { class: "name" }, inline(one.token)), bar(one.similarity), el("span", { class: "figure" }, one.similarity.toFixed(3))));
      found.replaceChildren(el("p", { class: "small soft" }, `Nearest to ${quoted(answer.token)}, by cosine:`), el("ol", { class: "next half" }, items));
    } catch (error) {
      found.replaceChildren(el("p", { class: "problem", role: "alert" }, error.message));
    }
  }
  return section("Neighbours", "A network has a vector of numbers for each token. Tokens that it uses alike have vectors that point the same way.",
    el("form", { class: "controls", onsubmit: ask }, field("Token", token), el("button", { type: "submit" }, "Find neighbours")), found);
}
