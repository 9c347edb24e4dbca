// Pictures of numbers that the views share: elements of HTML and SVG, heat maps, strips of tokens, bars.
// Everything is made by calls, never from strings of HTML: tokens may hold anything.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [key, one] of Object.entries(value)) element.style.setProperty(key, one);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export const html = (tag, properties, ...children) => fill(document.createElement(tag), properties, children);
export const svg = (tag, properties, ...children) => fill(document.createElementNS(SVG, tag), properties, children);

let numbers = 0;
export const newId = (name) => `${name}-${(numbers += 1)}`;

/** Adds the style sheet of these pictures, once. */
export function addStyle() {
  const address = new URL("inside.css", import.meta.url).href;
  if (![...document.querySelectorAll("link[rel=stylesheet]")].some((link) => link.href === address)) {
    document.head.append(html("link", { rel: "stylesheet", href: address }));
  }
}

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

/** A token as people can see it: spaces and line ends have signs. */
export function visible(token, most = Infinity) {
  // the server puts a token with spaces at its ends in quotes where it stands in a line of text
  const inner = /^'[^'\\]*'$/.test(token) ? token.slice(1, -1) : token;
  const text = (inner.trim() === inner ? token : inner).replace(/\n/g, "↵").replace(/\t/g, "⇥").replace(/^ +| +$/g, (spaces) => "␣".repeat(spaces.length));
  const shown = text === "" ? "∅" : text;
  return shown.length > most ? `${shown.slice(0, most - 1)}…` : shown;
}

/** Whether tokens have the spaces between words in them, as those of subwords and characters do. */
const hasSpaces = (tokens) => tokens.some((token) => /^\s/.test(token));

/** Tokens as a text. */
export const textOf = (tokens) => (hasSpaces(tokens) ? tokens.join("") : tokens.map((token) => visible(token)).join(" ")).replace(/\n/g, "↵");

/** Has a group of elements as one stop of the Tab key; the arrow keys move inside it. */
export function roving(group, items, onMove = () => {}, columns = 1) {
  const reach = (place) => {
    const next = Math.max(0, Math.min(items.length - 1, place));
    items.forEach((item, i) => item.setAttribute("tabindex", i === next ? "0" : "-1"));
    return next;
  };
  reach(0);
  group.addEventListener("focusin", (event) => {
    const place = items.indexOf(event.target);
    if (place >= 0) onMove(reach(place));
  });
  group.addEventListener("keydown", (event) => {
    const place = items.indexOf(event.target);
    const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns };
    const end = { Home: 0, End: items.length - 1 }[event.key];
    const next = end ?? (event.key in steps ? place + steps[event.key] : null);
    if (place < 0 || next === null) return;
    event.preventDefault();
    if (next >= 0 && next < items.length) items[reach(next)].focus();
  });
  return reach;
}

/** Tokens one after the other in a text; `onChoose` is told which one is clicked, `onLook` which one is looked at. */
export function tokenStrip(tokens, { label, onChoose, onLook, chosen = null }) {
  const joined = hasSpaces(tokens);
  const items = tokens.map((token, i) =>
    html(
      "button",
      {
        type: "button",
        class: "tk",
        "aria-pressed": onChoose ? String(i === chosen) : null,
        onclick: () => onChoose?.(i),
        onmouseenter: () => onLook?.(i),
      },
      joined && token.trim() ? token.replace(/\n/g, "↵") : joined && token === " " ? "\u00a0" : visible(token),
    ),
  );
  const group = html("div", { class: joined ? "strip joined" : "strip", role: "group", "aria-label": label }, items);
  const reach = roving(group, items, (i) => onLook?.(i));
  if (chosen !== null && chosen >= 0) reach(chosen);
  return { group, items, shade: (levels) => items.forEach((item, i) => item.style.setProperty("--level", levels[i] ?? 0)) };
}

const CELL = 18, LABEL = 12;

/**
 * A heat map with a name for each row and each column. `level(r, c)` is from -1 to 1, or null where there is no cell;
 * `describe(r, c)` is what is said of a cell when the pointer or the keyboard comes to it.
 */
