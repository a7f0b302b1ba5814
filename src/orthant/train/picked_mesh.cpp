#include "orthant/train/picked_mesh.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "orthant/base/error.h"
#include "orthant/base/human.h"
#include "orthant/plan/estimate/plan_model.h"
#include "orthant/plan/search/search.h"
#include "orthant/train/run.h"
#include "orthant/train/run_estimate.h"

namespace orthant {
namespace {

constexpr int kMostTried = 8;  // of the best plans: the search knows no rule that a run breaks, bar rare settings

// Of planned_keys(), those that the configuration sets: a plan that leaves them at their standard must say so.
std::vector<std::string> configured_plan_keys(const nlohmann::json& document) {
  std::vector<std::string> keys;
  const auto section = document.find("parallel");
  if (section == document.end() || !section->is_object()) return keys;
  for (const auto key : planned_keys()) {
    if (section->contains(key.substr(key.find('.') + 1))) keys.emplace_back(key);
  }
  return keys;
}

// Of everything that a run must be told by a plan, what a mesh decides: sizes and dtypes stay the run's own.
std::vector<TrainSetting> settings_of_mesh(PlanSettings settings, const std::vector<std::string>& configured) {
  settings.configured = configured;
  auto given = train_settings(settings);
  std::erase_if(given, [](const TrainSetting& setting) {
    const auto keys = planned_keys();
    return std::ranges::find(keys, setting.first) == keys.end();
  });
  return given;
}

std::vector<std::string> assignments(const Mesh& mesh, const std::vector<TrainSetting>& settings) {
  std::vector<std::string> given = {"mesh={}"};
  for (const Axis axis : mesh.active_axes()) {
    given.push_back(fmt::format("mesh.{}={}", axis_name(axis), mesh.degree(axis)));
  }
  for (const auto& [key, value] : settings) given.push_back(fmt::format("{}={}", key, value));
  return given;
}

RunConfig config_with(const JsonDocument& document, const std::vector<std::string>& given, const Hardware& hardware) {
  auto changed = JsonDocument::parse(document.value().dump(), {.source = "the configuration on a picked mesh"});
  for (const auto& assignment : given) changed.apply_override(assignment);
  auto config = read_run_config(changed);
  if (!hardware.on_host) config.trainer.device = at::Device(at::kCUDA, 0);
  return config;
}

SearchRequest request_for(const RunConfig& config, const RankWorld& world) {
  SearchRequest request;
  request.model = plan_model(config.name, config.model);
  request.hardware = world.hardware;
  request.hardware.cards_per_node = world.ranks_per_host;
  request.cards = world.size;
  request.global_batch = config.global_batch_size;
  request.sequence = work_size(config).sequence;
  request.top = kMostTried;
  request.compute = config.trainer.precision.compute;
  request.params = bytes_of(config.trainer.precision.params) < 4 ? DType::float32 : config.trainer.precision.params;
  request.gradients = config.trainer.precision.reduce;
  return request;
}

std::string nothing_fits(const SearchRequest& request, const std::string& why) {
  return fmt::format("{} ({} parameters) on {} ranks of {} each, {} rows of {} tokens a step: {}", request.model.name,
                     format_count(request.model.num_parameters()), request.cards,
                     format_bytes(request.hardware.memory_bytes), request.global_batch, request.sequence, why);
}

// The plan as a run, where the run accepts it; else why not.
std::optional<PickedMesh> accepted(const JsonDocument& document, const Plan& plan,
                                   const std::vector<std::string>& configured, const Hardware& hardware,
                                   std::string& why_not) {
  PickedMesh picked{.mesh = plan.settings.mesh, .settings = settings_of_mesh(plan.settings, configured)};
  try {
    const auto config = config_with(document, assignments(picked.mesh, picked.settings), hardware);
    check_trainable(config);
    const auto exact = estimate_run(config, hardware);
    if (exact.fits) {
      picked.step_seconds = exact.time.step;
      return picked;
    }
    why_not = fmt::format("mesh {} does not fit: {}", picked.mesh.to_string(), exact.why_not);
  } catch (const ConfigError& error) {
    why_not = fmt::format("mesh {}: {}", picked.mesh.to_string(), error.message());
  }
  return std::nullopt;
}

}  // namespace

std::string PickedMesh::text() const {
  std::string text = mesh.to_string();
  const char* before = " with ";
  for (const auto& [key, value] : settings) {
    text += fmt::format("{}{}={}", before, key, value);
    before = ", ";
  }
  return text;
}

std::vector<std::string> one_rank_assignments(const JsonDocument& document) {
  return assignments(Mesh(), settings_of_mesh(PlanSettings(), configured_plan_keys(document.value())));
}

PickedMesh pick_mesh(const JsonDocument& document, const RankWorld& world) {
  const auto configured = configured_plan_keys(document.value());
  const auto request = request_for(config_with(document, one_rank_assignments(document), world.hardware), world);
  SearchResult result;
  try {
    result = search(request);
  } catch (const ConfigError& error) {
    return {.reason = error.message(), .remedy = "start another number of ranks, or set train.global_batch_size"};
  }
  std::string why_not;
  for (const Plan& plan : result.plans) {
    std::string why;
    if (auto picked = accepted(document, plan, configured, request.hardware, why)) return *picked;
    if (why_not.empty()) why_not = why;
  }
  if (why_not.empty()) why_not = "nothing fits";
  PickedMesh none{.reason = nothing_fits(request, why_not), .remedy = "start more ranks, or take a smaller model"};
  if (result.plans.empty() && !result.advice.empty()) {
    const auto& [change, effect] = result.advice.front();
    none.remedy = fmt::format("this would fit by the planner: {} ({})", change, effect);
  }
  return none;
}

}  // namespace orthant
