// Any model's configuration: the `model` section of a training configuration, and the spec it stands for. It holds the
// configuration of one family (models/<family>/config.h) as a value, and the family answers for it (models/family.h).
#pragma once

#include <any>
#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "orthant/base/json_reader.h"
#include "orthant/graph/spec.h"
#include "orthant/models/work_size.h"

namespace orthant {

struct Family;

// A configuration that says its family: family_of(config) is declared beside it.
template <typename Config>
concept FamilyConfig = requires(const Config& config) {
  { family_of(config) } -> std::same_as<const Family&>;
};

class ModelConfig {
 public:
  ModelConfig() = default;  // of no family, until one is assigned

  template <FamilyConfig Config>
  ModelConfig(Config config) : config_(std::move(config)), type_(&type_of<Config>()) {}

  const Family& family() const;  // InternalError when of none

  template <typename Config>
  const Config* get_if() const {
    return std::any_cast<Config>(&config_);
  }
  template <typename Config>
  Config* get_if() {
    return std::any_cast<Config>(&config_);
  }

  friend bool operator==(const ModelConfig& left, const ModelConfig& right) {
    return left.type_ == right.type_ && (left.type_ == nullptr || left.type_->equal(left.config_, right.config_));
  }

 private:
  struct Type {
    const Family& (*family)(const std::any&);
    bool (*equal)(const std::any&, const std::any&);
  };
  template <typename Config>
  static const Type& type_of() {
    static constexpr Type kType = {
        [](const std::any& config) -> const Family& { return family_of(std::any_cast<const Config&>(config)); },
        [](const std::any& left, const std::any& right) {
          return std::any_cast<const Config&>(left) == std::any_cast<const Config&>(right);
        }};
    return kType;
  }

  std::any config_;
  const Type* type_ = nullptr;
};

// The family's own configuration; std::bad_any_cast when the model is of another type.
template <typename Config>
const Config& get(const ModelConfig& model) {
  if (const auto* config = model.get_if<Config>()) return *config;
  throw std::bad_any_cast();
}
template <typename Config>
Config& get(ModelConfig& model) {
  if (auto* config = model.get_if<Config>()) return *config;
  throw std::bad_any_cast();
}
template <typename Config>
Config get(ModelConfig&& model) {
  return std::move(get<Config>(model));
}

// `kind` is the name of a family; it may be left out when `preset` says it, or `path`, the folder of a Hugging Face
// model whose config.json then gives the defaults of all keys. The caller's finish() refuses unknown keys.
ModelConfig read_model(JsonReader model);

// ConfigError for a model whose positions and attention cannot be kept within packed documents (data.pack).
void check_packs(const ModelConfig& config);

// The spec with the configuration's frozen parameters, checked.
GraphSpec build_spec(const ModelConfig& config, const WorkSize& work);

// The forward pass alone, every parameter frozen: logits, or of an encoder last_hidden_state and pooler_output. With
// `mask` there is a batch field attention_mask, boolean [rows, sequence], true for tokens; an encoder always has it.
// ConfigError for a family without one.
struct ForwardOptions {
  bool mask = false;
  bool pooler = true;  // of an encoder
};
GraphSpec forward_spec(const ModelConfig& config, const WorkSize& work, const ForwardOptions& options = {});

// Answers of the family, see ModelFacts.
std::string_view model_kind(const ModelConfig& config);  // "llama"
std::int64_t vocab_size(const ModelConfig& config);      // of the primary tower
std::int64_t max_sequence(const ModelConfig& config);    // likewise
std::vector<std::string> frozen_patterns(const ModelConfig& config);

}  // namespace orthant
