// The answers of size_inference() as a table and as JSON.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "orthant/base/human.h"
#include "orthant/base/json_text.h"
#include "orthant/base/text_table.h"
#include "orthant/plan/estimate/inference_size.h"

namespace orthant {
namespace {

std::string stage_table(const InferenceSize& size) {
  std::vector<TableLine> lines = {{"stage", "layers", "weights", "cache", "working", "reserve", "total"}};
  for (std::size_t i = 0; i < size.stages.size(); ++i) {
    const InferenceStage& stage = size.stages[i];
    lines.push_back({std::to_string(i), std::to_string(stage.layers), format_bytes(stage.weights),
                     format_bytes(stage.cache), format_bytes(stage.working), format_bytes(stage.reserve),
                     format_bytes(stage.total())});
  }
  return text_table(lines);
}

std::string context_table(const InferenceSize& size) {
  std::vector<TableLine> lines = {{"context", "cache of a sequence", "largest batch"}};
  for (const ContextRow& row : size.contexts) {
    lines.push_back({std::to_string(row.context), format_bytes(row.sequence_bytes),
                     row.largest_batch > 0 ? std::to_string(row.largest_batch) : "-"});
  }
  return text_table(lines);
}

}  // namespace

std::string inference_text(const InferenceSize& size) {
  const InferenceRequest& asked = size.request;
  std::string text =
      fmt::format("{} in {} on {}, {} of {}: {}\n", asked.model.name, dtype_name(asked.weights), size.mesh.to_string(),
                  asked.batch == 1 ? "1 sequence" : fmt::format("{} sequences", asked.batch),
                  fmt::format("{} tokens", asked.context), size.fits ? "fits" : size.why_not);
  text += fmt::format("\nPer card ({}, {}):\n{}", asked.hardware.name, format_bytes(asked.hardware.memory_bytes),
                      stage_table(size));
  if (size.cache_copies > 1) {
    text += fmt::format("\n{} tp ranks hold the same key/value head: tp={}, {} of them.\n", size.cache_copies,
                        size.mesh.degree(Axis::tp), asked.model.shape->kv_heads);
  }
  text += fmt::format(
      "\nA token keeps {} on a card. Largest batch at this context: {}; longest context at this batch: {}.\n",
      format_bytes(size.cache_bytes_per_token), size.largest_batch, size.largest_context);
  text += size.smallest_mesh
              ? fmt::format("Fewest cards for this batch and context: {}.\n", size.smallest_mesh->to_string())
              : "No mesh of tp within a node and pp holds this batch and context.\n";
  return text + "\n" + context_table(size);
}

std::string to_json(const InferenceSize& size, int indent) {
  const InferenceRequest& asked = size.request;
  nlohmann::ordered_json json = {{"model", asked.model.name},
                                 {"hardware", asked.hardware.name},
                                 {"mesh", size.mesh.to_string()},
                                 {"batch", asked.batch},
                                 {"context", asked.context},
                                 {"weights_dtype", dtype_name(asked.weights)},
                                 {"cache_dtype", dtype_name(asked.cache)},
                                 {"memory_bytes", asked.hardware.memory_bytes},
                                 {"fits", size.fits},
                                 {"why_not", size.why_not},
                                 {"cache_copies", size.cache_copies},
                                 {"cache_bytes_per_token", size.cache_bytes_per_token},
                                 {"largest_batch", size.largest_batch},
                                 {"largest_context", size.largest_context},
                                 {"smallest_mesh", nullptr}};
  if (size.smallest_mesh) json["smallest_mesh"] = size.smallest_mesh->to_string();
  json["stages"] = nlohmann::ordered_json::array();
  for (const InferenceStage& stage : size.stages) {
    json["stages"].push_back({{"layers", stage.layers},
                              {"weights", stage.weights},
                              {"cache", stage.cache},
                              {"working", stage.working},
                              {"reserve", stage.reserve},
                              {"total", stage.total()}});
  }
  json["contexts"] = nlohmann::ordered_json::array();
  for (const ContextRow& row : size.contexts) {
    json["contexts"].push_back(
        {{"context", row.context}, {"sequence_bytes", row.sequence_bytes}, {"largest_batch", row.largest_batch}});
  }
  return json_text(json, indent);
}

}  // namespace orthant
