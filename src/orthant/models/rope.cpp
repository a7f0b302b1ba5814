#include "orthant/models/rope.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>

#include "orthant/base/error.h"
#include "orthant/models/choice.h"

namespace orthant {
namespace {

using Kind = RopeScaling::Kind;

constexpr std::array<Kind, 5> kScalingKinds = {Kind::none, Kind::linear, Kind::dynamic, Kind::llama3, Kind::yarn};

// theta^(-2 i / head_size).
std::vector<double> plain_frequencies(double theta, std::int64_t head_size) {
  std::vector<double> inverse;
  for (std::int64_t i = 0; i < head_size; i += 2) {
    inverse.push_back(std::pow(theta, -static_cast<double>(i) / static_cast<double>(head_size)));
  }
  return inverse;
}

// Long waves are stretched, short ones are not, and those between go over smoothly.
void scale_llama3(std::vector<double>& inverse, const RopeScaling& scaling, double original) {
  const double low = scaling.low_freq_factor;
  const double high = scaling.high_freq_factor;
  for (double& frequency : inverse) {
    const double wave = 2 * std::numbers::pi / frequency;
    if (wave < original / high) continue;
    const double stretched = frequency / scaling.factor;
    const double smooth = (original / wave - low) / (high - low);
    frequency = wave > original / low ? stretched : (1 - smooth) * stretched + smooth * frequency;
  }
}

// YaRN's factor of a magnitude.
double yarn_scale(double factor, double mscale) {
  return factor <= 1 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

// Frequencies below a ramp are kept, those above it divided by the factor. The ramp lies where a frequency turns
// beta_fast to beta_slow times within the original length.
void scale_yarn(RopeFrequencies& result, const RopeScaling& scaling, double theta, double head_size, double original,
                double factor) {
  const auto turning = [&](double turns) {
    return head_size * std::log(original / (turns * 2 * std::numbers::pi)) / (2 * std::log(theta));
  };
  double low = turning(scaling.beta_fast);
  double high = turning(scaling.beta_slow);
  if (scaling.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, head_size - 1);
  if (low == high) high += 0.001;
  for (std::size_t i = 0; i < result.inverse.size(); ++i) {
    const double stretched = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    result.inverse[i] *= stretched / factor + (1 - stretched);
  }
  if (scaling.attention_factor != 0) {
    result.magnitude = scaling.attention_factor;
  } else if (scaling.mscale != 0 && scaling.mscale_all_dim != 0) {
    result.magnitude = yarn_scale(factor, scaling.mscale) / yarn_scale(factor, scaling.mscale_all_dim);
  } else {
    result.magnitude = yarn_scale(factor, 1);
  }
}

Kind read_kind(JsonReader& section, Kind default_kind) {
  const bool old_name = !section.has("rope_type") && section.has("type");
  return read_choice<Kind>(section, old_name ? "type" : "rope_type", kScalingKinds, rope_kind_name, default_kind);
}

// Null stands for the default, which is written down where the key is absent.
template <typename T>
T get_or_null(JsonReader& section, std::string_view key, T standard) {
  return section.has(key) ? section.find<T>(key).value_or(standard) : section.get<T>(key, standard);
}

void read_yarn(JsonReader& section, RopeScaling& scaling) {
  const auto read_number = [&](std::string_view key, double& field) { field = get_or_null(section, key, field); };
  read_number("beta_fast", scaling.beta_fast);
  read_number("beta_slow", scaling.beta_slow);
  read_number("attention_factor", scaling.attention_factor);
  read_number("mscale", scaling.mscale);
  read_number("mscale_all_dim", scaling.mscale_all_dim);
  section.read("truncate", scaling.truncate);
}

}  // namespace

std::string_view rope_kind_name(Kind kind) {
  constexpr std::array<std::string_view, 5> kNames = {"default", "linear", "dynamic", "llama3", "yarn"};
  return kNames[static_cast<std::size_t>(kind)];
}

RopeScaling read_rope_scaling(JsonReader& reader, std::string_view key, const RopeScaling& defaults) {
  const bool given = reader.has(key);
  if (given ? reader.require_raw(key).is_null() : defaults.kind == Kind::none) {
    reader.find<std::string>(key);  // so that the key is known and its null is listed
    return {};
  }
  JsonReader section = reader.object(key);
  const Kind kind = read_kind(section, defaults.kind);
  RopeScaling scaling = kind == defaults.kind ? defaults : RopeScaling{};
  if (kind == Kind::none) return scaling;
  if (kind == Kind::yarn) {
    scaling.factor = get_or_null(section, "factor", kind == defaults.kind ? defaults.factor : 0.0);
  } else {
    scaling.factor =
        kind == defaults.kind ? section.get<double>("factor", defaults.factor) : section.require<double>("factor");
  }
  scaling.kind = kind;
  if (kind == Kind::llama3 || kind == Kind::yarn) {
    scaling.original_max_position_embeddings =
        get_or_null(section, "original_max_position_embeddings", scaling.original_max_position_embeddings);
  }
  if (kind == Kind::llama3) {
    section.read("low_freq_factor", scaling.low_freq_factor);
    section.read("high_freq_factor", scaling.high_freq_factor);
  }
  if (kind == Kind::yarn) read_yarn(section, scaling);
  refuse(find_problem(scaling), section);
  return scaling;
}

Problem find_problem(const RopeScaling& scaling) {
  if (scaling.kind == Kind::none) return std::nullopt;
  if (scaling.kind != Kind::yarn || scaling.factor != 0) {
    if (auto problem = check_positive("factor", scaling.factor)) return problem;
  }
  if (auto problem =
          check_size("original_max_position_embeddings", scaling.original_max_position_embeddings, 0, kMaxEntries)) {
    return problem;
  }
  if (scaling.kind == Kind::llama3) {
    if (auto problem = check_positive("low_freq_factor", scaling.low_freq_factor)) return problem;
    if (auto problem = check_positive("high_freq_factor", scaling.high_freq_factor)) return problem;
    if (scaling.high_freq_factor <= scaling.low_freq_factor) {
      return ConfigProblem{
          "high_freq_factor",
          fmt::format("{} is not above low_freq_factor {}", scaling.high_freq_factor, scaling.low_freq_factor),
          "set high_freq_factor above low_freq_factor (Llama 3.1 has 4 and 1)"};
    }
  }
  if (scaling.kind == Kind::yarn) {
    if (auto problem = check_positive("beta_fast", scaling.beta_fast)) return problem;
    if (auto problem = check_positive("beta_slow", scaling.beta_slow)) return problem;
    if (scaling.beta_fast < scaling.beta_slow) {
      return ConfigProblem{"beta_fast", fmt::format("{} is below beta_slow {}", scaling.beta_fast, scaling.beta_slow),
                           "set beta_fast to beta_slow or more (usual are 32 and 1)"};
    }
    for (const auto& [key, value] :
         {std::pair{"attention_factor", scaling.attention_factor}, std::pair{"mscale", scaling.mscale},
          std::pair{"mscale_all_dim", scaling.mscale_all_dim}}) {
      if (value == 0) continue;
      if (auto problem = check_positive(key, value)) return problem;
    }
  }
  return std::nullopt;
}

RopeFrequencies rope_frequencies(const RopeScaling& scaling, double theta, std::int64_t head_size,
                                 std::int64_t max_position_embeddings, std::int64_t sequence) {
  const auto width = static_cast<double>(head_size);
  const auto longest = static_cast<double>(max_position_embeddings);
  const double original = scaling.original_max_position_embeddings == 0
                              ? longest
                              : static_cast<double>(scaling.original_max_position_embeddings);
  RopeFrequencies result;
  if (scaling.kind == Kind::dynamic) {
    const double excess = std::max(static_cast<double>(sequence), longest) / longest;
    theta *= std::pow(scaling.factor * excess - (scaling.factor - 1), width / (width - 2));
  }
  result.inverse = plain_frequencies(theta, head_size);
  switch (scaling.kind) {
    case Kind::none:
    case Kind::dynamic:
      break;
    case Kind::linear:
      for (double& frequency : result.inverse) frequency /= scaling.factor;
      break;
    case Kind::llama3:
      scale_llama3(result.inverse, scaling, original);
      break;
    case Kind::yarn:
      scale_yarn(result, scaling, theta, width, original, scaling.factor == 0 ? longest / original : scaling.factor);
      break;
  }
  return result;
}

std::vector<double> as_numbers(const RopeScaling& scaling) {
  return {static_cast<double>(scaling.kind),
          scaling.factor,
          static_cast<double>(scaling.original_max_position_embeddings),
          scaling.low_freq_factor,
          scaling.high_freq_factor,
          scaling.beta_fast,
          scaling.beta_slow,
          scaling.attention_factor,
          scaling.mscale,
          scaling.mscale_all_dim,
          scaling.truncate ? 1.0 : 0.0};
}

RopeScaling rope_scaling_of(const std::vector<double>& numbers) {
  if (numbers.empty()) return {};
  if (numbers.size() != 11) throw InternalError("a scaling of rotary frequencies has 11 numbers");
  return {.kind = static_cast<RopeScaling::Kind>(numbers[0]),
          .factor = numbers[1],
          .original_max_position_embeddings = static_cast<std::int64_t>(numbers[2]),
          .low_freq_factor = numbers[3],
          .high_freq_factor = numbers[4],
          .beta_fast = numbers[5],
          .beta_slow = numbers[6],
          .attention_factor = numbers[7],
          .mscale = numbers[8],
          .mscale_all_dim = numbers[9],
          .truncate = numbers[10] != 0};
}

}  // namespace orthant
