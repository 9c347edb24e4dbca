// Tree: a beam search grows step by step, beside what greedy choice and sampling write.
import { modelsFor, post } from "../api.js";
import { attempt, bitsOf, bounded, el, field, inline, modelPicker, say, shownBits, slider, svg } from "../parts.js";

export const title = "Tree";

const COLUMN = 118, ROW = 26, TOP = 26;

export async function show(root, params, setParams) {
  const models = await modelsFor("generate");
  const state = {
    model: models.some((model) => model.id === params.model) ? params.model : models[0].id,
    prompt: params.prompt ?? "The",
    width: whole(params.width, 3, 1, 6), n: whole(params.n, 8, 1, 24), step: whole(params.step, 24, 0, 24),
    seed: whole(params.seed, 1, 0, 1e9),
  };
  let tree = null, steps = 0, playing = null, asking = null;
  const keep = () => setParams({ ...state });

  const prompt = el("textarea", { rows: 2, value: state.prompt, spellcheck: "false" });
  prompt.addEventListener("keydown", (event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) grow(); });
  const picture = el("div", { class: "scroll fits tree-picture", tabindex: 0, role: "region", "aria-label": "The tree of the search" });
  const where = el("p", { class: "small soft", "aria-live": "polite" });
  const kept = el("ol", { class: "kept" });
  const others = el("div", { class: "papers" });
  const back = el("button", { type: "button", onclick: () => { pause(); go(state.step - 1); } }, "Back");
  const step = el("button", { type: "button", onclick: () => { pause(); go(state.step + 1); } }, "Step");
  const play = el("button", { type: "button", onclick: () => (playing ? pause() : start()) }, "Play");

  function start() {
    if (state.step >= steps) go(0);
    play.textContent = "Pause";
    playing = setInterval(() => { go(state.step + 1); if (state.step >= steps) pause(); }, 900);
  }
  function pause() {
    clearInterval(playing);
    playing = null;
    play.textContent = "Play";
  }

  async function grow(to = Infinity) {
    pause();
    asking?.abort();
    asking = new AbortController();
    const { signal } = asking;
    root.dataset.growing = "yes";
    state.prompt = prompt.value;
    keep();
    const write = (more) => post("/v1/completions", { model: state.model, prompt: state.prompt, max_tokens: state.n, logprobs: 0, ...more }, signal);
    const found = await attempt(() => Promise.all([
      post("/v1/beam", { model: state.model, prompt: state.prompt, width: state.width, max_tokens: state.n }, signal),
      write({ temperature: 0 }), write({ temperature: 1, seed: state.seed }),
    ]));
    if (!found || signal.aborted) return;
    const [beam, greedy, sampled] = found;
    tree = laidOut(beam);
    steps = 1 + Math.max(-1, ...tree.nodes.map((node) => node.step));
    others.replaceChildren(
      card("Beam search", tree.best.length ? textOf(tree, tree.best[0]) : "", tree.best.length ? bitsOf(tree.nodes[tree.best[0]].log_prob) : 0, "the fewest bits for each token, of the hypotheses at the end"),
      card("Greedy", greedy.choices[0].text, bitsOfChoice(greedy), "the likeliest token, each time"),
      card("Sampled", sampled.choices[0].text, bitsOfChoice(sampled), "by the model's own probabilities", el("button", { type: "button", onclick: () => { state.seed = Math.floor(Math.random() * 1e9); grow(state.step); } }, "Sample again")));
    go(to);
    root.dataset.growing = "no";
  }

  function card(name, text, bits, how, more = null) {
    return el("section", { class: "text-card" }, el("h2", {}, name),
      el("p", { class: "paper short" }, el("span", { class: "soft" }, state.prompt), text),
      el("p", { class: "small soft" }, `${shownBits(bits)}: ${how}`), more);
  }

  function go(to) {
    if (!tree) return;
    state.step = Math.max(0, Math.min(to, steps));
    keep();
    back.disabled = state.step === 0;
    step.disabled = state.step === steps;
    picture.replaceChildren(draw(tree, state, steps));
    picture.scrollLeft = (state.step + 1) * COLUMN - picture.clientWidth; // the newest column is whole
    const done = state.step === steps;
    where.textContent = `Step ${state.step} of ${steps}. ${done ? "The search has ended; the hypothesis with the fewest bits for each token is marked." : "Hypotheses that are kept grow on; grey ones are dropped."}`;
    const ends = tree.nodes.filter((node) => node.kept && (node.step === state.step - 1 || (node.finished && node.step < state.step)));
    ends.sort((a, b) => b.log_prob - a.log_prob);
    kept.replaceChildren(...ends.map((node) => el("li", {}, el("span", { class: "soft" }, state.prompt), inlineText(textOf(tree, node.id)), node.finished ? " ■" : "",
      el("span", { class: "small soft" }, ` ${shownBits(bitsOf(node.log_prob))}`))));
    if (done) say(`The search ended after ${steps === 1 ? "one step" : `${steps} steps`}.`);
  }

  root.append(
    el("p", { class: "lead" }, "The likeliest token now may lead to an unlikely text. Beam search keeps the few best beginnings at each step, extends each of them, and drops the rest."),
    field("Beginning of the text", prompt),
    el("div", { class: "controls" },
      modelPicker(models, state.model, (value) => { state.model = value; grow(); }),
      slider("Beam width", { min: 1, max: 6, step: 1, value: state.width }, (value) => { state.width = value; grow(); }),
      slider("Steps", { min: 1, max: 24, step: 1, value: state.n }, (value) => { state.n = value; grow(); }),
      el("button", { type: "button", class: "main", onclick: () => grow() }, "Search")),
    el("div", { class: "controls" }, back, step, play, where),
    picture, el("h2", {}, "Hypotheses that are kept"), kept, others);
  await grow(state.step);
  return () => { pause(); asking?.abort(); };
}

