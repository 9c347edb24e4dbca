// The shell: one view at a time, whose state is in the address: #/write?model=lstm&prompt=The
import { load } from "./api.js";
import { NEEDS, isPossible, missing, reason } from "./needs.js";
import { byId, el, say } from "./parts.js";

const VIEWS = Object.keys(NEEDS);
const titled = (name) => name[0].toUpperCase() + name.slice(1);

// -- light and dark: as the system has it, until the button says otherwise ---------------------------------

const dark = window.matchMedia("(prefers-color-scheme: dark)");
const remembered = {
  get: () => { try { return localStorage.getItem("chainrule-theme"); } catch { return null; } },
  set: (theme) => { try { localStorage.setItem("chainrule-theme", theme); } catch { /* storage may be off */ } },
};
function showTheme(theme) {
  document.documentElement.dataset.theme = theme;
  byId("theme").textContent = theme === "dark" ? "Light" : "Dark"; // what a press changes to, as in a report
}
showTheme(remembered.get() ?? (dark.matches ? "dark" : "light"));
dark.addEventListener("change", () => { if (!remembered.get()) showTheme(dark.matches ? "dark" : "light"); });
byId("theme").addEventListener("click", () => {
  const theme = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  remembered.set(theme);
  showTheme(theme);
});

// -- routing -----------------------------------------------------------------------------------------------

const links = new Map(VIEWS.map((name) => [name, el("a", { href: `#/${name}`, onclick: settle }, titled(name))]));
byId("views").append(...[...links.values()].map((link) => el("li", {}, link)));
byId("skip").addEventListener("click", (event) => { event.preventDefault(); byId("main").focus(); });

let shown = { name: null, leave: null, number: 0 };
let waiting = { hash: null, timer: null }; // the address that the view's state will have

function settle() {
  clearTimeout(waiting.timer);
  if (waiting.hash !== null && waiting.hash !== location.hash) history.replaceState(null, "", waiting.hash);
  waiting = { hash: null, timer: null };
}

function address() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  return { name: VIEWS.includes(path) ? path : VIEWS[0], params: Object.fromEntries(new URLSearchParams(query)) };
}

function hashOf(name, params) {
  const kept = Object.entries(params).filter(([, value]) => value !== null && value !== undefined);
  const query = new URLSearchParams(kept.map(([key, value]) => [key, String(value)])).toString();
  return `#/${name}${query ? `?${query}` : ""}`;
}

async function route() {
  const { name, params } = address();
  const number = shown.number + 1;
  shown.leave?.();
  const moved = shown.name !== name;
  shown = { name, leave: null, number };
  for (const [other, link] of links) {
    if (other === name) link.setAttribute("aria-current", "page"); else link.removeAttribute("aria-current");
  }
  document.title = `${titled(name)} · chainrule`;
  const root = byId("main");
  // The view says so when its state changes; `push` is a step to which the back button returns, and true if there is one.
  const setParams = (next, { push = false } = {}) => {
    if (shown.number !== number) return false;
    const hash = hashOf(name, next);
    links.get(name).href = hash; // so that who comes back to a view finds it as it was
    if (!push) {
      clearTimeout(waiting.timer);
      waiting = { hash, timer: setTimeout(settle, 150) }; // browsers bound how often an address may change
      return false;
    }
    settle();
    if (hash === location.hash) return false;
    location.hash = hash;
    return true;
  };
  waiting = { hash: null, timer: null };
  links.get(name).href = location.hash || `#/${name}`;
  try {
    const [view, models] = await Promise.all([import(`./views/${name}.js`), load()]);
    if (shown.number !== number) return;
    byId("served").textContent = models.length === 1 ? models[0].id : `${models.length} models`;
    document.title = `${view.title} · chainrule`;
    const place = el("div", { class: `view view-${name}` });
    place.append(el("h1", {}, view.title));
    root.replaceChildren(place);
    if (moved) say("");
    for (const [other, link] of links) tellPossible(link, NEEDS[other], models);
    if (!isPossible(NEEDS[name], models)) place.append(...missing(NEEDS[name]));
    else {
      const leave = await view.show(place, params, setParams);
      if (shown.number === number) shown.leave = typeof leave === "function" ? leave : null;
      else if (typeof leave === "function") leave();
    }
  } catch (error) {
    if (shown.number !== number) return;
    if (!root.querySelector(`.view-${name}`)) root.replaceChildren(el("h1", {}, titled(name)));
    say(error.message, true);
  }
  if (shown.number === number) root.dataset.shown = name;
}

// A view that no model can do is shown as such; it says how to make a model for it.
function tellPossible(link, verb, models) {
  if (isPossible(verb, models)) {
    link.removeAttribute("aria-disabled");
    link.removeAttribute("title");
  } else {
    link.setAttribute("aria-disabled", "true");
    link.title = reason(verb);
  }
}

window.addEventListener("pagehide", settle);
window.addEventListener("hashchange", () => {
  clearTimeout(waiting.timer);
  byId("main").dataset.shown = "";
  route();
});
route();
