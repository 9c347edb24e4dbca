"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);

// -- light and dark: the theme of the system, until the button changes it ---------------------------------

const themes = window.matchMedia("(prefers-color-scheme: dark)");
const remembered = {
  get: () => { try { return localStorage.getItem("chainrule-theme"); } catch { return null; } },
  set: (theme) => { try { localStorage.setItem("chainrule-theme", theme); } catch { /* a page from a file may have no storage */ } },
};
function showTheme(theme) {
  document.documentElement.dataset.theme = theme;
  byId("theme").textContent = theme === "dark" ? "Light" : "Dark"; // what a press changes to
}
showTheme(remembered.get() ?? (themes.matches ? "dark" : "light"));
themes.addEventListener("change", () => { if (!remembered.get()) showTheme(themes.matches ? "dark" : "light"); });
byId("theme").addEventListener("click", () => {
  const theme = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  remembered.set(theme);
  showTheme(theme);
});

// -- charts: their text has the colour of the page, which is right in both themes and on paper -------------

const ink = "currentColor";
const config = {
  background: "transparent",
  font: "system-ui, sans-serif",
  legend: { disable: true },
  view: { stroke: "transparent" },
  text: { fill: ink },
  axis: {
    labelColor: ink, titleColor: ink, tickColor: ink, domainColor: ink, gridColor: ink,
    labelOverlap: "greedy", labelSeparation: 6, gridOpacity: 0.12, domainOpacity: 0.5, tickOpacity: 0.5, labelFontSize: 11, titleFontSize: 12, titleFontWeight: 500,
  },
};
// A chart is drawn when it is first seen: what is folded away has no width.
function draw(isDue) {
  const places = Array.from(document.querySelectorAll("[data-chart]:not(.vega-embed)")).filter(isDue);
  return Promise.all(places.map((place) => {
    const found = data.charts[place.dataset.chart], isLow = window.innerWidth < 600 && found.height > 200;
    const size = { width: place.clientWidth ? "container" : 600, height: isLow ? 200 : found.height };
    const spec = { ...found, ...size, autosize: { type: "fit-x", contains: "padding" } };
    place.classList.add("vega-embed");
    return vegaEmbed(place, spec, { actions: false, renderer: "svg", config, tooltip: { theme: "page" } });
  }));
}
const drawSeen = () => draw((place) => place.checkVisibility());

// -- what is folded opens by a link, and on paper ----------------------------------------------------------

function openTarget(hash) {
  const target = byId(decodeURIComponent(hash.slice(1)));
  for (let one = target?.querySelector("details.fold") ?? target; one; one = one.parentElement) {
    if (one.tagName === "DETAILS") one.open = true;
  }
  target?.scrollIntoView();
}
for (const fold of document.querySelectorAll("details")) fold.addEventListener("toggle", drawSeen);
for (const link of document.querySelectorAll("main a[href^='#']")) link.addEventListener("click", () => openTarget(link.hash));
window.addEventListener("hashchange", () => openTarget(location.hash));
let closed = [];
window.addEventListener("beforeprint", () => {
  closed = Array.from(document.querySelectorAll("details:not([open])"));
  for (const fold of closed) fold.open = true;
  draw(() => true);
});
window.addEventListener("afterprint", () => { for (const fold of closed) fold.open = false; });

byId("cost")?.addEventListener("change", (event) => {
  for (const panel of document.querySelectorAll(".first")) panel.hidden = panel.id !== `panel-${event.target.value}`;
  drawSeen();
});
if (location.hash) openTarget(location.hash);
drawSeen().then(() => { document.documentElement.dataset.drawn = "true"; });

// -- tables: one that is wider than the page says so at its edge -------------------------------------------

for (const box of document.querySelectorAll(".scroll")) {
  const mark = () => box.classList.toggle("more", box.scrollWidth - box.clientWidth - box.scrollLeft > 1);
  box.addEventListener("scroll", mark);
  new ResizeObserver(mark).observe(box);
}

// -- tables: a click on a heading sorts --------------------------------------------------------------------

function sortBy(heading) {
  const table = heading.closest("table");
  const column = heading.cellIndex;
  const down = heading.getAttribute("aria-sort") === "ascending";
  for (const other of heading.parentNode.cells) other.removeAttribute("aria-sort");
  heading.setAttribute("aria-sort", down ? "descending" : "ascending");
  const body = table.tBodies[0];
  const value = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent;
  const order = (a, b) => {
    const [x, y] = [value(a), value(b)];
    if (x === "" || y === "") return (x === "") - (y === ""); // cells without a value come last in both directions
    const [m, n] = [Number(x), Number(y)];
    const found = Number.isNaN(m) || Number.isNaN(n) ? x.localeCompare(y) : m === n ? 0 : m - n;
    return down ? -found : found;
  };
  body.append(...Array.from(body.rows).sort(order));
}
for (const button of document.querySelectorAll("thead button")) {
  button.addEventListener("click", () => sortBy(button.closest("th")));
}