const whole = (value, usual, least, most) => Math.round(bounded(value, usual, least, most));

const inlineText = (text) => text.replaceAll("\n", "↵");

function bitsOfChoice(answer) {
  return answer.choices[0].logprobs.token_logprobs.reduce((total, one) => total + bitsOf(one), 0);
}

function textOf(tree, number) {
  let text = "";
  for (let node = tree.nodes[number]; node; node = node.parent === null ? null : tree.nodes[node.parent]) text = node.text + text;
  return text;
}

// Each node's row in the column of its step: the best first.
function laidOut(beam) {
  const columns = [];
  for (const node of beam.nodes) (columns[node.step] ??= []).push(node);
  for (const column of columns) {
    column.sort((a, b) => b.kept - a.kept || b.log_prob - a.log_prob);
    column.forEach((node, row) => { node.row = row; });
  }
  return { ...beam, rows: Math.max(1, ...columns.map((column) => column.length)) };
}

function draw(tree, state, steps) {
  const width = COLUMN * (steps + 1) + 10, height = TOP + ROW * tree.rows + 6;
  const x = (node) => COLUMN * (node.step + 1), y = (node) => TOP + ROW * node.row + ROW / 2;
  const best = new Set();
  if (state.step === steps && tree.best.length) {
    for (let node = tree.nodes[tree.best[0]]; node; node = node.parent === null ? null : tree.nodes[node.parent]) best.add(node.id);
  }
  const shown = tree.nodes.filter((node) => node.step < state.step);
  const lines = [], marks = [];
  for (const node of shown) {
    const parent = node.parent === null ? null : tree.nodes[node.parent];
    const [x0, y0] = parent ? [x(parent) + COLUMN - 24, y(parent)] : [COLUMN - 24, TOP + ROW / 2];
    const kind = best.has(node.id) ? "best" : node.kept ? "kept" : "dropped";
    lines.push([kind, svg("path", { class: `edge ${kind}`, d: `M${x0} ${y0}C${x0 + 14} ${y0} ${x(node) - 14} ${y(node)} ${x(node)} ${y(node)}` })]);
    const name = node.finished ? "■ end" : inline(node.text || `#${node.token}`);
    marks.push(svg("g", { class: `node ${kind}` },
      svg("title", {}, `${name}: ${shownBits(bitsOf(node.log_prob))} in all${node.kept ? "" : ", dropped"}`),
      svg("rect", { x: x(node), y: y(node) - 10, width: COLUMN - 24, height: 20, rx: 5 }),
      svg("text", { x: x(node) + 7, y: y(node) + 4.5 }, name.length > 11 ? `${name.slice(0, 10)}…` : name)));
  }
  const order = ["dropped", "kept", "best"];
  lines.sort((a, b) => order.indexOf(a[0]) - order.indexOf(b[0]));
  const heads = Array.from({ length: state.step }, (_, i) => svg("text", { class: "head", x: COLUMN * (i + 1), y: 14 }, `step ${i + 1}`));
  const root = svg("g", { class: "node root" }, svg("rect", { x: 4, y: TOP + ROW / 2 - 10, width: COLUMN - 28, height: 20, rx: 5 }),
    svg("text", { x: 11, y: TOP + ROW / 2 + 4.5 }, short(state.prompt)));
  return svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `The tree after step ${state.step}: ${shown.length} hypotheses looked at, ${shown.filter((node) => node.kept).length} kept` },
    ...heads, ...lines.map(([, line]) => line), root, ...marks);
}

function short(text) {
  const shown = text.replaceAll("\n", "↵");
  return shown.length > 11 ? `…${shown.slice(-10)}` : shown || "(start)";
}
