// The best plans, the reasons of the others, and the facts that the figures rest on.

function plan_cells(plan, i, button) {
  const schedule = plan.virtual_stages > 1 ? `${plan.schedule} × ${plan.virtual_stages}` : plan.schedule;
  return [
    String(i + 1), ...[plan.pp, plan.dp, plan.fsdp, plan.tp].map(degree => grouped(degree)),
    plan.pp > 1 ? schedule : "–", grouped(plan.micro_batch), plan.fsdp > 1 ? String(plan.zero) : "–", plan.recompute,
    plan.sequence_parallel ? "yes" : "no",
    gib_text(plan.memory_bytes), short(plan.speed), percent(plan.mfu), seconds_text(plan.time.step),
    percent(plan.time.bubble / plan.time.step), button,
  ];
}

function pin_button(scatter, plan, i) {
  const point = scatter?.points.find(one => one.plan === plan);
  if (!point || i === 0) return "";
  const button = html("button", {type: "button", "aria-label": `Compare plan ${i + 1} with another`}, "Compare");
  button.addEventListener("click", () => {
    if (!scatter.pins.includes(point)) scatter.pin(point);
    by_id("compare").scrollIntoView({block: "center"});
  });
  return button;
}

function show_plans(data, scatter) {
  const columns = [...numbers("", "pp", "dp", "fsdp", "tp"), {name: "schedule"}, ...numbers("micro batch", "zero"),
    {name: "recompute"}, {name: "seq. par."}, ...numbers("peak GiB", "tokens/s/GPU", "MFU", "step", "bubble"),
    {name: ""}];
  show("plans-section");
  put("plans", table(columns, data.plans.map((plan, i) =>
    ({look: i ? "" : "first", cells: plan_cells(plan, i, pin_button(scatter, plan, i))}))));
}

function show_rejected(data) {
  const reasons = Object.entries(data.rejected).sort((a, b) => b[1] - a[1]);
  if (!reasons.length) return;
  show("rejected-section");
  const most = reasons[0][1], all = sum(reasons.map(([, count]) => count));
  const bar = count => html("span", {style: `width: ${((100 * count) / most).toFixed(2)}%; background: var(--mute)`});
  put("rejected-finding", `${plural(all, "configuration")}, by the first rule that each of them breaks.`);
  const columns = [{name: "reason", head: true, look: "text"}, ...numbers("configurations"), {name: "", look: "bar"}];
  put("rejected", table(columns, reasons.map(([reason, count]) => ({cells: [reason, grouped(count), bar(count)]}))));
}

function show_model_facts({model, request}) {
  const fewer = model.kv_heads < model.heads ? `, ${grouped(model.kv_heads)} for keys and values` : "";
  const experts = model.experts ? `, ${scaled(model.active_parameters)} of them for a token` : "";
  facts("model-facts", [
    ["model", model.name], ["parameters", scaled(model.parameters) + experts],
    ["layers", model.layers && grouped(model.layers)], ["hidden size", model.hidden && grouped(model.hidden)],
    ["heads", model.heads && grouped(model.heads) + fewer],
    ["experts", model.experts && grouped(model.experts)], ["vocabulary", model.vocab && grouped(model.vocab)],
    ["global batch", `${grouped(request.global_batch)} sequences of ${grouped(request.sequence)} tokens`],
    ["numbers", `products ${request.compute}, parameters ${request.params}, gradients ${request.gradients}`],
    ["attention", request.flash ? "fused" : "not fused"], ["strategy", request.strategy],
  ]);
}

function show_hardware_facts({hardware, request}) {
  const reached = one => `${percent(one.efficiency, 0)} of it reached`;
  const link = one => one.bandwidth > 0 &&
    `${one.name}, ${short(one.bandwidth / 1e9)} GB/s per card and direction, ${reached(one)}`;
  facts("hardware-facts", [
    ["cards", `${grouped(request.cards)} × ${hardware.name}, ${hardware.cards_per_node} per host`],
    ["memory", memory_text(hardware.memory_bytes)], ["peak, 16 bits", `${short(hardware.peak_flops / 1e12)} TFLOP/s`],
    ["memory bandwidth", `${short(hardware.memory_bandwidth / 1e12)} TB/s`], ["within a host", link(hardware.local)],
    ["between hosts", link(hardware.network)],
    ["price", hardware.dollars_per_hour > 0 ? `$${grouped(hardware.dollars_per_hour, 2)} per GPU hour` : "not known"],
    ["source", hardware.description],
  ]);
}

function show_method(data) {
  const again = data.plans.length ? "; the best were priced again by simulating the schedule that would run" : "";
  const searched = () => {
    if (!data.evaluated) return "No configuration was worth pricing. ";
    const time = seconds_text(data.search_seconds);
    return `${plural(data.evaluated, "configuration")} were priced by closed forms in ${time}${again}. `;
  };
  put("method", data.kind === "plan" ? searched() : "The schedule that would run was simulated. ",
    "How each figure is made, and how it compares with measured runs, is described in ",
    html("code", {}, "docs/planner.md"), ". MFU counts the model's own products; what is made again in backward is ",
    "not counted. GiB = 2³⁰ bytes, GB = 10⁹. ",
    data.command ? ["Made by ", html("code", {}, data.command), "."] : "");
}
