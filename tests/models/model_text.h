// Configurations written as JSON, for tests of readers and their errors.
#pragma once

#include <string>
#include <string_view>

#include "base/error_text.h"
#include "orthant/base/json_reader.h"
#include "orthant/models/llama/config.h"
#include "orthant/models/model_config.h"
#include "orthant/models/trimodal/config.h"

namespace orthant {

inline ModelConfig model_of(std::string_view text) {
  JsonReader reader(JsonDocument::parse(text, {.source = "model.json"}));
  ModelConfig config = read_model(reader);
  reader.finish();
  return config;
}

inline LlamaConfig llama_of(std::string_view text) {
  return get<LlamaConfig>(model_of(text));
}

inline TrimodalConfig trimodal_of(std::string_view text) {
  return get<TrimodalConfig>(model_of(text));
}

inline std::string model_refusal(std::string_view text) {
  return error_text<ConfigError>([&] { model_of(text); });
}

inline std::vector<std::string> parameter_names(const UnitSpec& unit) {
  std::vector<std::string> names;
  for (const auto& parameter : unit.parameters) names.push_back(parameter.name);
  return names;
}

inline std::vector<std::string> unit_names(const GraphSpec& spec) {
  std::vector<std::string> names;
  for (const auto& unit : spec.units) names.push_back(unit.name);
  return names;
}

inline WorkSize work_of(std::int64_t rows, std::int64_t sequence, DType compute = DType::float32) {
  WorkSize work;
  work.rows = rows;
  work.sequence = sequence;
  work.compute = compute;
  return work;
}

}  // namespace orthant
