// How speed per GPU holds as GPUs are added.

const per_card = point => point.tokens_per_second / point.cards;

// What is said at one count: the cards, and what is kept of the smallest count's speed.
function scaling_mark(point, x, y, height, named) {
  const count = named ? svg("text", {class: "middle", x, y: height + 18}, grouped(point.cards)) : "";
  if (!point.fits) return [count, svg("text", {class: "middle", x, y: height - 8}, "×")];
  return [count, svg("circle", {cx: x, cy: y, r: 4, fill: "var(--accent)"}),
    named ? svg("text", {class: "middle strong", x, y: y + 20}, percent(point.efficiency, 0)) : ""];
}

function draw_scaling(points, width) {
  const offset = {left: 52, top: 34}, height = 230, inner = width - offset.left - 20;
  const fits = points.filter(point => point.fits), first = Math.log2(points[0].cards);
  const across = linear(first, Math.max(Math.log2(points.at(-1).cards), first + 1), 14, inner - 14);
  const x = point => across(Math.log2(point.cards));
  const high = 1.12 * largest(fits.map(per_card)), down = linear(0, high, height, 0);
  const y = point => down(per_card(point));
  const every = Math.ceil((points.length * 46) / inner), level = y(fits[0]);
  const path = fits.map((point, i) => `${i ? "L" : "M"}${x(point).toFixed(1)} ${y(point).toFixed(1)}`).join("");
  const node = picture(width, height + offset.top + 44, offset, "Tokens per second and GPU by number of GPUs",
    left_axis(ticks(0, high, 5), down, inner),
    svg("line", {x1: x(fits[0]), x2: inner, y1: level, y2: level, stroke: "var(--soft)", "stroke-dasharray": "4 4"}),
    svg("text", {class: "title", x: -offset.left, y: -18}, "↑ tokens/s per GPU"),
    svg("path", {fill: "none", stroke: "var(--accent)", "stroke-width": 2, d: path}),
    points.map((point, i) => scaling_mark(point, x(point), y(point), height, (points.length - 1 - i) % every === 0)),
    svg("text", {class: "end title", x: inner, y: height + 38}, "GPUs →"));
  const distance = (point, place) => Math.abs(x(point) + offset.left - place);
  tip_over(node, place => scaling_tip(points.reduce((a, b) => (distance(b, place) < distance(a, place) ? b : a))));
  return node;
}

function scaling_tip(point) {
  if (!point.fits) return [bold(plural(point.cards, "GPU")), html("span", {class: "bad"}, point.why_not)];
  return [bold(`${plural(point.cards, "GPU")}: ${scaled(point.tokens_per_second)} tokens/s`), mesh_words(point.mesh),
    quiet(`${percent(point.efficiency)} of the speed per GPU of the smallest count, ${percent(point.mfu)} MFU`)];
}

function scaling_table(points) {
  const columns = [...numbers("GPUs", "batch", "tokens/s", "MFU", "per GPU"), {name: "mesh"}];
  return table(columns, points.map(point => {
    const size = [grouped(point.cards), grouped(point.global_batch)];
    if (!point.fits) return {cells: [...size, "–", "–", "–", point.why_not]};
    const figures = [scaled(point.tokens_per_second), percent(point.mfu), percent(point.efficiency)];
    return {cells: [...size, ...figures, mesh_words(point.mesh)]};
  }));
}

function show_scaling({points, scaling}) {
  const fits = points.filter(point => point.fits), last = fits.at(-1);
  if (fits.length < 2) return;
  show("scaling-section");
  put("scaling-finding",
    scaling === "strong" ? "With the same global batch, " : "With a batch that grows with the GPUs, ",
    `${grouped(last.cards)} GPUs reach `, bold(`${scaled(last.tokens_per_second)} tokens/s`), ", each at ",
    bold(percent(last.efficiency, 0)), ` of its speed among ${grouped(fits[0].cards)}.`);
  draw_in("scaling", width => draw_scaling(points, width));
  put("scaling-table", scaling_table(points));
}
