// The step as the pp coordinates run it: time to the right, one row per pp coordinate, waiting left hatched.

const kActions = {
  F: ["forward", "var(--forward)"],
  B: ["backward for inputs", "var(--backward)"],
  W: ["backward for weights", "var(--weights)"],
  BW: ["backward", "var(--backward)"],
};
const kZooms = [1, 2, 4, 8];
const kBreak = 0.03;  // of the drawn time, where a stretch in the middle is left out
const kMargin = 6;    // pixels beside the rows, for the axis' first number

class Timeline {
  constructor(data, plan) {
    this.plan = plan;
    this.line = data.timeline;
    const tick = this.line.tick_seconds;
    this.rows_by_pp = this.line.ranks.map(actions => actions.map(([stage, kind, microbatch, start, end]) =>
      ({stage, kind, microbatch, start: start * tick, end: end * tick})));
    const count = this.rows_by_pp.length;
    this.step = count > 32 ? 12 : count > 16 ? 16 : count > 8 ? 22 : 30;
    this.thick = this.step - (this.step > 14 ? 4 : 2);
    this.height = count * this.step;
    [this.from, this.to] = this.line.omitted ?? [Infinity, Infinity];
    const kept = this.line.makespan - (this.line.omitted ? this.to - this.from : 0);
    this.gap = this.line.omitted ? kBreak * kept : 0;
    this.drawn = kept + this.gap;
  }

  start() {
    show("timeline-section");
    const kinds = new Set(this.rows_by_pp.flat().map(action => action.kind));
    const looks = Object.entries(kActions).filter(([kind]) => kinds.has(kind)).map(([, look]) => look);
    legend("timeline-legend", this.rows_by_pp.length > 1 ? [...looks, ["waiting", "var(--hatch)"]] : looks);
    put("timeline-finding", this.finding());
    put("timeline-note", this.note());
    this.zoom = this.readable_zoom(by_id("timeline").clientWidth - 120);
    this.redraw = draw_in("timeline", width => this.draw(width));
    put("timeline-zoom", kZooms.map(zoom => this.zoom_button(zoom)));
  }

  // The smallest that leaves an action some pixels.
  readable_zoom(width) {
    const most = largest(this.rows_by_pp.map(actions => actions.length));
    return kZooms.find(zoom => zoom * width >= 2 * most) ?? kZooms.at(-1);
  }

  zoom_button(zoom) {
    const look = {type: "button", "aria-pressed": String(zoom === this.zoom)};
    const button = html("button", look, zoom === 1 ? "Fit" : `${zoom} ×`);
    button.addEventListener("click", () => {
      this.zoom = zoom;
      for (const other of by_id("timeline-zoom").children) other.setAttribute("aria-pressed", String(other === button));
      this.redraw();
    });
    return button;
  }

  finding() {
    const {plan} = this;
    const stages = plan.virtual_stages > 1 ? `, ${plan.virtual_stages} stages per pp coordinate` : "";
    return [
      plan.pp > 1 ? `${plan.schedule}${stages}: ` : "",
      `${plural(plan.microbatches, "microbatch", "microbatches")} of ${plural(plan.micro_batch, "row")}`,
      plan.pp > 1 ? [". The pp coordinates wait ", bold(percent(this.line.bubble_fraction)), " of the time."] : ".",
    ];
  }

  note() {
    const feet = this.plan.virtual_stages > 1 ? ", a dark foot one of the pp coordinate's further stages" : "";
    const hint = `Hover a block for its stage, microbatch and time. A number in a block is its microbatch${feet}.`;
    if (!this.line.omitted) return hint;
    return `${hint} Begin and end of the step are drawn, ${seconds_text(this.to - this.from)} between them are not.`;
  }

  // Pixels of a time, with the break between what is drawn of begin and end.
  x(time) {
    const place = time <= this.from ? time : time >= this.to ? time - this.to + this.from + this.gap : this.from;
    return kMargin + (place / this.drawn) * this.inner;
  }

  draw(width) {
    const left = 56, right = width < 560 || this.rows_by_pp.length < 2 ? 0 : 76, offset = {left: 0, top: 20};
    this.inner = Math.max(80, (width - left - right) * this.zoom - 2 * kMargin);
    const label = `Schedule of ${plural(this.rows_by_pp.length, "pp coordinate")} over ${seconds_text(this.line.makespan)}`;
    const chart = picture(this.inner + 2 * kMargin, this.height + offset.top + 40, offset, label,
      hatch(), this.axis(), this.waiting(), this.blocks(), this.cut());
    tip_over(chart, (x, y) => this.tip(x, Math.floor((y - offset.top) / this.step)));
    const look = {class: "scroller", tabindex: this.zoom > 1 ? 0 : undefined, role: "group", "aria-label": "Schedule"};
    return html("div", {class: "rows"},
      this.side(left, {class: "end", x: left - 10}, "", pp => `pp ${pp}`),
      html("div", look, chart),
      right ? this.side(right, {x: 10}, "waiting", pp => percent(this.line.bubble_fractions[pp])) : "");
  }

