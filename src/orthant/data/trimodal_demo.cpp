#include "orthant/data/trimodal_demo.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "orthant/base/error.h"
#include "orthant/base/random.h"
#include "orthant/data/field_checks.h"
#include "orthant/data/trimodal_texts.h"

namespace orthant {
namespace {

constexpr double kRiskMargin = 0.5;

void check_length(const char* key, std::int64_t length, std::size_t signal_words) {
  const auto needed = static_cast<std::int64_t>(signal_words) + 2;  // [CLS] and [SEP]
  if (length >= needed) return;
  throw ConfigError(
      fmt::format("{} of trimodal_demo is {}, but a text says what it is about within its first {} positions", key,
                  length, needed),
      {.remedy = fmt::format("set {} to {} or more", key, needed)});
}

void check_options(const TrimodalDemoOptions& options) {
  if (options.size < 1) {
    throw ConfigError(fmt::format("data.size is {}, but a data set needs at least one sample", options.size),
                      {.remedy = "set data.size to 1 or more"});
  }
  check_length("primary_length", options.primary_length, dialogue_signal_words());
  check_length("secondary_length", options.secondary_length, track_signal_words());
  if (!(options.label_noise >= 0 && options.label_noise < 0.5)) {
    throw ConfigError(fmt::format("label_noise is {}, but it must be at least 0 and below 0.5", options.label_noise),
                      {.remedy = "set label_noise to 0.03 or leave it out"});
  }
  check_class_weights(options.class_weights, TrimodalDemo::kNumLabels);
}

// Eight standard normal numbers, the first three moved along (1, -1/2, -1/2) until the risk score has the wanted sign.
std::array<float, TrimodalSample::kNumbers> draw_numbers(bool risky, const RandomStream& stream) {
  std::array<double, TrimodalSample::kNumbers> x;
  stream.fill_normal(x, 0, 0.0, 1.0);
  const double score = x[0] - (x[1] + x[2]) / 2;
  const double wanted = (risky ? 1 : -1) * (kRiskMargin + std::abs(score));
  const double shift = (wanted - score) / 1.5;
  x[0] += shift;
  x[1] -= shift / 2;
  x[2] -= shift / 2;
  std::array<float, TrimodalSample::kNumbers> numbers;
  std::ranges::transform(x, numbers.begin(), [](double value) { return static_cast<float>(value); });
  return numbers;
}

}  // namespace

TrimodalDemo::TrimodalDemo(TrimodalDemoOptions options)
    : Dataset(options.class_weights), options_(std::move(options)), vocabulary_(trimodal_phrases()) {
  check_options(options_);
}

TrimodalSample TrimodalDemo::sample(std::int64_t index) const {
  check_indices({&index, 1}, options_.size);
  const auto key = static_cast<std::uint64_t>(index);
  const std::string stream = fmt::format("data.trimodal_demo.{}", to_string(options_.split));
  DrawSequence draws(RandomStream(options_.seed, stream, {key}));

  TrimodalSample sample;
  for (bool& signal : sample.signals) signal = draws.below(2) != 0;
  const auto says_yes = std::ranges::count(sample.signals, true);
  const bool turned = draws.uniform() < options_.label_noise;
  sample.label = (says_yes >= 2) != turned ? 1 : 0;
  sample.dialogue = dialogue_text(sample.signals[0], draws);
  sample.track = track_text(sample.signals[1], draws);
  sample.numbers = draw_numbers(sample.signals[2], RandomStream(options_.seed, stream + ".numbers", {key}));
  return sample;
}

Fields TrimodalDemo::rows(std::span<const std::int64_t> indices) const {
  const auto count = static_cast<std::int64_t>(indices.size());
  const auto primary = static_cast<std::size_t>(options_.primary_length);
  const auto secondary = static_cast<std::size_t>(options_.secondary_length);
  Fields fields = {{"primary_ids", at::empty({count, options_.primary_length}, at::kLong)},
                   {"primary_mask", at::empty({count, options_.primary_length}, at::kBool)},
                   {"secondary_ids", at::empty({count, options_.secondary_length}, at::kLong)},
                   {"secondary_mask", at::empty({count, options_.secondary_length}, at::kBool)},
                   {"tabular", at::empty({count, TrimodalSample::kNumbers}, at::kFloat)},
                   {kLabelsField, at::empty({count}, at::kLong)}};
  auto* primary_ids = fields["primary_ids"].mutable_data_ptr<std::int64_t>();
  auto* primary_mask = fields["primary_mask"].mutable_data_ptr<bool>();
  auto* secondary_ids = fields["secondary_ids"].mutable_data_ptr<std::int64_t>();
  auto* secondary_mask = fields["secondary_mask"].mutable_data_ptr<bool>();
  auto* tabular = fields["tabular"].mutable_data_ptr<float>();
  auto* labels = fields[kLabelsField].mutable_data_ptr<std::int64_t>();
  for (std::size_t row = 0; row < indices.size(); ++row) {
    const TrimodalSample drawn = sample(indices[row]);
    vocabulary_.encode(drawn.dialogue, {primary_ids + row * primary, primary}, {primary_mask + row * primary, primary});
    vocabulary_.encode(drawn.track, {secondary_ids + row * secondary, secondary},
                       {secondary_mask + row * secondary, secondary});
    std::ranges::copy(drawn.numbers, tabular + row * TrimodalSample::kNumbers);
    labels[row] = drawn.label;
  }
  return fields;
}

double TrimodalDemo::best_accuracy_of_some_parts() const {
  return 0.5 * (1 - options_.label_noise) + 0.5 * 0.5;
}

std::vector<std::string> TrimodalDemo::number_names() {
  std::vector<std::string> names;
  for (std::size_t i = 1; i <= TrimodalSample::kNumbers; ++i) names.push_back(fmt::format("feature_{}", i));
  return names;
}

std::vector<std::string> TrimodalDemo::number_meanings() {
  return {"claims in the last year", "age of the account",        "orders without a claim", "value of the order",
          "days since the order",    "distance to the warehouse", "weight of the parcel",   "hour of the message"};
}

}  // namespace orthant
