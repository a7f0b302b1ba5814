// How rotary frequencies are stretched so that a model reads longer texts than it was first trained on; Hugging Face's
// `rope_scaling` (or `rope_parameters`). The frequencies are numbers of the configuration, so they are computed here.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "orthant/base/json_reader.h"
#include "orthant/models/config_problem.h"

namespace orthant {

struct RopeScaling {
  enum class Kind { none, linear, dynamic, llama3, yarn };
  Kind kind = Kind::none;
  double factor = 1;                                  // 0 in yarn: max_position_embeddings / the original ones
  std::int64_t original_max_position_embeddings = 0;  // 0: max_position_embeddings (llama3, yarn)
  double low_freq_factor = 1;                         // llama3
  double high_freq_factor = 4;                        // llama3
  double beta_fast = 32;                              // yarn
  double beta_slow = 1;                               // yarn
  double attention_factor = 0;                        // yarn; 0: 0.1 ln(factor) + 1, or from both mscales
  double mscale = 0;                                  // yarn; 0: not given
  double mscale_all_dim = 0;                          // yarn; 0: not given
  bool truncate = true;  // yarn: the ramp between frequencies begins and ends at whole ones
  friend bool operator==(const RopeScaling&, const RopeScaling&) = default;
};

std::string_view rope_kind_name(RopeScaling::Kind kind);  // "llama3"; "default" for none

// The object at `key`, or null: {"rope_type" or "type": "llama3", "factor": 8.0, ...}. Without a type it has that of
// `defaults`. Only the keys of its type are read.
RopeScaling read_rope_scaling(JsonReader& reader, std::string_view key, const RopeScaling& defaults = {});

// Keys of the problem are the fields' names.
Problem find_problem(const RopeScaling& scaling);

// The same as a list of numbers, as operations carry it, and back. InternalError for another list.
std::vector<double> as_numbers(const RopeScaling& scaling);
RopeScaling rope_scaling_of(const std::vector<double>& numbers);

struct RopeFrequencies {
  std::vector<double> inverse;  // [head_size / 2]: angle of position p is p x inverse[i]
  double magnitude = 1;         // multiplies cos and sin
};

// For a text of `sequence` positions (only dynamic depends on it).
RopeFrequencies rope_frequencies(const RopeScaling& scaling, double theta, std::int64_t head_size,
                                 std::int64_t max_position_embeddings, std::int64_t sequence);

}  // namespace orthant
