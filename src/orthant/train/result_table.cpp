#include "orthant/train/result_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "orthant/base/human.h"
#include "orthant/base/printable.h"
#include "orthant/train/weights_hash.h"

namespace orthant {
namespace {

std::string eval_text(const RunResult& result, const std::string& name, double value) {
  std::string text = fmt::format("{:.4f}", value);
  if (name == "accuracy" && result.best_reachable_accuracy) {
    text += fmt::format(" (best reachable {:.4f})", *result.best_reachable_accuracy);
  }
  return text;
}

std::string loss_text(const RunResult& result) {
  if (!result.first_loss || !result.final_loss) return "none: nothing was trained";
  return fmt::format("{:.4f} -> {:.4f}", *result.first_loss, *result.final_loss);
}

}  // namespace

std::string result_text(const RunResult& result, const std::vector<ResultRow>& more) {
  std::vector<ResultRow> rows = {
      {"steps", fmt::format("{}", result.steps)},
      {"time", format_seconds(result.seconds)},
      {"loss", loss_text(result)},
  };
  for (const auto& [name, value] : result.eval) rows.emplace_back("eval " + name, eval_text(result, name, value));
  rows.emplace_back("parameters", fmt::format("{} ({})", format_count(result.parameters), result.parameters));
  rows.emplace_back("mesh", fmt::format("{} ({} rank{})", result.mesh.to_string(), result.mesh.world_size(),
                                        result.mesh.world_size() == 1 ? "" : "s"));
  rows.emplace_back("weights hash", weights_hash_text(result.weights_hash));
  rows.emplace_back("output", printable(result.output_dir));
  rows.insert(rows.end(), more.begin(), more.end());
  std::size_t width = 0;
  for (const auto& [name, value] : rows) width = std::max(width, name.size());
  std::string text;
  for (const auto& [name, value] : rows) text += fmt::format("{:<{}}  {}\n", name, width, value);
  return text;
}

nlohmann::ordered_json mesh_json(const Mesh& mesh) {
  nlohmann::ordered_json json;
  for (Axis axis : kAxes) json[std::string(axis_name(axis))] = mesh.degree(axis);
  return json;
}

nlohmann::ordered_json result_json(const RunResult& result) {
  nlohmann::ordered_json json;
  json["steps"] = result.steps;
  json["final_loss"] = result.final_loss ? nlohmann::ordered_json(*result.final_loss) : nlohmann::ordered_json();
  json["eval"] = nlohmann::ordered_json::object();
  for (const auto& [name, value] : result.eval) json["eval"][name] = value;
  json["mesh"] = mesh_json(result.mesh);
  json["world_size"] = result.mesh.world_size();
  json["output_dir"] = result.output_dir;
  json["parameters"] = result.parameters;
  json["weights_hash"] = weights_hash_text(result.weights_hash);
  return json;
}

}  // namespace orthant
