// Learn: the lessons of the course. Views open between their paragraphs, and typed answers are graded.
import { get, load, post } from "../api.js";
import { card } from "../cards.js";
import { NEEDS, isPossible, missing } from "../needs.js";
import { attempt, debounced, el, field, newId, say } from "../parts.js";

export const title = "Learn";

export async function show(root, params, setParams) {
  const state = { lesson: params.lesson ?? null, student: (params.student ?? "").slice(0, 64) || null };
  setParams({ ...state });
  if (state.lesson !== null) return showLesson(root, state);
  const { is_on: isOn, data } = await get("/v1/lessons");
  if (!isOn) {
    root.append(el("p", {}, "The lessons are off. This command shows them:"),
      el("pre", { class: "command", tabindex: 0, role: "region", "aria-label": "Command" }, "chainrule serve --learn"));
    return null;
  }
  const list = el("ol", { class: "lessons" });
  const draw = () => list.replaceChildren(...data.map((lesson) => el("li", {},
    el("a", { href: addressOf(lesson.number, state.student) }, `${lesson.number}. ${lesson.title}`),
    el("span", { class: "small soft" }, ` ${lesson.time}; ${rightOf(lesson, state.student)} of ${lesson.exercises.length} exercises right on this page`))));
  const student = el("input", { type: "text", maxlength: 64, value: state.student ?? "", autocomplete: "off", spellcheck: "false" });
  student.addEventListener("input", debounced(() => { state.student = student.value.trim() || null; setParams({ ...state }); draw(); }, 150));
  root.append(
    el("p", { class: "lead" }, "Each lesson has text, code with what it prints, and exercises that are graded. Links to views open them between the paragraphs, with a model of this server."),
    list,
    field("Student: a name or number, if your teacher gave you one; it changes the numbers of the exercises", student));
  draw();
  return null;
}

const addressOf = (lesson, student) => `#/learn?${new URLSearchParams({ lesson, ...(student ? { student } : {}) })}`;

async function showLesson(root, state) {
  const query = state.student ? `?${new URLSearchParams({ student: state.student })}` : "";
  const [lesson, { data }] = await Promise.all([get(`/v1/lessons/${encodeURIComponent(state.lesson)}${query}`), get("/v1/lessons")]);
  const place = data.findIndex((one) => one.number === lesson.number);
  const link = (to, words) => to && el("a", { href: addressOf(to.number, state.student) }, `${words}: ${to.title}`);
  const text = el("article", { class: "lesson" }, lesson.parts.map((part) => (part.id ? exercise(lesson, part) : part.card ? card(lesson, part) : htmlOf(part))));
  for (const other of text.querySelectorAll("a[href^='#/learn?lesson=']")) other.href = addressOf(other.href.split("=").at(-1), state.student);
  root.append(
    el("p", { class: "small" }, el("a", { href: `#/learn${query}` }, "All lessons"), lesson.student ? ` · student ${lesson.student}` : ""),
    text,
    el("nav", { class: "onward", "aria-label": "Lessons" }, link(data[place - 1], "Before"), link(data[place + 1], "Next")));
  const live = liveIn(text);
  return () => live.close();
}

// The server has escaped everything that is not markup of its own.
function htmlOf(part) {
  const made = el("div", { class: "part" });
  made.innerHTML = part.html;
  return made;
}

// -- exercises ---------------------------------------------------------------------------------------------

function exercise(lesson, part) {
  const heading = el("h4", { id: newId("exercise") }, part.heading);
  return el("section", { class: "exercise", "aria-labelledby": heading.id }, heading, htmlOf(part), part.is_typed ? answerField(lesson, part) : codeNote(lesson, part));
}

