// Reads the data and shows every section that has some.

// Keys without the ending that says their unit: parameters_bytes -> parameters.
function without(ending, object) {
  return Object.fromEntries(Object.entries(object).map(([key, value]) => [key.replace(ending, ""), value]));
}

// A plan of the JSON document with the fields that points have as well.
function read_plan(plan) {
  const memory = plan.memory.per_stage.map(part => without("_bytes", part)), totals = memory.map(total_of);
  const worst = totals.indexOf(largest(totals));
  return {...plan, ...plan.mesh, memory, worst, memory_bytes: totals[worst], speed: plan.tokens_per_second_per_gpu,
    traffic: plan.communication.per_stage, time: without("_seconds", plan.time)};
}

const kSettings = ["pp", "dp", "fsdp", "tp", "virtual_stages", "zero", "micro_batch", "schedule", "recompute",
  "sequence_parallel", "regather", "accumulate"];

// Points of plans that were simulated take the simulated figures.
function read_points({points: {columns, rows}, plans}) {
  const points = rows.map(row => Object.fromEntries(columns.map((column, i) => [column, row[i]])));
  for (const point of points) point.speed = point.tokens_per_second_per_gpu;
  for (const plan of plans) {
    let point = points.find(one => !one.plan && kSettings.every(key => one[key] === plan[key]));
    if (!point) points.push((point = {...plan}));
    Object.assign(point, {plan, memory_bytes: plan.memory_bytes, speed: plan.speed, fits: plan.fits});
  }
  return points;
}

function read_data() {
  const data = JSON.parse(by_id("report-data").textContent);
  data.plans = data.plans.map(read_plan);
  data.points = data.points ? read_points(data) : [];
  return data;
}

function set_theme() {
  const theme = new URLSearchParams(location.search).get("theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
}

function show_best(data, best) {
  show_memory(data, best);
  new Timeline(data, best).start();
  show_traffic(data, best);
}

// Whoever tests the page finds on its root that it was drawn, or the error.
function start() {
  addEventListener("error", event => (document.documentElement.dataset.error = event.message));
  set_theme();
  const data = read_data(), best = data.plans[0];
  show_answer(data, best);
  const scatter = data.points.length ? new Scatter(data, best) : undefined;
  scatter?.start();
  if (best) show_best(data, best);
  if (data.points.length) show_heat(data, best);
  if (data.scaling) show_scaling(data.scaling);
  if (data.plans.length > 1) show_plans(data, scatter);
  if (data.rejected) show_rejected(data);
  show_model_facts(data);
  show_hardware_facts(data);
  show_method(data);
  document.documentElement.dataset.drawn = "true";
}
