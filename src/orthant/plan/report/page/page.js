// Elements, scales and the behaviour that all charts share.

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children.flat(Infinity).filter(child => child !== undefined && child !== null && child !== ""));
  return node;
}
const html = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
const svg = (tag, attributes, ...children) =>
  fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
const by_id = id => document.getElementById(id);
const bold = text => html("b", {}, text);

function put(id, ...children) {
  by_id(id).replaceChildren();
  return fill(by_id(id), {}, children);
}

function show(id) {
  by_id(id).hidden = false;
}

const largest = values => values.reduce((a, b) => Math.max(a, b), -Infinity);
const smallest = values => values.reduce((a, b) => Math.min(a, b), Infinity);
const sum = values => values.reduce((a, b) => a + b, 0);

// Round numbers between `low` and `high`, about `count` of them.
function ticks(low, high, count) {
  const rough = (high - low) / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map(factor => factor * power).find(size => size >= rough * 0.999);
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high * (1 + 1e-9); ++i) found.push(i * step || 0);
  return found;
}

const linear = (low, high, from, to) => value => from + ((value - low) / (high - low)) * (to - from);

// Draws a figure, and again whenever its width changes; what it returns draws anew.
function draw_in(id, draw) {
  const place = by_id(id);
  let last = 0;
  const redraw = force => {
    const width = Math.floor(place.clientWidth);
    if (width > 0 && (width !== last || force)) place.replaceChildren(draw((last = width)));
  };
  new ResizeObserver(() => redraw(false)).observe(place);
  redraw(false);
  return () => redraw(true);
}

// A picture with room at its left and top, and what it shows in words.
function picture(width, height, {left, top}, label, ...children) {
  return svg("svg", {width, height, role: "img", "aria-label": label},
    svg("g", {transform: `translate(${left},${top})`}, children));
}

function bottom_axis(values, x, height, format, title, width) {
  const lines = values.map(value => [
    svg("line", {class: "grid", x1: x(value), x2: x(value), y1: 0, y2: height}),
    svg("text", {class: "middle", x: x(value), y: height + 17}, format(value)),
  ]);
  return [lines, svg("text", {class: "end title", x: width, y: height + 35}, title)];
}

function left_axis(values, y, width) {
  return values.map(value => [
    svg("line", {class: "grid", x1: 0, x2: width, y1: y(value), y2: y(value)}),
    svg("text", {class: "end", x: -8, y: y(value) + 4}, grouped(value)),
  ]);
}

// Entries of name and colour.
function legend(id, entries, look = "") {
  const swatch = colour => html("i", {class: look, style: `background: ${colour}`});
  put(id, entries.map(([name, colour]) => html("span", {}, swatch(colour), name)));
}

// The one tooltip: near a place of the window, and read out by screen readers.
function show_tip(x, y, ...children) {
  const tip = put("tip", children);
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  const left = x + 14 + box.width > innerWidth - 8 ? x - 14 - box.width : x + 14;
  const top = y + 14 + box.height > innerHeight - 8 ? y - 14 - box.height : y + 14;
  tip.style.left = `${Math.max(8, Math.min(left, innerWidth - 8 - box.width))}px`;
  tip.style.top = `${Math.max(8, top)}px`;
}

function hide_tip() {
  by_id("tip").hidden = true;
}

const quiet = text => html("span", {class: "quiet"}, text);

// While the pointer is over `node`, `find(x, y)` gets its place there and answers with the tip's children or nothing.
function tip_over(node, find) {
  node.addEventListener("pointermove", event => {
    const box = node.getBoundingClientRect();
    const found = find(event.clientX - box.left, event.clientY - box.top);
    if (found) show_tip(event.clientX, event.clientY, ...found);
    else hide_tip();
  });
  node.addEventListener("pointerleave", hide_tip);
}

// Columns of {name, number, head, look} and rows of {cells, look}; a cell is a text or a node.
function table(columns, rows) {
  const look = column => ({class: column.number ? "number" : column.look});
  const cell = (content, column) =>
    html(column.head ? "th" : "td", {...look(column), scope: column.head ? "row" : undefined}, content);
  return html("table", {},
    html("thead", {}, html("tr", {}, columns.map(column => html("th", {scope: "col", ...look(column)}, column.name)))),
    html("tbody", {}, rows.map(row =>
      html("tr", {class: row.look}, row.cells.map((content, i) => cell(content, columns[i]))))));
}

const numbers = (...names) => names.map(name => ({name, number: true}));

function facts(id, pairs) {
  put(id, pairs.filter(pair => pair[1]).map(([name, value]) => [html("dt", {}, name), html("dd", {}, value)]));
}