// -- the surprisal map -------------------------------------------------------------------------------------

// Colours are deepest at the bits that few words of this text exceed.
const DEEPEST = 0.97;
const deepest = (values) => Math.max(1, Math.round(values.sort((a, b) => a - b)[Math.floor(DEEPEST * (values.length - 1))]));

function showMap(map) {
  const text = byId("map-text"), one = byId("map-a"), two = byId("map-b"), readout = byId("map-readout");
  const view = () => document.querySelector("input[name=view]:checked").value;
  const spans = map.words.map((word) => {
    const span = document.createElement("span");
    span.textContent = word;
    return span;
  });
  text.replaceChildren(...spans);
  const bits = (name, i) => map.tenths[name][i] / 10;
  let at = 0;

  function paint() {
    const [a, b, how] = [one.value, two.value, view()];
    const most = deepest(spans.flatMap((_, i) => how === "difference" ? [Math.abs(bits(b, i) - bits(a, i))] : [bits(a, i), bits(b, i)]));
    spans.forEach((span, i) => {
      const amount = how === "difference" ? bits(b, i) - bits(a, i) : bits(how === "a" ? a : b, i);
      const depth = Math.abs(amount) / most;
      span.className = how === "difference" && amount > 0 ? "cold" : "";
      span.style.setProperty("--a", (0.65 * Math.min(depth, 1)).toFixed(2));
    });
    byId("map-scale").classList.toggle("two", how === "difference");
    byId("map-low").textContent = how === "difference" ? `${b} better by ${most} bits` : "0 bits";
    byId("map-high").textContent = how === "difference" ? `${a} better by ${most} bits` : `${most} bits or more`;
    text.setAttribute("aria-label", `The held-out text; ${how === "difference" ? `${a} against ${b}` : how === "a" ? a : b}`);
    list(byId("spans-a"), byId("spans-a-title"), a, b);
    list(byId("spans-b"), byId("spans-b-title"), b, a);
    go(at, false);
  }

  function list(place, title, better, than) {
    title.textContent = `Where ${better} beats ${than} most`;
    const pair = map.spans.find((found) => found.better === better && found.than === than);
    place.replaceChildren(...(pair ? pair.spans : []).map((span) => {
      const item = document.createElement("li"), button = document.createElement("button"), mark = document.createElement("mark");
      mark.textContent = span.text.replace("\n", " ↵");
      button.type = "button";
      button.append(span.before, mark, span.after);
      if (span.last <= spans.length) button.addEventListener("click", () => reveal(span));
      else button.disabled = true;
      const figures = document.createElement("span");
      figures.className = "small";
      figures.textContent = ` ${span.bits.toFixed(1)} against ${span.other.toFixed(1)} bits`;
      item.append(button, figures);
      return item;
    }));
    if (!place.children.length) place.replaceChildren(Object.assign(document.createElement("li"), { textContent: "nowhere" }));
  }

  function reveal(span) {
    for (const old of text.querySelectorAll(".found")) old.classList.remove("found");
    for (const found of spans.slice(span.first, span.last)) found.classList.add("found");
    text.focus({ preventScroll: true });
    text.scrollIntoView({ block: "nearest" });
    go(span.first, true);
  }

  function go(i, scroll) {
    if (spans[at]) spans[at].classList.remove("at");
    at = Math.max(0, Math.min(i, spans.length - 1));
    spans[at].classList.add("at");
    if (scroll) text.scrollTop = spans[at].offsetTop - text.clientHeight / 3;
    const word = map.words[at].trim() || "↵";
    readout.textContent = `“${word}”: ${bits(one.value, at).toFixed(1)} bits by ${one.value}, ${bits(two.value, at).toFixed(1)} by ${two.value}`;
  }

  const keys = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 10, ArrowUp: -10, PageDown: 100, PageUp: -100 };
  text.addEventListener("keydown", (event) => {
    const target = event.key === "Home" ? 0 : event.key === "End" ? spans.length - 1 : event.key in keys ? at + keys[event.key] : null;
    if (target === null || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    go(target, true);
  });
  const place = new Map(spans.map((span, i) => [span, i]));
  for (const kind of ["click", "mouseover"]) {
    text.addEventListener(kind, (event) => { if (place.has(event.target)) go(place.get(event.target), false); });
  }
  for (const control of document.querySelectorAll("#map select, #map input")) control.addEventListener("change", paint);
  paint();
}
if (data.map) showMap(data.map);
