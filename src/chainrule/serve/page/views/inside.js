// Inside: what goes on in a model when it predicts one token of a text.

import { get, post } from "../api.js";
import { addStyle, bar, figure, heatMap, html, newId, roving, table, textOf, thumbnail, tokenStrip, visible } from "../drawing.js";
import { named } from "../parts.js";

export const title = "Inside";
export const needs = null;

const EXAMPLE = "the cat saw the dog";
const COUNTED = ["ngram", "anygram", "mixture"]; // kinds without an embedding table
const quoted = (token) => `“${visible(token)}”`;

/** Shows the view in `root`; `params` are those of the address, and `setParams` changes them. */
export async function show(root, params, setParams) {
  addStyle();
  const given = (name) => (typeof params?.get === "function" ? params.get(name) : params?.[name]) ?? "";
  const models = (await get("/v1/models")).data;
  const model = html("select", { name: "model" }, models.map((one) => html("option", { value: one.id }, named(one))));
  const text = html("textarea", { name: "text", maxlength: "2000", spellcheck: "false" });
  text.value = given("text") || EXAMPLE;
  if (models.some((one) => one.id === given("model"))) model.value = given("model");
  const found = html("div", { class: "found" });
  const near = html("div", {});
  const state = { token: given("token") || "", head: given("head") || "" };

  const keep = () => setParams?.({ model: model.value, text: text.value, token: state.token, head: state.head });
  let asks = 0;
  const look = async () => {
    const mine = (asks += 1);
    const asked = { model: model.value, text: text.value };
    if (state.token) asked.token = Number(state.token);
    found.setAttribute("aria-busy", "true");
    try {
      const answer = await post("/v1/inside", asked);
      if (mine !== asks) return; // something else was asked meanwhile
      if (answer) found.replaceChildren(...shown(answer, state, choose, keep));
    } catch (error) {
      if (mine === asks) found.replaceChildren(html("p", { class: "problem", role: "alert" }, error.message));
    }
    if (mine === asks) found.removeAttribute("aria-busy");
  };
  const choose = (place) => {
    state.token = String(place + 1);
    keep();
    look().then(() => found.querySelector("[aria-pressed=true]")?.focus());
  };
  const kindOf = () => models.find((one) => one.id === model.value)?.kind;
  const label = html("span", {});
  const nameText = () => {
    label.textContent =
      kindOf() === "seq2seq" ? "Text to translate" : "Text (its last token is guessed, until you choose another one)";
  };
  const nearby = () => near.replaceChildren(...(COUNTED.includes(kindOf()) ? [] : [neighbourSection(model)]));
  const again = (event) => {
    event?.preventDefault();
    state.token = state.head = "";
    keep();
    nameText();
    look();
    nearby();
  };
  model.addEventListener("change", again);

  root.replaceChildren(
    html(
      "section",
      { class: "look" },
      html("h1", {}, title),
      html(
        "p",
        { class: "why" },
        "A language model guesses each next token from those before it. Here you see where one guess comes from: " +
          "which words a network looks at and remembers, or what an n-gram model has counted.",
      ),
      html(
        "form",
        { onsubmit: again },
        html("div", { class: "row" }, html("label", {}, "Model", model)),
        html("label", {}, label, text),
        html("div", { class: "row" }, html("button", { class: "go", type: "submit" }, "Look inside")),
      ),
      found,
      near,
    ),
  );
  nameText();
  nearby();
  await look();
}

function shown(answer, state, choose, keep) {
  const parts = answer.family === "translation" ? [] : [prediction(answer), tokensToChoose(answer, choose)];
  parts.push(...(answer.notes ?? []).map((note) => html("p", { class: "note" }, `Note: ${note}.`)));
  const sections = { network: ofNetwork, ngram: ofNgram, mixture: ofMixture, translation: ofTranslation };
  return [...parts, ...sections[answer.family](answer, state, keep)];
}

function prediction(answer) {
  const p = answer.probability ?? answer.score;
  const name = answer.probability === undefined ? "a score of" : "a probability of";
  const before = textOf(answer.tokens.slice(-8)).trim();
  return html(
    "p",
    { class: "sentence" },
    `After “${answer.tokens.length > 8 ? "… " : ""}${before}” the model gives `, html("b", {}, visible(answer.target)),
    ` ${name} ${figure(p)}: ${figure(answer.bits)} bits of surprise.`,
  );
}

