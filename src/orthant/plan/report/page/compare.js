// Two pinned plans side by side.

function settings_rows(data, a, b) {
  const microbatches = point => data.request.global_batch / (point.dp * point.fsdp * point.micro_batch);
  const settings = {
    ...Object.fromEntries(["pp", "dp", "fsdp", "tp"].map(axis => [axis, point => point[axis]])),
    "schedule": point => (point.pp > 1 ? point.schedule : "–"),
    "stages per pp coordinate": point => point.virtual_stages,
    "micro batch": point => point.micro_batch,
    "microbatches": microbatches,
    "zero": point => (point.fsdp > 1 ? point.zero : "–"),
    "recompute": point => point.recompute,
    "sequence parallel": point => (point.sequence_parallel ? "yes" : "no"),
    "regather": point => (point.regather ? "yes" : "no"),
    "accumulate": point => point.accumulate,
  };
  return Object.entries(settings).map(([name, of]) => {
    const same = of(a) === of(b);
    return {look: same ? "same" : "", cells: [name, String(of(a)), String(of(b)), same ? "" : "differs"]};
  });
}

function figure_rows(data, a, b) {
  const {global_batch, sequence, cards} = data.request;
  const step = point => (global_batch * sequence) / (point.speed * cards);
  const change = (from, to) => (to >= from ? "+" : "−") + percent(Math.abs(to / from - 1));
  const row = (name, of, text) => ({cells: [name, text(of(a)), text(of(b)), change(of(a), of(b))]});
  return [
    row("peak memory of a card", point => point.memory_bytes, memory_text),
    row("tokens/s per GPU", point => point.speed, short),
    row("step", step, seconds_text),
  ];
}

function show_comparison(data, pins, unpin) {
  if (pins.length < 2) {
    put("compare", "");
    return;
  }
  const badge = name => html("span", {class: "badge"}, name);
  const columns = [{name: "Pinned plans", head: true}, ...numbers(badge("A"), badge("B"), "B against A")];
  const button = html("button", {type: "button"}, "Unpin both");
  button.addEventListener("click", () => {
    put("compare", "");
    unpin();
  });
  const rows = [...figure_rows(data, ...pins), ...settings_rows(data, ...pins)];
  put("compare", html("div", {class: "wide comparison"}, table(columns, rows)), html("p", {class: "note"}, button));
}
