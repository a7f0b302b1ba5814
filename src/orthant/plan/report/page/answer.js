// The head of the page: the answer in a sentence, its figures, the command, and what would change it.

function names_of(data) {
  const kind = data.hardware.name.replaceAll("-", "\u2011");
  return {model: data.model.name, cards: `${grouped(data.request.cards)}\u00a0×\u00a0${kind}`};
}

function headline_of(data, best) {
  const {model, cards} = names_of(data);
  if (!best) return `${model} does not fit on ${cards}`;
  if (!best.fits) return `${mesh_text(best)} does not fit: ${model} on ${cards}`;
  return `${mesh_text(best)} trains ${model} on ${cards} at ${short(best.speed)} tokens/s per GPU`;
}

function room_sentence(data, plan) {
  const card = data.hardware.memory_bytes;
  const pp_degree = plan.memory.length;
  const where = pp_degree > 1 ? `pp ${plan.worst}, the fullest of ${pp_degree},` : "each card";
  const held = `${gib_text(plan.memory_bytes)} of ${memory_text(card)}`;
  if (!plan.fits) return `It does not fit: ${plan.why_not || `${where} would need ${held}`}. `;
  const reserve = plan.memory[plan.worst].reserve;
  const kept = reserve > 0 ? `, ${memory_text(reserve)} of them reserve that no tensor has (--reserve changes it),` : "";
  return [
    `It fits: ${where} holds ${held}${kept} and has `, bold(`${memory_text(card - plan.memory_bytes)} to spare`), ". ",
  ];
}

function step_sentence(data, plan) {
  const {global_batch, sequence} = data.request;
  return [
    `A step of ${grouped(global_batch)} sequences of ${grouped(sequence)} tokens `, plan.fits ? "takes " : "would take ",
    bold(seconds_text(plan.time.step)), " at ", bold(`${percent(plan.mfu)} MFU`),
    `: ${scaled((global_batch * sequence) / plan.time.step)} tokens/s in all. `,
  ];
}

function budget_sentence({budget}) {
  if (!budget) return "";
  const cost = budget.dollars > 0 ? [" and cost about ", bold(dollars_text(budget.dollars))] : "";
  return [`${scaled(budget.tokens)} tokens take `, bold(days_parts(budget.days).join(" ")), cost, ". "];
}

function nothing_sentence(data) {
  const reasons = Object.entries(data.rejected), [reason, count] = reasons.reduce((a, b) => (b[1] > a[1] ? b : a));
  const all = sum(reasons.map(([, times]) => times));
  const share = percent(count / all, 0);
  const tried = `None of ${grouped(all)} configurations fits; ${share} are ruled out by “${reason}”. `;
  if (!data.points.length) return tried;
  const least = data.points.reduce((a, b) => (b.memory_bytes < a.memory_bytes ? b : a));
  const card = data.hardware.memory_bytes;
  return [
    tried, "The leanest that was priced, ", bold(mesh_text(least)), ` with ${manner_text(least)}, needs `,
    bold(memory_text(least.memory_bytes)),
    ` per card, ${short(least.memory_bytes / card)} × the ${memory_text(card)} there are.`,
  ];
}

function figure(number, unit, name) {
  return html("div", {}, html("dt", {}, name), html("dd", {}, number, unit ? html("small", {}, ` ${unit}`) : ""));
}

function spare_figure(data, plan) {
  const spare = plan.memory.map(part => data.hardware.memory_bytes - total_of(part));
  const least = smallest(spare);
  const range = `to spare; ${gib_text(least)} to ${gib_text(largest(spare))} over ${spare.length} pp coordinates`;
  const name = least < 0 ? "missing on the fullest card" : spare.length > 1 ? range : "to spare per card";
  return figure(gib_text(Math.abs(least)), "GiB", name);
}

function figures_of(data, plan) {
  const {budget, hardware} = data;
  const list = [
    figure(short(plan.speed), "", "tokens/s per GPU"),
    figure(scaled(plan.speed * data.request.cards), "", "tokens/s in all"),
    figure(grouped(100 * plan.mfu, 1), "%", "MFU"),
    figure(...seconds_parts(plan.time.step), "per step"),
    spare_figure(data, plan),
  ];
  if (budget) list.push(figure(...days_parts(budget.days), `for ${scaled(budget.tokens)} tokens`));
  if (budget?.dollars > 0) {
    list.push(figure(dollars_text(budget.dollars), "", `at $${grouped(hardware.dollars_per_hour, 2)} per GPU hour`));
  }
  return list;
}

// Lines break between options, never between one and its value.
function command_words(words) {
  return words.split(" --").map((option, i) => (i ? [" ", html("span", {}, `--${option}`)] : html("span", {}, option)));
}

async function copy_command() {
  try {
    await navigator.clipboard.writeText(by_id("command").textContent);
  } catch {
    getSelection().selectAllChildren(by_id("command"));
    document.execCommand("copy");
  }
  put("copy", "Copied");
  setTimeout(() => put("copy", "Copy"), 1500);
}

function show_command(line, plan) {
  show("command-section");
  put("command", command_words(line));
  put("command-note", `${mesh_text(plan)}: ${manner_text(plan)}.`);
  by_id("copy").addEventListener("click", copy_command);
}

function show_advice(data, best) {
  if (!data.advice?.length) return;
  show("advice-section");
  if (!best) put("advice-title", "What would fit");
  const line = entry => html("li", {}, html("span", {}, entry.change), html("span", {}, entry.effect));
  put("advice", data.advice.map(line));
}

function show_answer(data, best) {
  const {model, cards} = names_of(data);
  document.title = `${model} on ${cards}`;
  put("kicker", bold(`orthant ${data.kind}`), ` · ${model} · ${cards}`);
  put("headline", headline_of(data, best));
  if (best) {
    put("lede", room_sentence(data, best), step_sentence(data, best), budget_sentence(data), data.simple);
    put("figures", figures_of(data, best));
  } else {
    put("lede", nothing_sentence(data));
    by_id("figures").hidden = true;
  }
  if (data.warnings.length) {
    show("warnings");
    put("warnings", data.warnings.map(text => html("li", {}, text)));
  }
  if (best?.fits && best.cp * best.ep === 1) show_command(data.run, best);  // `train` has neither axis
  show_advice(data, best);
}