  // A column of words beside the rows, which stays while they scroll.
  side(width, look, title, words) {
    const every = Math.ceil(13 / this.step);
    const lines = this.rows_by_pp.map((_, pp) =>
      pp % every ? "" : svg("text", {...look, y: (pp + 0.5) * this.step + 4}, words(pp)));
    return svg("svg", {width, height: this.height + 60, "aria-hidden": "true"},
      svg("g", {transform: "translate(0,20)"}, svg("text", {...look, y: -8}, title), lines));
  }

  axis() {
    const [, unit] = seconds_parts(this.line.makespan);
    const scale = {"µs": 1e-6, ms: 1e-3, s: 1, min: 60, h: 3600}[unit];
    const count = ((this.line.makespan / this.drawn) * this.inner) / 90;
    const times = ticks(0, this.line.makespan / scale, count)
      .filter(time => time * scale <= this.from || time * scale >= this.to);
    return bottom_axis(times, time => this.x(time * scale), this.height, time => String(Number(time.toPrecision(6))),
      `time, ${unit} →`, this.inner + kMargin);
  }

  waiting() {
    const look = {x: kMargin, width: this.inner, height: this.thick, fill: "url(#hatch)"};
    return this.rows_by_pp.map((_, pp) => svg("rect", {...look, y: this.top_of(pp)}));
  }

  top_of(pp) {
    return pp * this.step + (this.step - this.thick) / 2;
  }

  // The outline of an action, or of a strip of that height at its foot.
  outline(action, pp, height) {
    const from = this.x(action.start), length = this.x(action.end) - from;
    const width = Math.max(0.3, length > 3 ? length - 0.6 : length).toFixed(2);
    const y = this.top_of(pp) + this.thick - height;
    return `M${from.toFixed(2)} ${y.toFixed(1)}h${width}v${height.toFixed(1)}h-${width}z`;
  }

  // One path per kind. Actions of a pp coordinate's second and further stages have a dark foot where there is room.
  blocks() {
    const paths = {}, feet = [], names = [];
    this.rows_by_pp.forEach((actions, pp) => actions.forEach(action => {
      (paths[action.kind] ??= []).push(this.outline(action, pp, this.thick));
      const from = this.x(action.start), to = this.x(action.end), words = String(action.microbatch);
      const later = action.stage >= this.rows_by_pp.length && to - from > 3;
      if (later) feet.push(this.outline(action, pp, 0.16 * this.thick));
      const fits = this.step >= 16 && to - from > 6 + 6.5 * words.length;
      if (fits) names.push(svg("text", {class: "block", x: (from + to) / 2, y: (pp + 0.5) * this.step + 4}, words));
    }));
    return [
      Object.entries(paths).map(([kind, outlines]) => svg("path", {fill: kActions[kind][1], d: outlines.join("")})),
      svg("path", {fill: "var(--label)", "fill-opacity": 0.35, d: feet.join("")}), names,
    ];
  }

  cut() {
    if (!this.line.omitted) return "";
    const x = this.x(this.from), width = this.x(this.to) - x;
    return [
      svg("rect", {x, y: -2, width, height: this.height + 4, fill: "var(--paper)"}),
      svg("text", {class: "middle strong", x: x + width / 2, y: this.height / 2 + 4}, "···"),
    ];
  }

  tip(x, pp) {
    const action = this.rows_by_pp[pp]?.find(one => this.x(one.start) <= x && x < this.x(one.end));
    if (!action) return undefined;
    const {start, end} = action;
    return [bold(`${kActions[action.kind][0]}, microbatch ${action.microbatch}`),
      `stage ${action.stage} on pp ${pp}`,
      quiet(`${seconds_text(start)} to ${seconds_text(end)}: ${seconds_text(end - start)}`)];
  }
}

function hatch() {
  const look = {id: "hatch", width: 5, height: 5, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)"};
  return svg("defs", {}, svg("pattern", look, svg("rect", {width: 5, height: 5, fill: "var(--panel)"}),
    svg("line", {x1: 0, x2: 0, y1: 0, y2: 5, stroke: "var(--rule)", "stroke-width": 1.5})));
}
