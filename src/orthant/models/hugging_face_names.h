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

struct ModuleRow {
  std::string_view ours;    // '*' stands for the layer's number, a second one for that of the layer's expert
  std::string_view theirs;  // likewise
  bool transposed = false;
};

// A tensor that repeats another one: a tied head, a second name of a bias.
struct RepeatRow {
  std::string_view tensor;
  std::string_view of;
  bool of_body = false;  // `of` lies in the base model and has its prefix
};

// The modules of a family beside ours.
struct NameTable {
  std::string_view prefix;            // of the base model inside a model with a head
  std::span<const ModuleRow> body;    // without the prefix; the word embedding first
  std::span<const ModuleRow> pooler;  // likewise; a folder may lack it
  std::span<const ModuleRow> head;    // whole names; likewise
  std::span<const RepeatRow> repeats;
  std::span<const std::string_view> roots;  // what names of the body begin with, after the prefix
  std::string_view layers;                  // what stands before a layer's number
  bool always_tied = false;                 // the head's matrix is the word embedding, whatever config.json says
};

// InternalError for models that Hugging Face does not have.
const NameTable& tensor_names(const ModelConfig& config);

struct HuggingFaceName {
  std::string tensor;
  bool transposed = false;  // stored as [in, out]
  bool body = true;         // or head, pooler: what a folder may lack
};

// As the library itself writes it: `bare` without the prefix that a model with a head has. `parameter` is without a
// tower's prefix. Nothing for parameters that only we have.
std::optional<HuggingFaceName> hugging_face_name(const NameTable& names, std::string_view parameter, bool bare);

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
TensorMatch match_tensors(const NameTable& names, std::span<const WantedParameter> wanted,
                          std::span<const TensorEntry> stored, const std::string& folder);

// That DataError: "<folder>: the weights do not fit <what> (3 differences)" and a line for each.
[[noreturn]] void throw_differences(const std::string& folder, std::string_view what,
                                    const std::vector<std::string>& differences, std::string remedy);

}  // namespace orthant