function tokensToChoose(answer, choose) {
  const strip = tokenStrip(answer.text_tokens, { label: "Tokens of the text; choose the one to guess", onChoose: choose, chosen: answer.token - 1 });
  return html("div", {}, html("p", { class: "note" }, "Choose the token to guess:"), strip.group);
}

function legend(low, high, signed = false) {
  const ramp = html("span", { class: signed ? "ramp signed" : "ramp", "aria-hidden": "true" });
  return html("p", { class: "legend" }, low, ramp, high);
}

// small weights are raised, so that they are seen at all
const depth = (weight) => (weight === null ? null : Math.sqrt(Math.max(weight, 0)));
const ofWeights = () => html("p", { class: "legend" }, "0 %", html("span", { class: "ramp", "aria-hidden": "true" }), "100 % (the middle is 25 %)");

function section(heading, why, ...content) {
  const id = newId("look");
  return html("section", { "aria-labelledby": id }, html("h2", { id }, heading), html("p", { class: "why" }, why), content);
}

// -- networks ----------------------------------------------------------------------------------------------

function ofNetwork(answer, state, keep) {
  const parts = [];
  if (answer.attention) {
    parts.push(
      section(
        "Attention",
        "Each small picture is a head: a row for each token that is read, and in it how much the head looks at each earlier token. " +
          "Choose a head to see it large.",
        headGrid(answer.attention, answer.tokens, answer.tokens, state, keep),
      ),
    );
  }
  if (answer.gates.length) parts.push(gates(answer));
  parts.push(gradients(answer));
  return parts;
}

/** Small pictures of all heads, and the chosen one large. */
function headGrid(attention, rows, columns, state, keep) {
  const large = html("div", { "aria-live": "off" });
  const heads = attention.flatMap((layer, l) => layer.map((weights, h) => ({ name: `${l + 1}.${h + 1}`, l, h, weights })));
  const buttons = heads.map((head) =>
    html(
      "button",
      { type: "button", "aria-pressed": "false", "aria-label": `layer ${head.l + 1}, head ${head.h + 1}` },
      thumbnail(head.weights, columns.length),
      html("span", { "aria-hidden": "true" }, `layer ${head.l + 1}, head ${head.h + 1}`),
    ),
  );
  const enlarge = (i) => {
    buttons.forEach((button, j) => button.setAttribute("aria-pressed", String(i === j)));
    large.replaceChildren(...enlarged(heads[i], rows, columns));
  };
  buttons.forEach((button, i) =>
    button.addEventListener("click", () => {
      enlarge(i);
      state.head = heads[i].name;
      keep();
    }),
  );
  const grid = html("div", { class: "heads", role: "group", "aria-label": "Heads by layer" }, buttons);
  const reach = roving(grid, buttons);
  const first = Math.max(0, heads.findIndex((head) => head.name === state.head));
  reach(first);
  enlarge(first);
  return [heads.length > 1 ? grid : null, large];
}

function enlarged(head, rows, columns) {
  const name = `Layer ${head.l + 1}, head ${head.h + 1}`;
  const weight = (r, c) => head.weights[r][c] ?? null;
  const isText = rows === columns;
  const best = (r) =>
    head.weights[r].map((one, c) => [one, c]).sort((a, b) => b[0] - a[0]).slice(0, 4).filter(([one]) => one > 0);
  const says = (r) => `${quoted(rows[r])} looks at ${best(r).map(([one, c]) => `${quoted(columns[c])} ${(100 * one).toFixed(1)} %`).join(", ")}`;
  const strip = tokenStrip(columns, {
    label: isText ? `${name}: tokens; the one in focus shows what it looks at` : `${name}: tokens of the source`,
    onLook: isText ? (i) => map.show(i, i) : undefined,
  });
  const readout = html("output", { class: "readout", "aria-live": "polite" });
  const map = heatMap({
    rows, columns, level: (r, c) => depth(weight(r, c)),
    caption: `${name}: a row for each ${isText ? "token" : "token that is written"}, a column for each token that it looks at.`,
    describe: (r, c) => `${quoted(rows[r])} → ${quoted(columns[c])}: ${(100 * (weight(r, c) ?? 0)).toFixed(2)} %`,
    start: [rows.length - 1, 0],
    onCell: (r) => {
      strip.shade(head.weights[r].map(depth));
      strip.items.forEach((item, i) => item.classList.toggle("here", isText && i === r));
      readout.textContent = says(r);
    },
  });
  map.show(rows.length - 1, best(rows.length - 1)[0]?.[1] ?? 0);
  const how = isText ? "Point at a token, or reach it by Tab and the arrow keys, to see what it looks at:" : "What the row in the map looks at:";
  return [html("h3", {}, name), html("p", { class: "note" }, how), strip.group, readout, map.figure, ofWeights()];
}

