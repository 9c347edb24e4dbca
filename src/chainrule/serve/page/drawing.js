// Pictures of numbers that views share: strips of tokens, heat maps, vectors, tables.
// Everything is made by calls, never from strings of HTML: tokens may hold anything.
import { el, inline, roving, svg, visible } from "./parts.js";

/** A number with a few digits, also a very small one. */
export function figure(value, digits = 3) {
  if (value === null || value === undefined) return "";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size < 1e-4 || size >= 1e9) {
    const [front, power] = value.toExponential(digits - 1).split("e");
    return `${Number(front)}·10${[...power.replace("+", "")].map((sign) => "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"["-0123456789".indexOf(sign)]).join("")}`;
  }
  return size >= 1000 ? Math.round(value).toLocaleString("en") : String(Number(value.toPrecision(digits)));
}

/** A token on one line, cut where it is long. */
export function short(token, most = 12) {
  const shown = inline(token);
  return shown.length > most ? `${shown.slice(0, most - 1)}…` : shown;
}

/** Whether tokens have the spaces between words in them, as those of subwords and characters do. */
const hasSpaces = (tokens) => tokens.some((token) => /^\s/.test(token));

/** Tokens as a text on one line. */
export const textOf = (tokens) => (hasSpaces(tokens) ? tokens.join("") : tokens.map(inline).join(" ")).replaceAll("\n", "↵");

/**
 * Tokens one after the other, as a text; `onChoose` is told which one is clicked, `onLook` which one is looked at. `more`
 * are tokens after them that are no part of the text.
 */
export function tokenStrip(tokens, { label, onChoose, onLook, chosen = null, more = [] }) {
  const joined = hasSpaces(tokens);
  const items = [...tokens, ...more].map((token, i) => el("button", {
    type: "button", class: i < tokens.length ? "tk" : "tk extra", "data-stop": true, tabindex: -1, "aria-pressed": onChoose ? String(i === chosen) : null,
    onclick: () => onChoose?.(i), onmouseenter: () => onLook?.(i), onfocus: () => onLook?.(i),
  }, i >= tokens.length ? token : joined && token.trim() ? visible(token).replaceAll("\n", "") : inline(token)));
  const group = el("div", { class: joined ? "paper short strip joined" : "paper short strip", role: "group", "aria-label": label }, items);
  roving(group).settle();
  if (items[chosen]) {
    items[0].tabIndex = -1;
    items[chosen].tabIndex = 0;
  }
  return { group, items, shade: (levels) => items.forEach((item, i) => item.style.setProperty("--a", levels[i] ?? 0)) };
}

const CELL = 20, LABEL = 12;

/**
 * A heat map with a name for each row and each column. `level(r, c)` is from -1 to 1, or null where there is no cell;
 * `describe(r, c)` is what is said of a cell when the pointer or the keyboard comes to it.
 */
export function heatMap({ rows, columns, level, describe, caption, onCell, start = [0, 0] }) {
  const names = rows.map((row) => short(row, 20)), tops = columns.map((column) => short(column, LABEL));
  const left = Math.max(...names.map((name) => name.length), 4) * 7.6 + 12;
  const top = Math.max(...tops.map((name) => name.length), 2) * 6.6 + 12;
  const width = left + columns.length * CELL + 44, height = top + rows.length * CELL + 4;
  const cells = svg("g", {});
  rows.forEach((_, r) => columns.forEach((_, c) => {
    const found = level(r, c);
    if (found === null) return;
    const place = { x: left + c * CELL, y: top + r * CELL, width: CELL - 1, height: CELL - 1 };
    cells.append(svg("rect", { class: "empty", ...place }));
    cells.append(svg("rect", { class: found < 0 ? "below" : "above", ...place, "fill-opacity": Math.min(Math.abs(found), 1).toFixed(3) }));
  }));
  const cursor = svg("rect", { class: "cursor", width: CELL + 1, height: CELL + 1, visibility: "hidden" });
  const rowNames = names.map((name, r) => svg("text", { x: left - 6, y: top + r * CELL + CELL * 0.7, "text-anchor": "end" }, name));
  const columnNames = tops.map((name, c) => {
    const x = left + c * CELL + CELL * 0.65;
    return svg("text", { x, y: top - 6, transform: `rotate(-60 ${x} ${top - 6})` }, name);
  });
  const readout = el("output", { class: "readout", "aria-live": "polite" });
  const picture = svg("svg", {
    class: "heat", width, height, viewBox: `0 0 ${width} ${height}`, role: "img", tabindex: "0",
    "aria-label": `${caption} ${rows.length} rows, ${columns.length} columns; the arrow keys read the cells.`,
  }, rowNames, columnNames, cells, cursor);
  let at = start;
  const show = (r, c) => {
    if (level(r, c) === null) return;
    at = [r, c];
    cursor.setAttribute("x", left + c * CELL - 1);
    cursor.setAttribute("y", top + r * CELL - 1);
    cursor.setAttribute("visibility", "visible");
    rowNames.forEach((name, i) => name.classList.toggle("here", i === r));
    columnNames.forEach((name, i) => name.classList.toggle("here", i === c));
    readout.textContent = describe(r, c);
    onCell?.(r, c);
  };
  const isInside = (r, c) => r >= 0 && c >= 0 && r < rows.length && c < columns.length;
  picture.addEventListener("pointermove", (event) => {
    const box = picture.getBoundingClientRect();
    const c = Math.floor((event.clientX - box.left - left) / CELL), r = Math.floor((event.clientY - box.top - top) / CELL);
    if (isInside(r, c) && (r !== at[0] || c !== at[1] || !readout.textContent)) show(r, c);
  });
  picture.addEventListener("focus", () => show(...at));
  picture.addEventListener("keydown", (event) => {
    const step = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] }[event.key];
    if (!step) return;
    event.preventDefault();
    let [r, c] = [at[0] + step[0], at[1] + step[1]];
    if (step[0]) while (c > 0 && r >= 0 && r < rows.length && level(r, c) === null) c -= 1;
    if (isInside(r, c)) show(r, c);
  });
  return { figure: el("figure", { class: "map" }, el("div", { class: "scroll fits" }, picture), readout, el("figcaption", { class: "small soft" }, caption)), show };
}

