// The trimodal classifier: two text towers and optional table features, fused by a small MLP. Units: primary.*,
// secondary.*, tabular, fusion, loss.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "orthant/base/json_reader.h"
#include "orthant/graph/spec.h"
#include "orthant/models/activation.h"
#include "orthant/models/bert/tower.h"
#include "orthant/models/config_problem.h"
#include "orthant/models/work_size.h"

namespace orthant {

// LayerNorm, linear, ReLU over the columns of a table.
struct TabularConfig {
  std::int64_t input_dim = 0;
  std::int64_t hidden_dim = 0;
  friend bool operator==(const TabularConfig&, const TabularConfig&) = default;
};

// Linear, activation, dropout, linear over everything concatenated.
struct FusionConfig {
  std::int64_t hidden_size = 256;
  double dropout = 0.1;
  ActivationFunction activation = ActivationFunction::relu;  // the only one
  friend bool operator==(const FusionConfig&, const FusionConfig&) = default;
};

struct TrimodalConfig {
  BertConfig primary;
  BertConfig secondary;
  bool shared_towers = false;  // the secondary tower uses the primary's parameters; their architectures must agree
  std::optional<TabularConfig> tabular;
  FusionConfig fusion;
  Pooling pooling = Pooling::pooler;
  std::optional<std::int64_t> projection;  // each tower's last linear to this width; nothing: none
  std::int64_t num_labels = 2;
  std::vector<double> class_weights;  // one per label; empty: all 1
  std::vector<std::string> freeze;    // patterns of parameter names, see freeze.h

  friend bool operator==(const TrimodalConfig&, const TrimodalConfig&) = default;
};

// Keys as the fields; `preset` gives their defaults, and each tower may have one of its own, or a `path`. `tabular` is
// an object or null. With shared towers, `secondary` defaults to `primary`.
TrimodalConfig read_trimodal(JsonReader& reader);

// Of what is not one tower's alone.
Problem find_problem(const TrimodalConfig& config);

TrimodalConfig trimodal_preset(std::string_view name);  // ConfigError when there is none

// ConfigError when the configuration or the work has a problem. Does not freeze.
GraphSpec trimodal_spec(const TrimodalConfig& config, const WorkSize& work);

// What trimodal_family() is made of.
const Family& trimodal_family();
inline const Family& family_of(const TrimodalConfig&) {
  return trimodal_family();
}
std::vector<Preset> trimodal_presets();
// Tensors of a tower have the names of BertModel or RobertaModel behind "primary." or "secondary."; all others have
// ours.
std::string trimodal_tensor_name(const ModelConfig& model, const std::string& parameter);

}  // namespace orthant