export function heatMap({ rows, columns, level, describe, caption, onCell, start = [0, 0] }) {
  const names = rows.map((row) => visible(row, 20));
  const tops = columns.map((column) => visible(column, LABEL));
  const left = Math.max(...names.map((name) => name.length), 4) * 7.2 + 10;
  const top = Math.max(...tops.map((name) => name.length), 2) * 6.4 + 12;
  const width = left + columns.length * CELL + 40, height = top + rows.length * CELL + 4;
  const cells = svg("g", {});
  rows.forEach((_, r) =>
    columns.forEach((_, c) => {
      const found = level(r, c);
      if (found === null) return;
      const strength = Math.min(Math.abs(found), 1).toFixed(3);
      const place = { x: left + c * CELL, y: top + r * CELL, width: CELL - 1, height: CELL - 1 };
      cells.append(svg("rect", { class: "empty", ...place }));
      cells.append(svg("rect", { class: found < 0 ? "below" : "above", ...place, "fill-opacity": strength }));
    }),
  );
  const cursor = svg("rect", { class: "cursor", width: CELL + 1, height: CELL + 1, visibility: "hidden" });
  const rowNames = names.map((name, r) =>
    svg("text", { x: left - 6, y: top + r * CELL + CELL * 0.7, "text-anchor": "end" }, name),
  );
  const columnNames = tops.map((name, c) => {
    const x = left + c * CELL + CELL * 0.65;
    return svg("text", { x, y: top - 6, transform: `rotate(-60 ${x} ${top - 6})` }, name);
  });
  const readout = html("output", { class: "readout", "aria-live": "polite" });
  const picture = svg(
    "svg",
    {
      class: "heat", width, height, viewBox: `0 0 ${width} ${height}`, role: "img", tabindex: "0",
      "aria-label": `${caption} ${rows.length} rows, ${columns.length} columns; the arrow keys read the cells.`,
    },
    rowNames, columnNames, cells, cursor,
  );
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
  picture.addEventListener("pointermove", (event) => {
    const box = picture.getBoundingClientRect();
    const c = Math.floor((event.clientX - box.left - left) / CELL), r = Math.floor((event.clientY - box.top - top) / CELL);
    if (r >= 0 && c >= 0 && r < rows.length && c < columns.length && (r !== at[0] || c !== at[1] || !readout.textContent)) {
      show(r, c);
    }
  });
  picture.addEventListener("focus", () => show(...at));
  picture.addEventListener("keydown", (event) => {
    const step = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] }[event.key];
    if (!step) return;
    event.preventDefault();
    let [r, c] = [at[0] + step[0], at[1] + step[1]];
    if (step[0]) while (c > 0 && r >= 0 && r < rows.length && level(r, c) === null) c -= 1;
    if (r >= 0 && c >= 0 && r < rows.length && c < columns.length) show(r, c);
  });
  const scroll = html("div", { class: "scroll" }, picture);
  return { figure: html("figure", { class: "map" }, scroll, readout, html("figcaption", {}, caption)), show };
}

/** A small picture of a head: a pixel for each weight. */
export function thumbnail(weights, columns) {
  const canvas = html("canvas", { width: columns, height: weights.length, "aria-hidden": "true" });
  const context = canvas.getContext("2d");
  const image = context.createImageData(columns, weights.length);
  weights.forEach((row, r) =>
    row.forEach((weight, c) => {
      // a middle tone that is seen on white and on black; small weights are raised, so that they are seen at all
      image.data.set([57, 135, 229, Math.round(255 * Math.sqrt(Math.min(Math.max(weight, 0), 1)))], 4 * (r * columns + c));
    }),
  );
  context.putImageData(image, 0, 0);
  return canvas;
}

/** A bar of a share, from 0 to 1. */
export const bar = (share) =>
  html("span", { class: "bar", "aria-hidden": "true" }, html("span", { style: { "--share": Math.max(0, Math.min(share, 1)).toFixed(4) } }));

/** A table with a heading for each column; the first cell of a row is its heading. */
export function table(caption, headings, rows) {
  const line = ([first, ...rest]) =>
    html("tr", {}, html("th", { scope: "row" }, first), rest.map((cell) => html("td", {}, cell)));
  return html(
    "div",
    { class: "scroll", role: "region", "aria-label": caption, tabindex: "0" },
    html(
      "table",
      { class: "figures" },
      html("caption", {}, caption),
      html("thead", {}, html("tr", {}, headings.map((heading) => html("th", { scope: "col" }, heading)))),
      html("tbody", {}, rows.map(line)),
    ),
  );
}