function answerField(lesson, part) {
  const kept = keptOf(lesson.number, lesson.student);
  const input = el("input", { type: "text", class: "answer", maxlength: 2000, value: kept[part.id]?.answer ?? "", autocomplete: "off", spellcheck: "false" });
  const grade = el("p", { class: "grade", role: "status" });
  const tell = ({ state, message }) => {
    grade.className = `grade ${state.replace(" ", "-")}`;
    grade.replaceChildren(el("b", {}, SAID[state]), message ? ` ${message}` : "");
  };
  async function check() {
    const answer = input.value;
    const found = await attempt(() => post("/v1/lessons/check", { lesson: lesson.number, exercise: part.id, answer, student: lesson.student }));
    if (!found) return;
    say("");
    keep(lesson, part.id, { answer, state: found.state, message: found.message });
    tell(found);
  }
  input.addEventListener("keydown", (event) => { if (event.key === "Enter") check(); });
  if (kept[part.id]?.state) tell(kept[part.id]);
  const button = el("button", { type: "button", class: "main", onclick: check, "aria-label": `Check exercise ${part.id}` }, "Check");
  return [el("div", { class: "controls" }, field("Your answer", input), button), grade];
}

const SAID = { right: "✓ Right.", wrong: "✗ Wrong:", "not yet": "Not yet." };

function codeNote(lesson, part) {
  const student = lesson.student ? ` --student ${JSON.stringify(lesson.student)}` : "";
  return [
    el("pre", { class: "code python", tabindex: 0 }, part.code),
    el("p", {}, "This answer is code. The server does not run it: write it into answers.py, and have that graded."),
    el("pre", { class: "command", tabindex: 0, role: "region", "aria-label": `Commands for exercise ${part.id}` },
      `chainrule lesson ${lesson.number} --start lesson${lesson.number}${student}\nchainrule lesson ${lesson.number} --check lesson${lesson.number}/answers.py`),
  ];
}

// What was answered is kept in this browser.
const keyOf = (number, student) => `chainrule-lesson-${number}-${student ?? ""}`;
function keptOf(number, student) {
  try { return JSON.parse(localStorage.getItem(keyOf(number, student))) ?? {}; } catch { return {}; }
}
function keep(lesson, id, answer) {
  const all = { ...keptOf(lesson.number, lesson.student), [id]: answer };
  try { localStorage.setItem(keyOf(lesson.number, lesson.student), JSON.stringify(all)); } catch { /* storage may be off */ }
}
function rightOf(lesson, student) {
  const kept = keptOf(lesson.number, student);
  return lesson.exercises.filter((one) => kept[one.id]?.state === "right").length;
}

// -- live views --------------------------------------------------------------------------------------------

// Opens the view that a link names below its paragraph; one at a time.
function liveIn(text) {
  let opened = null;
  function close() {
    opened?.leave?.();
    opened?.panel.remove();
    opened = null;
  }
  async function open(link) {
    close();
    const [name, query = ""] = link.dataset.view.split("?");
    if (!Object.hasOwn(NEEDS, name) || name === "learn") return;
    const [view, models] = await Promise.all([import(`./${name}.js`), load()]);
    if (!link.isConnected) return;
    close();
    const end = () => { close(); link.focus(); };
    const place = el("div", {});
    const panel = el("section", { class: "panel", tabindex: -1, "aria-label": `${view.title}, live` },
      el("div", { class: "controls" }, el("b", {}, view.title), el("a", { href: link.getAttribute("href") }, "Open by itself"), el("button", { type: "button", onclick: end }, "Close")),
      place);
    const mine = { panel, leave: null };
    opened = mine;
    let block = link;
    while (block.parentElement.parentElement !== text) block = block.parentElement;
    block.after(panel);
    panel.focus();
    if (!isPossible(NEEDS[name], models)) place.append(...missing(NEEDS[name]));
    else await draw(Object.fromEntries(new URLSearchParams(query)));

    // A step, to which the back button of the page would return, shows the view anew.
    async function draw(state) {
      mine.leave?.();
      mine.leave = null;
      place.replaceChildren();
      const leave = await attempt(() => view.show(place, state, (next, { push = false } = {}) => {
        if (push) draw(Object.fromEntries(Object.entries(next).filter(([, value]) => value !== null && value !== undefined)));
        return push;
      }));
      if (opened === mine && typeof leave === "function") mine.leave = leave;
      else if (typeof leave === "function") leave();
    }
  }
  text.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-view]");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    attempt(() => open(link));
  });
  return { close };
}
