// What each pp coordinate's card holds, stacked, against the card's memory.

const kParts = ["parameters", "gradients", "optimizer", "activations", "logits", "temporary", "reserve"];
const total_of = part => sum(kParts.map(name => part[name]));

function memory_finding(data, plan) {
  const fullest = plan.memory[plan.worst];
  const main = kParts.reduce((a, b) => (fullest[b] > fullest[a] ? b : a));
  return [
    plan.memory.length > 1 ? `pp ${plan.worst} is fullest: ` : "Each card holds the same: ",
    bold(memory_text(plan.memory_bytes)), ` of ${memory_text(data.hardware.memory_bytes)}. The largest part is `,
    bold(main), ` with ${memory_text(fullest[main])} (${percent(fullest[main] / plan.memory_bytes, 0)}).`,
  ];
}

// Boxes of one pp coordinate's parts, end to end.
function memory_boxes(part, x, y, height) {
  let from = 0;
  return kParts.filter(name => part[name] > 0).map(name => {
    const left = x(from), right = x((from += part[name]));
    return svg("rect", {x: left, y, width: Math.max(0, right - left - 0.75), height, fill: `var(--${name})`});
  });
}

function memory_words(bytes, card, narrow) {
  if (narrow) return gib_text(bytes);
  return `${memory_text(bytes)}, ${gib_text(Math.abs(card - bytes))} ${bytes <= card ? "free" : "over"}`;
}

function draw_memory(data, plan, width) {
  const card = data.hardware.memory_bytes, rows = plan.memory, narrow = width < 560;
  const step = rows.length > 24 ? 18 : rows.length > 8 ? 24 : 34, thick = step - (step > 20 ? 10 : 5);
  const offset = {left: rows.length > 1 ? 56 : 0, top: 28}, inner = width - offset.left - (narrow ? 54 : 140);
  const most = 1.02 * Math.max(card, largest(rows.map(total_of))), height = rows.length * step;
  const x = linear(0, most, 0, inner);
  const bars = rows.map((part, pp) => {
    const y = pp * step + (step - thick) / 2, middle = (pp + 0.5) * step + 4, total = total_of(part);
    return [
      rows.length > 1 ? svg("text", {class: "end", x: -10, y: middle}, `pp ${pp}`) : "",
      memory_boxes(part, x, y, thick),
      svg("text", {class: pp === plan.worst ? "strong" : "", x: x(Math.max(total, card)) + 10, y: middle},
        memory_words(total, card, narrow)),
    ];
  });
  const axis = bottom_axis(ticks(0, gib(most), inner / 90), value => x(value * 2 ** 30), height, grouped,
    "memory of a card, GiB →", x(most));
  const node = picture(width, height + offset.top + 40, offset,
    `Memory of ${rows.length} pp coordinates against a card of ${memory_text(card)}`, axis, bars,
    svg("line", {class: "card", x1: x(card), x2: x(card), y1: -6, y2: height}),
    svg("text", {class: "strong end", x: x(card), y: -12}, `card ${memory_text(card)}`));
  tip_over(node, (px, py) =>
    memory_tip(rows, Math.floor((py - offset.top) / step), ((px - offset.left) / inner) * most));
  return node;
}

function memory_tip(rows, pp, bytes) {
  if (!rows[pp] || bytes < 0) return undefined;
  const total = total_of(rows[pp]);
  let from = 0;
  for (const name of kParts) {
    const size = rows[pp][name];
    from += size;
    const share = quiet(`${percent(size / total)} of ${memory_text(total)}`);
    if (bytes < from) return [bold(`${name}, pp ${pp}`), memory_text(size), share];
  }
  return undefined;
}

function memory_table(data, plan) {
  const columns = [{name: "pp", head: true}, ...numbers(...kParts, "total", "free")];
  const rows = plan.memory.map((part, pp) => {
    const sizes = [...kParts.map(name => part[name]), total_of(part), data.hardware.memory_bytes - total_of(part)];
    const look = pp === plan.worst && plan.memory.length > 1 ? "first" : "";
    return {look, cells: [String(pp), ...sizes.map(bytes => grouped(gib(bytes), 2))]};
  });
  return table(columns, rows);
}

function show_memory(data, plan) {
  show("memory-section");
  put("memory-finding", memory_finding(data, plan));
  const used = kParts.filter(name => plan.memory.some(part => part[name] > 0));
  legend("memory-legend", used.map(name => [name, `var(--${name})`]));
  draw_in("memory", width => draw_memory(data, plan, width));
  put("memory-table", memory_table(data, plan));
}
