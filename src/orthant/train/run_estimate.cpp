#include "orthant/train/run_estimate.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "orthant/base/human.h"
#include "orthant/graph/backward.h"
#include "orthant/plan/estimate/estimate_parts.h"
#include "orthant/plan/estimate/sized_run.h"
#include "orthant/train/planned_trainer.h"

namespace orthant {
namespace {

// Of the whole model, for one sequence.
double sequence_flops(const RunConfig& config) {
  const auto spec = declared_spec(config);
  double flops = 0;
  for (const auto& unit : spec.units) {
    flops += unit.cost.forward_flops + unit.cost.input_flops + unit.cost.weight_flops;
  }
  return flops / static_cast<double>(work_size(config).rows);
}

// "1.02 GiB predicted, 1 GiB measured (+2.0%)"
std::string compared(const std::string& predicted, const std::string& measured, double share) {
  return fmt::format("{} predicted, {} measured ({:+.1f}%)", predicted, measured, 100 * (share - 1));
}

std::string compared_bytes(std::int64_t predicted, std::int64_t measured) {
  return compared(format_bytes(predicted), format_bytes(measured),
                  static_cast<double>(predicted) / static_cast<double>(std::max<std::int64_t>(measured, 1)));
}

std::string compared_seconds(double predicted, double measured) {
  return compared(format_seconds(predicted), format_seconds(measured), predicted / measured);
}

nlohmann::ordered_json traffic_json(const std::map<std::string, comm::Counters>& traffic) {
  auto json = nlohmann::ordered_json::object();
  for (const auto& [group, counters] : traffic) {
    for (int i = 0; i < comm::kNumOps; ++i) {
      const auto op = static_cast<comm::Op>(i);
      const auto& [calls, bytes] = counters.of(op);
      if (calls > 0) json[group][comm::name_of(op)] = {{"calls", calls}, {"payload_bytes", bytes}};
    }
  }
  return json;
}

}  // namespace

PlanSettings run_plan_settings(const RunConfig& config) {
  auto settings = plan_settings(config.mesh, config.trainer);
  const auto work = work_size(config);
  settings.micro_batch = work.rows;
  settings.global_batch = config.global_batch_size;
  settings.sequence = work.sequence;
  settings.secondary_sequence = work.secondary_sequence;
  return settings;
}

Plan estimate_run(const RunConfig& config, const Hardware& hardware) {
  auto spec = run_spec(config);
  mark_gradients(spec);
  const auto settings = run_plan_settings(config);
  const auto pipeline = trainer_pipeline(spec, config.mesh, config.trainer);
  return assemble(price_runtime(spec, pipeline, settings, hardware), settings, hardware, find_stack("orthant"),
                  sequence_flops(config));
}

RunComparison::RunComparison(const RunConfig& config, const RunResult& result, const std::optional<Hardware>& hardware)
    : traffic_(result.traffic), hardware_(hardware ? hardware->name : "") {
  // Memory does not depend on it.
  const auto plan = estimate_run(config, hardware ? *hardware : find_hardware("cpu"));
  for (const auto& memory : plan.memory) predicted_.memory_bytes.push_back(memory.total() - memory.reserve);
  measured_.memory_bytes.resize(plan.memory.size());
  for (std::size_t rank = 0; rank < result.rank_memory_bytes.size(); ++rank) {
    auto& most =
        measured_.memory_bytes.at(static_cast<std::size_t>(config.mesh.coordinate(static_cast<int>(rank))[Axis::pp]));
    most = std::max(most, result.rank_memory_bytes[rank]);
  }
  measured_.step_seconds = result.step_seconds;
  measured_.busy_seconds = result.busy_seconds;
  if (!hardware) return;
  predicted_.step_seconds = plan.time.step;
  predicted_.busy_seconds = simulate_plan(plan).busy;
}

std::vector<ResultRow> RunComparison::rows() const {
  const bool timed = predicted_.step_seconds > 0 && measured_.step_seconds > 0;
  const auto stages = predicted_.memory_bytes.size();
  std::vector<ResultRow> rows;
  for (std::size_t pp = 0; pp < stages; ++pp) {
    const auto place = stages > 1 ? fmt::format(" pp {}", pp) : "";
    rows.emplace_back("memory" + place, compared_bytes(predicted_.memory_bytes[pp], measured_.memory_bytes[pp]));
    if (!timed || stages == 1 || measured_.busy_seconds.empty()) continue;
    rows.emplace_back("busy" + place, compared_seconds(predicted_.busy_seconds[pp], measured_.busy_seconds[pp]));
  }
  if (timed) {
    rows.emplace_back(
        "step", fmt::format("{}, by {}", compared_seconds(predicted_.step_seconds, measured_.step_seconds), hardware_));
  } else if (measured_.step_seconds > 0) {
    rows.emplace_back("step", fmt::format("{} measured; --hardware FILE predicts it, orthant plan --calibrate FILE "
                                          "makes the file",
                                          format_seconds(measured_.step_seconds)));
  }
  return rows;
}

nlohmann::ordered_json RunComparison::json_of(const Figures& figures) {
  nlohmann::ordered_json json;
  json["memory_bytes"] = figures.memory_bytes;
  if (!figures.busy_seconds.empty()) json["busy_seconds"] = figures.busy_seconds;
  if (figures.step_seconds > 0) json["step_seconds"] = figures.step_seconds;
  return json;
}

nlohmann::ordered_json RunComparison::json() const {
  auto measured = json_of(measured_);
  measured["traffic"] = traffic_json(traffic_);
  return {{"predicted", json_of(predicted_)}, {"measured", measured}};
}

}  // namespace orthant
