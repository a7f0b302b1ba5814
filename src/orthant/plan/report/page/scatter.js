// Every priced plan by memory and speed, and the front of those that nothing beats in both.

const kPinNames = ["A", "B"];
const kReach = 24;  // pixels from which the pointer finds a point

// Fitting plans that no other beats in memory and speed, by memory.
function pareto_front(points) {
  const front = [];
  const fits = points.filter(point => point.fits).sort((a, b) => a.memory_bytes - b.memory_bytes || b.speed - a.speed);
  for (const point of fits) if (!front.length || point.speed > front.at(-1).speed) front.push(point);
  return front;
}

// Colours of the values of a setting: numbers ascending, names by first use.
function colours_of(points, key) {
  const values = [...new Set(points.map(point => point[key]))];
  if (typeof values[0] === "number") values.sort((a, b) => a - b);
  const spread = values.length > 1 ? Math.max(1, 4 / (values.length - 1)) : 1;
  return new Map(values.map((value, i) => [value, `var(--scale-${Math.min(6, Math.round(i * spread))})`]));
}

class Scatter {
  constructor(data, best) {
    this.data = data;
    this.points = data.points;
    this.card = data.hardware.memory_bytes;
    this.front = pareto_front(this.points);
    this.best = best && this.points.find(point => point.plan === best);
    this.pins = this.best ? [this.best] : [];
    this.walk = -1;  // place on the front that the keyboard is at
    const sizes = this.points.map(point => point.memory_bytes);
    const least = smallest(sizes);
    this.right = Math.min(Math.max(largest(sizes), 1.05 * this.card), 1.6 * Math.max(this.card, least));
    this.left = least < 0.3 * this.right || !this.front.length ? 0 : least - 0.06 * (this.right - least);
    this.shown = this.points.filter(point => point.memory_bytes <= this.right);
  }

  start() {
    show("scatter-section");
    put("scatter-finding", this.finding());
    put("scatter-note", this.note());
    by_id("scatter-colour").addEventListener("change", () => this.recolour());
    this.set_colours();
    this.redraw = draw_in("scatter", width => this.draw(width));
  }

  finding() {
    if (!this.front.length) return "Every plan lies beyond the card's memory.";
    const words = point => bold(`${memory_text(point.memory_bytes)} at ${speed_text(point.speed)}`);
    const [lean] = this.front;
    if (this.front.length === 1) return ["One plan is both the leanest and the fastest: ", words(lean), " per GPU."];
    return ["The line joins the plans that nothing beats in both: from ", words(lean), " to ",
      words(this.front.at(-1)), " per GPU."];
  }

  note() {
    const beyond = this.points.length - this.shown.length;
    return [
      `${grouped(this.points.length)} of ${grouped(this.data.evaluated)} priced plans are drawn`,
      beyond ? `; ${grouped(beyond)} of those need more than ${memory_text(this.right)} and lie outside. ` : ". ",
      "The best plans stand where their simulated schedule puts them, the others where closed forms do. ",
      "Click a point to pin it, and another to compare; with the keyboard, arrows walk along the front and Enter pins.",
    ];
  }

  set_colours() {
    this.key = by_id("scatter-colour").value;
    this.colours = colours_of(this.points.filter(point => point.fits), this.key);
    const names = [...this.colours].map(([value, colour]) => [`${this.key} ${value}`, colour]);
    legend("scatter-legend", [...names, ["does not fit", "var(--mute)"]], "dot");
  }

  recolour() {
    this.set_colours();
    this.redraw();
  }

  draw(width) {
    const height = width < 560 ? 300 : 420;
    this.offset = {left: 52, top: 40};
    const inner = width - this.offset.left - 12;
    const speeds = this.shown.map(point => point.speed);
    const fastest = largest(speeds), slowest = smallest(speeds);
    const low = slowest < fastest / 2 ? 0 : slowest - 0.08 * (fastest - slowest || fastest);
    this.x = linear(this.left, this.right, 0, inner);
    this.y = linear(low, fastest + 0.06 * (fastest - low), height, 0);
    this.marks = svg("g");
    const label = `${this.shown.length} plans by peak memory of a card in GiB and tokens per second and GPU`;
    this.node = picture(width, height + this.offset.top + 42, this.offset, label,
      this.frame(inner, height, ticks(low, fastest, height / 70)), this.dots(), this.line(), this.marks);
    this.node.setAttribute("tabindex", 0);
    this.mark();
    this.listen(this.node);
    return this.node;
  }

  frame(width, height, rows) {
    const columns = ticks(gib(this.left), gib(this.right), width / 90);
    const card = this.x(this.card);
    return [
      svg("rect", {x: card, y: 0, width: width - card, height, fill: "var(--panel)"}),
      bottom_axis(columns, value => this.x(value * 2 ** 30), height, grouped, "peak memory of a card, GiB →", width),
      left_axis(rows, this.y, width),
      svg("text", {class: "title", x: -this.offset.left, y: -26}, "↑ tokens/s per GPU"),
      svg("line", {class: "card", x1: card, x2: card, y1: -5, y2: height}),
      svg("text", {class: card > width / 2 ? "end strong" : "strong", x: card, y: -10},
        `card ${memory_text(this.card)}`),
    ];
  }