/** A small picture of a head: a pixel for each weight. */
export function thumbnail(weights, columns) {
  const canvas = el("canvas", { width: columns, height: weights.length, "aria-hidden": "true" });
  // small weights are raised, so that they are seen at all
  paint(canvas, weights.flatMap((row) => Array.from({ length: columns }, (_, c) => Math.sqrt(Math.max(row[c] ?? 0, 0)))));
  return canvas;
}

// A pixel for each level from -1 to 1: middle tones that are seen on white and on black, the more the deeper.
function paint(canvas, levels) {
  const context = canvas.getContext("2d"), image = context.createImageData(canvas.width, canvas.height);
  levels.forEach((level, i) => image.data.set([...(level < 0 ? [224, 100, 40] : [60, 133, 228]), Math.round(255 * Math.min(Math.abs(level), 1))], 4 * i));
  context.putImageData(image, 0, 0);
}

/** A vector as a strip of its values, which are told one by one when the pointer or the arrow keys come to them, or all at once. */
export function vector(label, values) {
  const most = Math.max(...values.map(Math.abs), 1e-9);
  const canvas = el("canvas", { width: values.length, height: 1, role: "img", tabindex: 0, "aria-label": `${label}: ${values.length} values from ${figure(Math.min(...values))} to ${figure(Math.max(...values))}; the arrow keys read them` });
  paint(canvas, values.map((value) => value / most));
  const length = Math.sqrt(values.reduce((sum, value) => sum + value * value, 0));
  const about = `${values.length.toLocaleString("en")} values, length ${figure(length)}`;
  const readout = el("output", { class: "small soft figure" }, about);
  let at = 0;
  const tell = (place) => {
    at = Math.max(0, Math.min(values.length - 1, place));
    readout.textContent = `feature ${at + 1}: ${values[at]}`;
  };
  canvas.addEventListener("pointermove", (event) => {
    const box = canvas.getBoundingClientRect();
    tell(Math.floor((values.length * (event.clientX - box.left)) / box.width));
  });
  canvas.addEventListener("pointerleave", () => { readout.textContent = about; });
  canvas.addEventListener("keydown", (event) => {
    const steps = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: values.length - 1 };
    if (!(event.key in steps)) return;
    event.preventDefault();
    tell(steps[event.key]);
  });
  const all = el("details", {}, el("summary", { class: "small", "aria-label": `All values: ${label}` }, "values"));
  all.addEventListener("toggle", () => { if (all.open && all.children.length === 1) all.append(el("p", { class: "ids" }, values.join(" "))); });
  return el("div", { class: "vector" }, el("div", { class: "vector-head" }, el("span", {}, label), readout), canvas, all);
}

/** A table with a heading for each column; the first cell of a row is its heading. */
export function table(caption, headings, rows) {
  const line = ([first, ...rest]) => el("tr", {}, el("th", { scope: "row" }, first), rest.map((cell) => el("td", {}, cell)));
  return el("div", { class: "scroll fits", role: "region", "aria-label": caption, tabindex: "0" },
    el("table", {}, el("caption", { class: "small soft" }, caption),
      el("thead", {}, el("tr", {}, headings.map((heading) => el("th", { scope: "col" }, heading)))), el("tbody", {}, rows.map(line))));
}