const MEANINGS = {
  input: "how much of the new is let in", forget: "how much of the memory is kept", output: "how much of the memory is shown",
  candidate: "what is new, between -1 and 1", reset: "how much of the state the new is made from", update: "how much of the state is kept",
};

function gates(answer) {
  const id = newId("units");
  const units = html("input", { type: "checkbox", id });
  const place = html("div", {});
  const draw = () => {
    const rows = answer.gates.flatMap((gate) => [
      { name: `${gate.gate}, layer ${gate.layer + 1}`, gate, values: gate.mean, of: "mean of all units" },
      ...(units.checked ? gate.units.map((unit) => ({ name: `unit ${unit.unit}`, gate, values: unit.values, of: `unit ${unit.unit}` })) : []),
    ]);
    const map = heatMap({
      rows: rows.map((row) => row.name),
      columns: answer.tokens,
      level: (r, c) => rows[r].values[c],
      caption: "Gates while the text is read, token by token.",
      describe: (r, c) => {
        const { gate, of, values } = rows[r];
        const meaning = MEANINGS[gate.gate];
        return `${gate.gate} gate, layer ${gate.layer + 1}, ${of}, at ${quoted(answer.tokens[c])}: ${values[c]}${meaning ? ` (${meaning})` : ""}`;
      },
    });
    place.replaceChildren(map.figure, legend("-1", "1", true));
  };
  units.addEventListener("change", draw);
  draw();
  return section(
    "Gates",
    "Gates are small valves of the network, between 0 (shut) and 1 (open): they decide at each token what is remembered.",
    html("label", { class: "row" }, html("span", {}, units, " also the units that change most")),
    place,
  );
}

function gradients(answer) {
  const rows = Object.entries(answer.gradients).flatMap(([name, values]) =>
    name === "embedding" ? [{ name: "token", values }] : values.map((one, layer) => ({ name: `${name}, layer ${layer + 1}`, values: one })),
  );
  const every = rows.flatMap((row) => row.values).filter((value) => value > 0);
  const low = Math.log10(Math.min(...every, 1)), high = Math.log10(Math.max(...every, 1e-30));
  const level = (value) => (value > 0 ? (high > low ? 0.08 + (0.92 * (Math.log10(value) - low)) / (high - low) : 1) : 0);
  const strip = tokenStrip(answer.tokens, { label: "Tokens that were read; darker ones matter more" });
  const most = Math.max(...answer.gradients.embedding, 1e-30);
  strip.shade(answer.gradients.embedding.map((value) => value / most));
  const map = heatMap({
    rows: rows.map((row) => row.name),
    columns: answer.tokens,
    level: (r, c) => level(rows[r].values[c]),
    caption: "Size of the gradient, by a logarithmic scale.",
    describe: (r, c) => `${rows[r].name} at ${quoted(answer.tokens[c])}: gradient ${figure(rows[r].values[c])}`,
  });
  return section(
    "What the guess depends on",
    `How much the guess would change if a token, or the network's memory after it, were a little different. ` +
      `Where it fades to the left, early words are forgotten.`,
    strip.group, map.figure, every.length ? legend(figure(10 ** low), figure(10 ** high)) : null,
  );
}

// -- n-grams -----------------------------------------------------------------------------------------------

const contextName = (context) =>
  context === null ? "every token alike" : context.length ? context.map((token) => visible(token)).join(" ") : "(no context)";

