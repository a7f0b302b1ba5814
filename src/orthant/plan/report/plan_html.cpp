#include "orthant/plan/report/plan_html.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "orthant/base/error.h"
#include "orthant/plan/estimate/collective_time.h"
#include "orthant/plan/plan_data.h"
#include "orthant/plan/report/plan_json.h"

namespace orthant {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMostActions = 384;  // of a pp coordinate: 64 microbatches of F, B and W in two stages
constexpr double kTicks = 1e6;             // of a drawn schedule; actions begin and end on whole ones

Json model_document(const PlanModel& model) {
  Json document = {{"name", model.name}, {"parameters", model.num_parameters()}};
  if (!model.shape) return document;
  const TransformerShape& shape = *model.shape;
  document.update({{"layers", shape.layers},
                   {"hidden", shape.hidden},
                   {"heads", shape.heads},
                   {"kv_heads", shape.kv_heads},
                   {"vocab", shape.vocab},
                   {"experts", shape.experts},
                   {"active_parameters", shape.active_parameters()}});
  return document;
}

// Its file, with the name that files have instead of a key.
Json hardware_document(const Hardware& hardware) {
  Json document = {{"name", hardware.name}};
  document.update(Json::parse(to_json(hardware)));
  return document;
}

Json request_document(const PlanSettings& settings, int cards) {
  return {{"cards", cards},
          {"global_batch", settings.global_batch},
          {"sequence", settings.sequence},
          {"flash", settings.flash},
          {"params", dtype_name(settings.params)},
          {"compute", dtype_name(settings.compute)},
          {"gradients", dtype_name(settings.gradients)}};
}

Json request_document(const SearchRequest& request) {
  PlanSettings settings;
  settings.global_batch = request.global_batch;
  settings.sequence = request.sequence;
  settings.params = request.params;
  settings.compute = request.compute;
  settings.gradients = request.gradients;
  Json document = request_document(settings, request.cards);
  document["strategy"] = strategy_name(request.strategy);
  return document;
}

// Rows of numbers and words under one list of names: a page has thousands.
Json points_document(const std::vector<PricedPoint>& points) {
  Json rows = Json::array();
  for (const PricedPoint& point : points) {
    rows.push_back({point.pp, point.dp, point.fsdp, point.tp, point.virtual_stages, point.zero, point.micro_batch,
                    point.schedule, plan_recompute_name(point.recompute), point.sequence_parallel, point.regather,
                    point.accumulate_sharded ? "sharded" : "full", std::llround(point.memory_bytes),
                    std::round(100 * point.tokens_per_second_per_gpu) / 100, point.fits});
  }
  return {{"columns",
           {"pp", "dp", "fsdp", "tp", "virtual_stages", "zero", "micro_batch", "schedule", "recompute",
            "sequence_parallel", "regather", "accumulate", "memory_bytes", "tokens_per_second_per_gpu", "fits"}},
          {"rows", rows}};
}

// Of each axis, the slowest link that its groups use.
Json links_document(const Mesh& mesh, const Hardware& hardware) {
  Json document = Json::object();
  for (const Axis axis : mesh.active_axes()) {
    document[std::string(axis_name(axis))] = link_of(span_of(mesh, axis, hardware.cards_per_node), hardware).name;
  }
  if (document.contains("pp")) document["tied"] = document["pp"];
  return document;
}

// The whole step, or begin and end of one that is too long to be read.
Json timeline_document(const Simulation& simulation) {
  std::size_t most = 1;
  for (const auto& actions : simulation.actions) most = std::max(most, actions.size());
  const double tick = simulation.makespan / kTicks;
  const double drawn = most <= kMostActions ? 1 : static_cast<double>(kMostActions) / static_cast<double>(most);
  const double begin_ends = simulation.makespan * drawn / 2;
  const double end_begins = simulation.makespan - begin_ends;
  Json ranks = Json::array();
  for (const auto& actions : simulation.actions) {
    Json& row = ranks.emplace_back(Json::array());
    for (const auto& [action, start, end] : actions) {
      if (start > begin_ends && end < end_begins) continue;
      row.push_back({action.stage, stage_kind_name(action.kind), action.microbatch, std::llround(start / tick),
                     std::llround(end / tick)});
    }
  }
  Json document = {{"makespan", simulation.makespan},
                   {"tick_seconds", tick},
                   {"bubble_fraction", simulation.bubble_fraction},
                   {"bubble_fractions", simulation.bubble_fractions},
                   {"ranks", ranks}};
  if (drawn < 1) document["omitted"] = {begin_ends, end_begins};
  return document;
}

// What is shown of the best plan alone.
void add_best(Json& document, const Plan& plan, const Hardware& hardware, const ReportExtras& extras) {
  document["links"] = links_document(plan.settings.mesh, hardware);
  document["timeline"] = timeline_document(simulate_plan(plan));
  if (extras.tokens <= 0 || !plan.fits) return;
  document["budget"] = budget_document(budget_of(plan, hardware, extras.tokens), extras.tokens);
}

void add_extras(Json& document, const ReportExtras& extras) {
  if (extras.scaling) document["scaling"] = Json::parse(to_json(*extras.scaling));
  document["warnings"] = extras.warnings;
  document["command"] = extras.command;
}

// Puts `text` in the place of the one mark that the page has for it.
void put(std::string& page, std::string_view mark, std::string_view text) {
  const std::size_t place = page.find(mark);
  if (place == std::string::npos) throw InternalError(fmt::format("the report's page has no {}", mark));
  page.replace(place, mark.size(), text);
}

// JSON as it may stand in a script element, whose text only "<" could end. Text that is not UTF-8 is shown as such.
std::string script_json(const Json& document) {
  const std::string plain = document.dump(-1, ' ', false, Json::error_handler_t::replace);
  std::string text;
  text.reserve(plain.size());
  for (const char c : plain) {
    if (c == '<') {
      text += "\\u003c";
    } else {
      text += c;
    }
  }
  return text;
}

std::string page_of(const Json& document) {
  std::string script;
  for (const std::string& name : plan_data_names("report/", ".js")) script += plan_data("report/" + name + ".js");
  std::string page(plan_data("report/page.html"));
  put(page, "{{style}}", plan_data("report/style.css"));
  put(page, "{{script}}", script);
  put(page, "{{data}}", script_json(document));
  return page;
}

}  // namespace

std::string plan_html(const SearchResult& result, const SearchRequest& request, const ReportExtras& extras) {
  Json document = Json::parse(to_json(result));
  document.erase("best");  // the first of the plans
  document["kind"] = "plan";
  document["model"] = model_document(request.model);
  document["hardware"] = hardware_document(request.hardware);
  document["request"] = request_document(request);
  document["points"] = points_document(result.points);
  if (!result.plans.empty()) add_best(document, result.plans.front(), request.hardware, extras);
  add_extras(document, extras);
  return page_of(document);
}

std::string plan_html(const Plan& plan, const PlanModel& model, const Hardware& hardware, const ReportExtras& extras) {
  Json document = {{"kind", "estimate"}, {"plans", Json::array({plan_document(plan)})}};
  document["model"] = model_document(model);
  document["hardware"] = hardware_document(hardware);
  document["request"] = request_document(plan.settings, plan.settings.mesh.world_size());
  document["run"] = run_command(extras.run, plan.settings);
  add_best(document, plan, hardware, extras);
  add_extras(document, extras);
  return page_of(document);
}

}  // namespace orthant
