#include "orthant/plan/report/plan_json.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "orthant/base/json_text.h"
#include "orthant/plan/search/search.h"

namespace orthant {
namespace {

using Json = nlohmann::ordered_json;

Json memory_document(const PpMemory& memory) {
  return {{"parameters_bytes", memory.parameters}, {"gradients_bytes", memory.gradients},
          {"optimizer_bytes", memory.optimizer},   {"activations_bytes", memory.activations},
          {"logits_bytes", memory.logits},         {"temporary_bytes", memory.temporary},
          {"reserve_bytes", memory.reserve},       {"total_bytes", memory.total()}};
}

constexpr std::array<std::pair<const char*, AxisTraffic PpTraffic::*>, 7> kAxisTraffic = {{{"tp", &PpTraffic::tp},
                                                                                           {"pp", &PpTraffic::pp},
                                                                                           {"dp", &PpTraffic::dp},
                                                                                           {"fsdp", &PpTraffic::fsdp},
                                                                                           {"tied", &PpTraffic::tied},
                                                                                           {"cp", &PpTraffic::cp},
                                                                                           {"ep", &PpTraffic::ep}}};

Json traffic_document(const PpTraffic& traffic) {
  Json document = Json::object();
  for (const auto& [axis, member] : kAxisTraffic) {
    const AxisTraffic& entry = traffic.*member;
    document[axis] = {{"calls", entry.calls},
                      {"bytes", entry.bytes},
                      {"seconds", entry.seconds},
                      {"exposed_seconds", entry.exposed_seconds}};
  }
  return document;
}

// Per axis the bytes of the pp coordinate that sends most over it; then every coordinate's.
Json communication_document(const Plan& plan) {
  Json document = Json::object();
  for (const auto& [axis, member] : kAxisTraffic) {
    std::int64_t most = 0;
    for (const PpTraffic& traffic : plan.traffic) most = std::max(most, (traffic.*member).bytes);
    document[std::string(axis) + "_bytes"] = most;
  }
  document["per_stage"] = Json::array();
  for (const PpTraffic& traffic : plan.traffic) document["per_stage"].push_back(traffic_document(traffic));
  return document;
}

Json mesh_document(const Mesh& mesh) {
  Json document = Json::object();
  for (const Axis axis : kAxes) document[std::string(axis_name(axis))] = mesh.degree(axis);
  return document;
}

void add_settings(Json& document, const Plan& plan) {
  const PlanSettings& settings = plan.settings;
  document["mesh"] = mesh_document(settings.mesh);
  document["schedule"] = settings.stages.schedule;
  document["virtual_stages"] = plan.virtual_stages;
  document["micro_batch"] = settings.micro_batch;
  document["microbatches"] = settings.microbatches();
  document["recompute"] = plan_recompute_name(settings.recompute);
  document["zero"] = settings.data.zero;
  document["sequence_parallel"] = settings.tensor.sequence_parallel;
}

void add_further_settings(Json& document, const Plan& plan) {
  const PlanSettings& settings = plan.settings;
  document["loss_parallel"] = settings.tensor.loss_parallel;
  document["regather"] = settings.tensor.regather;
  if (settings.mesh.degree(Axis::cp) > 1) {
    document["context"] = settings.context ? context_way_name(*settings.context) : "auto";
    document["shard_over_context"] = settings.data.shard_over_context;
  }
  if (settings.tensor.expert_tp) document["expert_tp"] = *settings.tensor.expert_tp;
  document["accumulate"] = settings.data.accumulate_sharded ? "sharded" : "full";
  document["global_batch"] = settings.global_batch;
  document["sequence"] = settings.sequence;
  document["split"] = settings.split;
  document["flash"] = settings.flash;
  document["precision"] = {{"params", dtype_name(settings.params)},
                           {"compute", dtype_name(settings.compute)},
                           {"reduce", dtype_name(settings.gradients)}};
  document["stages"] = Json::array();
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    document["stages"].push_back({{"pp", plan.stage_pp_coordinates.at(s)}, {"units", plan.stages[s]}});
  }
  document["train"] = train_words(settings);
}

}  // namespace

nlohmann::ordered_json plan_document(const Plan& plan) {
  Json document;
  add_settings(document, plan);
  document["fits"] = plan.fits;
  document["memory"]["per_stage"] = Json::array();
  for (const PpMemory& memory : plan.memory) document["memory"]["per_stage"].push_back(memory_document(memory));
  document["memory"]["peak_bytes"] = plan.peak_bytes();
  document["communication"] = communication_document(plan);
  document["time"] = {{"step_seconds", plan.time.step},
                      {"compute_seconds", plan.time.compute},
                      {"bubble_seconds", plan.time.bubble},
                      {"exposed_communication_seconds", plan.time.exposed_communication},
                      {"optimizer_seconds", plan.time.optimizer}};
  document["tokens_per_second_per_gpu"] = plan.tokens_per_second_per_gpu;
  document["model_tflops_per_gpu"] = plan.model_tflops_per_gpu;
  document["mfu"] = plan.mfu;
  if (!plan.fits) document["why_not"] = plan.why_not;
  add_further_settings(document, plan);
  return document;
}

nlohmann::ordered_json budget_document(const Budget& budget, double tokens) {
  const Json dollars = budget.dollars > 0 ? Json(budget.dollars) : Json(nullptr);
  return {{"tokens", tokens}, {"days", budget.days}, {"dollars", dollars}};
}

std::string to_json(const Plan& plan, int indent) {
  return json_text(plan_document(plan), indent);
}

std::string to_json(const SearchResult& result) {
  Json document;
  document["best"] = result.plans.empty() ? Json(nullptr) : plan_document(result.plans.front());
  document["plans"] = Json::array();
  for (const Plan& plan : result.plans) document["plans"].push_back(plan_document(plan));
  document["rejected"] = result.rejected;
  document["evaluated"] = result.evaluated;
  document["search_seconds"] = result.seconds;
  document["advice"] = Json::array();
  for (const Advice& advice : result.advice) {
    document["advice"].push_back({{"change", advice.change}, {"effect", advice.effect}});
  }
  document["simple"] = result.simple;
  document["run"] = result.plans.empty() ? Json(nullptr) : Json(run_command(result.run, result.plans.front().settings));
  return json_text(document, 2);
}

}  // namespace orthant