  place(point) {
    return `${this.x(point.memory_bytes).toFixed(1)} ${this.y(point.speed).toFixed(1)}`;
  }

  // One path per colour: dots are strokes of no length with round ends.
  dots() {
    const path = (points, look) => svg("path", {fill: "none", "stroke-linecap": "round", ...look,
      d: points.map(point => `M${this.place(point)}h0`).join("")});
    const fits = this.shown.filter(point => point.fits), others = this.shown.filter(point => !point.fits);
    const grey = this.front.length ? {stroke: "var(--mute)", "stroke-opacity": 0.55} : {stroke: "var(--soft)"};
    return [path(others, {"stroke-width": 3.5, ...grey}), [...this.colours].map(([value, stroke]) =>
      path(fits.filter(point => point[this.key] === value), {stroke, "stroke-width": 5.5, "stroke-opacity": 0.85}))];
  }

  // Steps: between two plans of the front the leaner one is the best there is.
  line() {
    const steps = this.front.map((point, i) => {
      const [x, y] = this.place(point).split(" ");
      return i ? `H${x}V${y}` : `M${x} ${y}`;
    });
    return svg("path", {fill: "none", stroke: "var(--ink)", "stroke-width": 1.25, d: steps.join("")});
  }

  // Rings around the pins and the point under the pointer.
  mark() {
    const ring = (point, r, fill) => svg("circle", {cx: this.x(point.memory_bytes), cy: this.y(point.speed), r, fill,
      stroke: "var(--ink)", "stroke-width": 1.75});
    const name = point => kPinNames[this.pins.indexOf(point)] + (point === this.best ? ", best" : "");
    const marks = this.pins.filter(point => this.shown.includes(point)).map(point => [ring(point, 7, "none"),
      svg("text", {class: "strong end halo", x: this.x(point.memory_bytes) - 8, y: this.y(point.speed) - 8},
        name(point))]);
    if (this.over) marks.push(ring(this.over, 5, "var(--paper)"));
    this.marks.replaceChildren(...marks.flat());
  }

  // Of points at the same place one that fits is found first.
  nearest(x, y) {
    let found, least = kReach ** 2;
    for (const point of this.shown) {
      const across = this.x(point.memory_bytes) - x + this.offset.left;
      const down = this.y(point.speed) - y + this.offset.top;
      const distance = across ** 2 + down ** 2 - (point.fits ? 16 : 0);
      if (distance < least) [found, least] = [point, distance];
    }
    return found;
  }

  tip(point) {
    const over = `${memory_text(point.memory_bytes - this.card)} over the card's ${memory_text(this.card)}`;
    return [bold(mesh_text(point)), manner_text(point),
      quiet(`${memory_text(point.memory_bytes)}, ${speed_text(point.speed)} per GPU`),
      point.fits ? "" : html("span", {class: "bad"}, `does not fit: ${over}`)];
  }

  hover(point) {
    this.over = point;
    this.mark();
    if (!point) hide_tip();
  }

  listen(node) {
    tip_over(node, (x, y) => {
      this.hover(this.nearest(x, y));
      return this.over && this.tip(this.over);
    });
    node.addEventListener("pointerleave", () => this.hover(undefined));
    node.addEventListener("blur", () => this.hover(undefined));
    node.addEventListener("keydown", event => this.press(event));
    node.addEventListener("click", event => {
      const box = node.getBoundingClientRect();
      const point = this.nearest(event.clientX - box.left, event.clientY - box.top);
      if (point) this.pin(point);
    });
  }

  press(event) {
    const step = {ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1}[event.key];
    if (event.key === "Escape") this.hover(undefined);
    else if ((event.key === "Enter" || event.key === " ") && this.over) this.pin(this.over);
    else if (step) this.walk_by(step);
    else return;
    event.preventDefault();
  }

  walk_by(step) {
    const path = this.front.length ? this.front : this.shown;
    this.walk = Math.max(0, Math.min(path.length - 1, this.walk + step));
    const point = path[this.walk], box = this.node.getBoundingClientRect();
    this.hover(point);
    show_tip(box.left + this.offset.left + this.x(point.memory_bytes), box.top + this.offset.top + this.y(point.speed),
      ...this.tip(point));
  }

  // A pinned point is let go; a third one takes the second's place.
  pin(point) {
    const others = this.pins.filter(other => other !== point);
    this.pins = others.length < this.pins.length ? others : [...others.slice(0, 1), point];
    this.mark();
    show_comparison(this.data, this.pins, () => {
      this.pins = [];
      this.mark();
    });
  }
}
