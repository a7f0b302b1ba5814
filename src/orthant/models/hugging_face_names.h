// How the tensors of a Hugging Face folder are called beside our parameters, in both directions: prefixes that come and
// go ("model.", "bert." or none), old names of norms (gamma, beta), matrices stored the other way round (GPT-2), heads
// that are tied. Names and shapes only: nothing is read here.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "orthant/files/safetensors.h"
#include "orthant/graph/spec.h"
#include "orthant/models/model_config.h"

namespace orthant {

enum class TensorFamily { llama, gpt2, bert, roberta };

// InternalError for models that Hugging Face does not have.
TensorFamily tensor_family(const ModelConfig& config);
TensorFamily tensor_family(const BertConfig& config);

struct HuggingFaceName {
  std::string tensor;
  bool transposed = false;  // stored as [in, out]
  bool body = true;         // or head, pooler: what a folder may lack
};

// As the library itself writes it: `bare` without the prefix that a model with a head has. `parameter` is without a
// tower's prefix. Nothing for parameters that only we have.
std::optional<HuggingFaceName> hugging_face_name(TensorFamily family, std::string_view parameter, bool bare);

struct WantedParameter {
  std::string name;  // without a tower's prefix
  Shape shape;
};

// A parameter and where its values are.
struct TensorUse {
  std::string parameter;
  std::string tensor;
  bool transposed = false;
};

struct TensorMatch {
  std::vector<TensorUse> uses;
  std::vector<std::string> absent;  // parameters of heads and poolers that the folder lacks
  // Tensors that the library ties and that the folder holds twice: their contents must be equal.
  std::vector<std::pair<std::string, std::string>> tied;
  std::vector<std::string> unused;  // tensors of other heads; what the library itself computes is not listed
};

// Finds every wanted parameter among the stored tensors. DataError that lists all differences (the first 20 and how
// many more): missing tensors of the body, other shapes, no floating dtype, tensors of the body that the model does not
// have, such as more layers.
TensorMatch match_tensors(TensorFamily family, std::span<const WantedParameter> wanted,
                          std::span<const TensorEntry> stored, const std::string& folder);

// That DataError: "<folder>: the weights do not fit <what> (3 differences)" and a line for each.
[[noreturn]] void throw_differences(const std::string& folder, std::string_view what,
                                    const std::vector<std::string>& differences, std::string remedy);

}  // namespace orthant
