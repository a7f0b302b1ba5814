// Tensor parallelism as a setting, and a model's graph as it lies over tp: the spec declares where each parameter and
// value may be cut, the policy says what is used of it.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "orthant/graph/spec.h"

namespace orthant {

// What `parallel.plan` may ask of parameters, in the words of PyTorch's parallelize_module.
enum class TensorStyle {
  column,     // a linear's weight and bias over its outputs
  row,        // a linear's weight over its inputs, the sum of products over tp; a table over its entries
  sequence,   // whole, on each rank's own tokens
  replicate,  // whole
};
std::string_view tensor_style_name(TensorStyle style);
TensorStyle parse_tensor_style(std::string_view text);  // also colwise, rowwise; ConfigError with the nearest name

struct TensorPolicy {
  bool sequence_parallel = false;  // norms, dropout and residual sums on each rank's own tokens
  bool loss_parallel = false;      // logits stay cut over the vocabulary
  bool regather = false;           // column products gather their input again in backward instead of keeping it
  // `parallel.plan`: patterns of parameter names -> style. All that match a parameter agree.
  std::vector<std::pair<std::string, TensorStyle>> styles = {};
  // `parallel.expert_tp`: tp ranks share each expert like a dense layer; nothing: where ep is 1. See expert_view.h.
  std::optional<bool> expert_tp = {};
  friend bool operator==(const TensorPolicy&, const TensorPolicy&) = default;
};

// What it means on a tp axis of that degree; on one rank there is nothing to share.
TensorSharing sharing_of(const TensorPolicy& policy, int tp_degree);

// Whether a pattern of `parallel.plan` means a parameter: whole parts of its name in a row, all or some of them, so
// that "attn.c_attn" means layers.3.attn.c_attn.weight and .bias. `*` is any text.
bool matches_style_pattern(std::string_view pattern, std::string_view parameter);

// The graph as it lies over `tp_degree` ranks: from here on Split, sequence_sharded and
// partial_under_sequence_parallel say what is, not what could be. With one rank nothing is cut or partial. ConfigError,
// naming parameter, reason and what to set, for a degree that heads do not divide into and for styles that would give
// wrong sums. A graph that is resolved so already stays as it is; InternalError when its TensorSharing is another
// (styles are not compared).
GraphSpec resolved_graph(GraphSpec graph, const TensorPolicy& policy, int tp_degree);

}  // namespace orthant