function ofNgram(answer) {
  const letter = answer.is_probability ? "p" : "S";
  const mixes = "share" in answer.contexts[0];
  const facts = (items) => html("div", { class: "facts" }, items.filter(Boolean).map((one) => html("span", {}, one)));
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
    const card = html(
      "li",
      { class: `${seen ? "seen" : "unseen"}${isLast ? " last" : ""}` },
      html("div", { class: "ctx" }, contextName(line.context), " → ", visible(answer.target)),
      facts([verdict, ...counts, ...own, `${letter} from here down: ${figure(line.probability, 4)}`]),
    );
    if (isLast) return [card];
    const weight = mixes ? `the shorter context counts with weight ${figure(line.weight, 4)}` : `back off to a shorter context: × ${figure(line.weight, 4)}`;
    return [card, html("li", { class: "down" }, html("span", { "aria-hidden": "true" }, "↓ "), weight)];
  });
  const parts = [
    section(
      mixes ? "The contexts that are mixed" : "The contexts that were tried",
      mixes
        ? "Every context that was seen in training says something; longer ones count more. The parts add up to the probability."
        : "The longest context comes first. Where the model has not seen the token after it, it forgets the oldest word and pays a weight for that.",
      html("ol", { class: "ladder" }, steps),
      html("p", { class: "equation" }, answer.equation),
    ),
  ];
  if (answer.terms?.length) {
    const rows = answer.terms.map((term) => [
      contextName(term.context), ...[term.count, term.total, term.discount].map((one) => figure(one)),
      ...[term.own, term.weight, term.lower, term.probability].map((one) => figure(one, 4)),
    ]);
    parts.push(
      section(
        "The stored probability is itself a sum",
        "What the context's own counts give, less a discount, and a share of what the shorter context says.",
        table("p = own + γ · p of the shorter context", ["context", "count", "of", "discount", "own", "γ", "shorter", "p"], rows),
      ),
    );
  }
  parts.push(html("details", {}, html("summary", {}, "As lines of text"), answer.lines.map((line) => html("p", { class: "equation" }, line))));
  return [...parts, likely(answer)];
}

function likely(answer) {
  const most = Math.max(...answer.likely.map((one) => one.probability ?? one.score), 1e-30);
  const items = answer.likely.map((one) => {
    const p = one.probability ?? one.score;
    return html("li", {}, html("span", {}, visible(one.token)), html("span", {}, figure(p)), bar(p / most));
  });
  return section("What it expected most", "The tokens with the highest probability at this place.", html("ul", { class: "list" }, items));
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
    section(
      "The models of the mixture",
      `Each model gives the token a probability of its own; the weights say how much each of them is believed. ${by}`,
      table(
        linear ? "weight × p, added up" : "p to the power of the exponent, multiplied",
        ["model", linear ? "weight" : "exponent", "p", linear ? "adds" : "factor", ""], rows,
      ),
      html("p", { class: "equation" }, answer.equation),
    ),
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
    html("p", { class: "sentence" }, "It writes: ", html("b", {}, answer.text || "(nothing)")),
    section(
      "Where in the source it looks",
      "For each token that it writes, the model looks back at the source; the darker a cell, the more it looks there.",
      map.figure, ofWeights(),
    ),
  ];
  if (answer.attention.flat().length > 1) {
    parts.push(section("Each head by itself", "What is above is their mean in one layer.", headGrid(answer.attention, target, source, state, keep)));
  }
  return parts;
}

// -- neighbours --------------------------------------------------------------------------------------------

function neighbourSection(model) {
  const token = html("input", { name: "token", maxlength: "200", autocomplete: "off", spellcheck: "false" });
  token.value = "the";
  const found = html("div", { "aria-live": "polite" });
  const ask = async (event) => {
    event.preventDefault();
    try {
      const answer = await post("/v1/neighbours", { model: model.value, token: token.value, top: 12 });
      if (!answer) return;
      const items = answer.data.map((one) =>
        html("li", {}, html("span", {}, visible(one.token)), html("span", {}, one.similarity.toFixed(3)), bar(one.similarity)),
      );
      found.replaceChildren(html("p", { class: "note" }, `Nearest to ${quoted(answer.token)}, by cosine:`), html("ol", { class: "list" }, items));
    } catch (error) {
      found.replaceChildren(html("p", { class: "problem", role: "alert" }, error.message));
    }
  };
  return section(
    "Neighbours",
    "A network has a vector of numbers for each token. Tokens that it uses alike have vectors that point the same way.",
    html("form", { onsubmit: ask }, html("div", { class: "row" }, html("label", { class: "wide" }, "Token", token), html("button", { type: "submit" }, "Find neighbours"))),
    found,
  );
}
