#include "orthant/train/precision_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "orthant/base/nearest.h"

namespace orthant {
namespace {

constexpr double kMostInitialScale = 1LL << 60;
constexpr double kMostInterval = 1LL << 40;

const std::vector<std::string> kFloats = {"float64", "float32", "bfloat16", "float16"};

std::string read_name(JsonReader& section, std::string_view key, DType standard,
                      const std::vector<std::string>& known) {
  auto text = section.get<std::string>(key, std::string(dtype_name(standard)));
  if (std::ranges::find(known, text) == known.end()) {
    section.fail(key, fmt::format("\"{}\" is not a dtype to train in", text), did_you_mean(text, known));
  }
  return text;
}

DType read_float(JsonReader& section, std::string_view key, DType standard) {
  return parse_dtype(read_name(section, key, standard, kFloats));
}

// float8 is bfloat16 with some products in float8.
void read_compute(JsonReader& section, Precision& precision) {
  std::vector<std::string> known = kFloats;
  known.emplace_back(kFloat8Name);
  const auto text = read_name(section, "compute", precision.params, known);
  precision.float8 = text == kFloat8Name;
  precision.compute = precision.float8 ? DType::bfloat16 : parse_dtype(text);
}

bool is_narrow(DType dtype) {
  return dtype == DType::bfloat16 || dtype == DType::float16;
}

void read_master(JsonReader& section, Precision& precision) {
  static const std::vector<std::string> kKinds = {"float32", "float64", "bf16_remainder"};
  const std::string params(dtype_name(precision.params));
  const auto text = section.get<std::string>("master", params);
  if (std::ranges::find(kKinds, text) == kKinds.end()) {
    section.fail("master", fmt::format("\"{}\" is no way to store the optimizer's copy", text),
                 did_you_mean(text, kKinds));
  }
  if (text == params) return;
  if (text != "bf16_remainder") {
    section.fail("master", fmt::format("is {} with params {}", text, params),
                 fmt::format("use {}, or bf16_remainder with params float32 and compute bfloat16", params));
  }
  precision.master = MasterKind::bf16_remainder;
}

// Whether there is a device that knows it, check_device() says.
void read_tf32(JsonReader& section, Precision& precision) {
  precision.tf32 = section.get<bool>("tf32", false);
  if (!precision.tf32 || precision.compute == DType::float32) return;
  section.fail(
      "tf32",
      fmt::format("is true with compute {}: it rounds products of float32 alone", dtype_name(precision.compute)),
      "use compute float32, or leave tf32 out");
}

Precision read_dtypes(JsonReader& section) {
  Precision precision;
  precision.params = read_float(section, "params", precision.params);
  read_compute(section, precision);
  precision.reduce = read_float(section, "reduce", precision.params);
  const auto params = dtype_name(precision.params);
  if (is_narrow(precision.params)) {
    section.fail("params", fmt::format("the optimizer's copy in {} loses small updates", params),
                 fmt::format("use float32 and compute {}", params));
  }
  if (precision.params != precision.compute && !is_narrow(precision.compute)) {
    section.fail("compute", fmt::format("is {} with params {}", dtype_name(precision.compute), params),
                 "use the same dtype, bfloat16 or float16");
  }
  if (precision.float8 && precision.params != DType::float32) {
    section.fail("compute", fmt::format("is {} with params {}", kFloat8Name, params), "use params float32");
  }
  read_master(section, precision);
  read_tf32(section, precision);
  return precision;
}

void check_scale(const JsonReader& section, double scale) {
  if (scale >= 1 && scale <= kMostInitialScale) return;
  section.fail("loss_scale", fmt::format("a scale of {}; it must be 1 to 2^60", scale),
               "use \"dynamic\", or 1 for none");
}

void check_dynamic(const JsonReader& section, const LossScaleOptions& options, double interval) {
  const auto check = [&](bool good, const char* key, double value, const char* rule, const char* remedy) {
    if (!good) section.fail("loss_scale", fmt::format("{} is {}; it must be {}", key, value, rule), remedy);
  };
  check(options.growth >= 1, "growth", options.growth, "at least 1", "use 2");
  check(options.backoff > 0 && options.backoff < 1, "backoff", options.backoff, "between 0 and 1", "use 0.5");
  const bool whole = interval >= 1 && interval <= kMostInterval && interval == static_cast<double>(options.interval);
  check(whole, "interval", interval, "a whole number of steps from 1 on", "use 2000");
}

// {"initial": 65536, "growth": 2, "backoff": 0.5, "interval": 2000} or less.
LossScaleOptions read_dynamic(const JsonReader& section, const nlohmann::json& object) {
  LossScaleOptions options{.dynamic = true, .initial = 65536};
  static const std::vector<std::string> kKeys = {"initial", "growth", "backoff", "interval"};
  auto interval = static_cast<double>(options.interval);
  const std::array<double*, 4> places = {&options.initial, &options.growth, &options.backoff, &interval};
  for (const auto& [key, value] : object.items()) {
    const auto found = std::ranges::find(kKeys, key);
    if (found == kKeys.end()) {
      section.fail("loss_scale", fmt::format("unknown key \"{}\"", key), did_you_mean(key, kKeys));
    }
    if (!value.is_number()) {
      section.fail("loss_scale", fmt::format("{} is {}, not a number", key, value.dump()),
                   "leave it out, or give a number");
    }
    *places[static_cast<std::size_t>(found - kKeys.begin())] = value.get<double>();
  }
  check_scale(section, options.initial);
  options.interval = static_cast<std::int64_t>(std::clamp(interval, 1.0, kMostInterval));
  check_dynamic(section, options, interval);
  return options;
}

LossScaleOptions read_loss_scale(JsonReader& section, const LossScaleOptions& standard) {
  if (!section.has("loss_scale")) {
    if (standard.dynamic) {
      section.get<std::string>("loss_scale", "dynamic");
    } else {
      section.get<double>("loss_scale", standard.initial);
    }
    return standard;
  }
  const auto& found = section.require_raw("loss_scale");
  if (found == "dynamic") return read_dynamic(section, nlohmann::json::object());
  if (found.is_object()) return read_dynamic(section, found);
  if (!found.is_number()) {
    section.fail("loss_scale", fmt::format("found {}", found.dump()),
                 R"(use "dynamic", a number from 1 on, or {"initial": 65536, "interval": 2000})");
  }
  const LossScaleOptions fixed{.initial = found.get<double>()};
  check_scale(section, fixed.initial);
  return fixed;
}

}  // namespace

void read_precision(JsonReader section, TrainerOptions& trainer) {
  trainer.precision = read_dtypes(section);
  check_master(trainer.precision, trainer.policy);
  trainer.loss_scale = read_loss_scale(section, default_loss_scale(trainer.precision));
}

}  // namespace orthant
