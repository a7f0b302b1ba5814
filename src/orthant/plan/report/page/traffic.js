// Where a step's time goes, and what travels over each axis and link.

const kTimes = {
  compute: ["compute", "var(--parameters)"],
  exposed_communication: ["waiting for communication", "var(--activations)"],
  bubble: ["pipeline bubble", "var(--reserve)"],
  optimizer: ["optimizer", "var(--optimizer)"],
};
const kCargo = {
  tp: "activations and their gradients",
  pp: "activations between stages",
  dp: "gradients of replicas",
  fsdp: "parameters and gradients",
  tied: "gradients of tied parameters",
  cp: "keys and values",
  ep: "tokens of experts",
};

function draw_time(plan, width) {
  const keys = Object.keys(kTimes).filter(key => plan.time[key] > 0), all = sum(keys.map(key => plan.time[key]));
  const x = linear(0, all, 0, width);
  let from = 0;
  const boxes = keys.map(key => {
    const [name, fill] = kTimes[key], left = x(from), right = x((from += plan.time[key]));
    return svg("rect", {x: left, y: 0, width: Math.max(0.75, right - left - 0.75), height: 26, fill},
      svg("title", {}, `${name}: ${seconds_text(plan.time[key])}`));
  });
  const names = keys.map(key => html("span", {}, html("i", {style: `background: ${kTimes[key][1]}`}), kTimes[key][0],
    bold(`${seconds_text(plan.time[key])}, ${percent(plan.time[key] / all)}`)));
  return html("div", {}, picture(width, 26, {left: 0, top: 0}, "Parts of a step's time", boxes),
    html("div", {class: "legend times"}, names));
}

function traffic_row(data, plan, pp, axis, longest) {
  const {calls, bytes, seconds, exposed_seconds} = plan.traffic[pp][axis];
  const bar = (length, colour) =>
    html("span", {style: `width: ${((100 * length) / longest).toFixed(2)}%; background: ${colour}`});
  return {cells: [
    plan[axis] ? `${axis} ${plan[axis]}` : axis, kCargo[axis], data.links[axis] ?? "–", grouped(calls),
    bytes_text(bytes), seconds_text(seconds), seconds_text(exposed_seconds),
    [bar(exposed_seconds, "var(--activations)"), bar(Math.max(0, seconds - exposed_seconds), "var(--temporary)")],
  ]};
}

function show_pp_traffic(data, plan, pp) {
  const used = Object.keys(kCargo).filter(axis => plan.traffic[pp][axis].calls > 0);
  const longest = largest(used.map(axis => plan.traffic[pp][axis].seconds));
  const columns = [{name: "axis", head: true}, {name: "what travels"}, {name: "link"},
    ...numbers("calls", "payload", "time alone", "exposed"), {name: "exposed and hidden time", look: "bar"}];
  put("traffic", table(columns, used.map(axis => traffic_row(data, plan, pp, axis, longest))));
}

function pp_select(data, plan, chosen) {
  const select = html("select", {}, plan.traffic.map((_, pp) =>
    html("option", {value: pp, selected: pp === chosen}, `pp ${pp}`)));
  select.addEventListener("change", () => show_pp_traffic(data, plan, Number(select.value)));
  return html("label", {}, "Communication of pipeline ", select);
}

function time_finding(plan, pp) {
  const exposed = axis => plan.traffic[pp][axis].exposed_seconds;
  const worst = Object.keys(kCargo).reduce((a, b) => (exposed(b) > exposed(a) ? b : a));
  const where = plan.traffic.length > 1 ? ` on pp ${pp}` : "";
  return [
    "Products and kernels take ", bold(percent(plan.time.compute / plan.time.step)), " of the step. ",
    exposed(worst) > 0
      ? ["Of what travels, ", bold(worst), ` is waited for longest: ${seconds_text(exposed(worst))} per step${where}.`]
      : "Nothing that travels is waited for.",
  ];
}

function show_traffic(data, plan) {
  show("time-section");
  draw_in("time", width => draw_time(plan, width));
  const exposed = plan.traffic.map(pp => sum(Object.values(pp).map(one => one.exposed_seconds)));
  const worst = exposed.indexOf(largest(exposed));
  put("time-finding", time_finding(plan, worst));
  if (!Object.values(plan.traffic[worst]).some(one => one.calls > 0)) return;
  if (plan.traffic.length > 1) put("traffic-controls", pp_select(data, plan, worst));
  show_pp_traffic(data, plan, worst);
  put("traffic-note", "Per card and step. Payload: bytes of the tensors handed to a call. Time alone: as if nothing ",
    "ran beside it; exposed: the part that nothing hides.");
}
