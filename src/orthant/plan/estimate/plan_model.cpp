#include "orthant/plan/estimate/plan_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>

#include "orthant/base/error.h"
#include "orthant/base/nearest.h"
#include "orthant/base/regular_file.h"
#include "orthant/models/gpt2/config.h"
#include "orthant/models/hugging_face.h"
#include "orthant/models/llama/config.h"
#include "orthant/models/presets.h"
#include "orthant/models/totals.h"
#include "orthant/plan/plan_data.h"

namespace orthant {
namespace {

// GPT-3 style, for published tables: sizes must be said, where a gpt2 would have its own.
Gpt2Config read_gpt(JsonReader& section) {
  if (!section.has("preset")) {
    const auto require_size = [&](std::string_view key, std::string_view other) {
      if (!section.has(key) && !section.has(other)) section.require<std::int64_t>(key);
    };
    require_size("hidden_size", "n_embd");
    require_size("num_hidden_layers", "n_layer");
    require_size("num_attention_heads", "n_head");
  }
  Gpt2Config defaults;
  defaults.vocab_size = 51200;
  defaults.max_position_embeddings = 2048;
  return read_gpt2(section, defaults);
}

TransformerShape read_mixture(JsonReader& section) {
  const LlamaConfig config = read_llama(section);
  if (config.mlp_bias) section.fail("mlp_bias", "experts have no biases here", "remove mlp_bias");
  TransformerShape shape = *shape_of(config);
  shape.experts = section.require<std::int64_t>("num_experts");
  shape.experts_per_token = section.require<std::int64_t>("experts_per_token");
  shape.expert_inner = section.get<std::int64_t>("expert_intermediate_size", config.intermediate_size);
  shape.shared_inner = section.get<std::int64_t>("shared_intermediate_size", 0);
  refuse(check_width("num_experts", shape.experts), section);
  refuse(check_size("experts_per_token", shape.experts_per_token, 1, shape.experts), section);
  refuse(check_width("expert_intermediate_size", shape.expert_inner), section);
  refuse(check_size("shared_intermediate_size", shape.shared_inner, 0, kMaxWidth), section);
  return shape;
}

std::vector<std::string> model_kinds() {
  std::vector<std::string> kinds = {"gpt", "moe"};
  for (auto& name : family_names()) kinds.push_back(std::move(name));
  return kinds;
}

PlanModel read_section(const std::string& name, JsonReader section) {
  const auto kind = section.has("kind") ? section.find<std::string>("kind") : std::nullopt;
  const auto kinds = model_kinds();
  if (kind && std::ranges::find(kinds, *kind) == kinds.end()) {
    section.fail("kind", fmt::format("unknown model kind \"{}\"", *kind), did_you_mean(*kind, kinds));
  }
  PlanModel model = kind == "moe"   ? PlanModel{name, std::nullopt, read_mixture(section)}
                    : kind == "gpt" ? plan_model(name, read_gpt(section))
                                    : plan_model(name, read_model(section));
  section.finish();
  return model;
}

PlanModel read_folder(const std::filesystem::path& folder) {
  const auto named = (folder / "").parent_path();  // also where the path ends in a slash
  return plan_model(named.filename().string(), read_hugging_face_config(folder));
}

PlanModel read_file(const std::filesystem::path& path) {
  const std::string name = path.stem().string();
  JsonReader root(JsonDocument::load(path.string()));
  if (root.has("model")) return read_section(name, root.require_object("model"));
  if (root.has("model_type") && path.filename() == "config.json") return read_folder(path.parent_path());
  return read_section(name, root);
}

}  // namespace

std::string trained_kind(const std::string& kind) {
  return kind == "gpt" ? std::string(gpt2_family().name) : kind;
}

std::int64_t PlanModel::num_parameters() const {
  return shape ? shape->num_parameters() : totals(build_spec(*config, WorkSize{})).parameters;
}

std::int64_t PlanModel::longest_sequence() const {
  return config ? max_sequence(*config) : shape->longest;
}

std::vector<std::string> plan_model_names() {
  return preset_names();
}

PlanModel find_plan_model(const std::string& name_or_path) {
  if (const auto* family = family_of_preset(name_or_path)) {
    return plan_model(name_or_path, preset_config(*family, name_or_path));
  }
  const std::filesystem::path path(name_or_path);
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) return read_folder(path);
  if (error && error.value() != ENOENT && error.value() != ENOTDIR) {
    throw IoError(fmt::format("{}: {}", name_or_path, error.message()), error.value(),
                  {.remedy = remedy_for_errno(path, error.value())});
  }
  if (is_path_of_json(name_or_path)) return read_file(path);
  throw ConfigError(fmt::format("unknown model \"{}\"", name_or_path),
                    {.remedy = did_you_mean(name_or_path, plan_model_names()) +
                               "; a file of one's own is named by a path that ends in .json"});
}

PlanModel plan_model(std::string name, const ModelConfig& config) {
  return {std::move(name), config, shape_of(config)};
}

double model_flops(const PlanModel& model, std::int64_t sequence, bool causal, ProgramCache* programs) {
  if (model.shape && !model.shape->frozen) return 3 * model.shape->forward_flops(sequence, causal);
  double flops =
      totals(build_spec(*model.config, WorkSize{.rows = 1, .sequence = sequence, .programs = programs})).total_flops;
  // Specs count what a causal mask leaves.
  if (model.shape && !causal) {
    flops += 3 * (model.shape->forward_flops(sequence, false) - model.shape->forward_flops(sequence, true));
  }
  return flops;
}

}  // namespace orthant
