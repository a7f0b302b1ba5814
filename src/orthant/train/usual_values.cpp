#include "orthant/train/usual_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "orthant/base/error.h"
#include "orthant/data/data_kind.h"
#include "orthant/models/family.h"
#include "orthant/models/hugging_face.h"

namespace orthant {
namespace {

// The value that the last of the overrides gives a key, as it is written; nothing when none does.
std::optional<std::string> override_of(const std::vector<std::string>& overrides, std::string_view key) {
  std::optional<std::string> value;
  for (const auto& assignment : overrides) {
    if (!assignment.starts_with(key) || assignment.size() <= key.size() || assignment[key.size()] != '=') continue;
    value = assignment.substr(key.size() + 1);
    if (value->size() >= 2 && value->front() == '"' && value->back() == '"')
      value = value->substr(1, value->size() - 2);
  }
  return value;
}

// As long as a model of that folder can read, within reason. A folder that cannot be read is refused later, by name.
std::optional<std::int64_t> length_for(const std::string& folder) {
  constexpr std::int64_t kMost = 512;
  try {
    return std::min(kMost, max_sequence(read_hugging_face_config(folder)));
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace

UsualValues usual_values(std::string_view use, bool pretrained, std::int64_t parameters) {
  if (use == "finetune") return {2e-5, 0.03, 0.01, 16, 3, "cosine", 0, "small steps keep what the weights know"};
  if (use == "classify") {
    if (pretrained) return {2e-5, 0.06, 0.01, 32, 3, "linear", 0, "small steps keep what the encoder knows"};
    return {5e-4, 0.06, 0.01, 32, 10, "linear", 0, "weights begin at random"};
  }
  const double lr = parameters >= 10'000'000'000  ? 1.5e-4
                    : parameters >= 1'000'000'000 ? 3e-4
                    : parameters >= 100'000'000   ? 6e-4
                                                  : 1e-3;
  return {lr, 0.02, 0.1, 32, 1, "cosine", 0.1, "weights begin at random, and larger models take smaller steps"};
}

void leave_demo(JsonDocument& demo, const std::vector<std::string>& overrides) {
  const auto path = override_of(overrides, "model.path");
  const auto kind = override_of(overrides, "model.kind");
  const auto data = override_of(overrides, "data.kind");
  const auto classifier = first_family(Task::classification).name;  // the demo's
  const bool tower = override_of(overrides, "model.primary.path") || override_of(overrides, "model.secondary.path");
  const bool other_model = path || tower || override_of(overrides, "model.preset") || (kind && *kind != classifier);
  const bool other_data = override_of(overrides, "data.path") || (data && *data != kTableDemoKind && *data != "random");
  if (!other_model && !other_data) return;
  const bool table = data ? *data == kTableKind : !path && (!kind || *kind == classifier);
  const char* use = table ? "classify" : path ? "finetune" : "pretrain";
  const auto usual = usual_values(use, path || tower, 0);
  for (const char* key : {"name", "seed", "optimizer", "lr_schedule", "train", "parallel", "data.sequence_length",
                          "data.secondary_length", "data.eval_fraction"}) {
    demo.remove(key);
  }
  const auto set = [&](const std::string& assignment) {
    demo.apply_override(assignment, fmt::format("default of {}:", use));
  };
  set(fmt::format("name={}", use));
  set(fmt::format("optimizer.lr={}", usual.lr));
  set(fmt::format("optimizer.weight_decay={}", usual.weight_decay));
  set(fmt::format("lr_schedule.kind={}", usual.schedule));
  set(fmt::format("lr_schedule.final_fraction={}", usual.final_fraction));
  set(fmt::format("train.global_batch_size={}", usual.batch));
  if (!override_of(overrides, "train.steps")) set(fmt::format("train.epochs={}", usual.epochs));
  if (const auto length = path ? length_for(*path) : std::nullopt) set(fmt::format("data.sequence_length={}", *length));
}

}  // namespace orthant
