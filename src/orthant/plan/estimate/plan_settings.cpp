#include "orthant/plan/estimate/plan_settings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "orthant/base/error.h"
#include "orthant/base/nearest.h"

namespace orthant {
namespace {

constexpr std::int64_t kMostMicrobatches = 1'000'000;  // more are taken for a mistake
constexpr std::array<std::string_view, 4> kRecomputeNames = {"none", "selective", "full", "op"};

// What a plan is priced with where it does not say otherwise.
constexpr std::array<std::pair<std::string_view, std::string_view>, 15> kStandards = {
    {{"parallel.schedule", "1f1b"},
     {"parallel.virtual_stages", "null"},
     {"parallel.split", "auto"},
     {"parallel.split_costs", "null"},
     {"parallel.split_memory_gb", "null"},
     {"parallel.placement", "null"},
     {"parallel.zero", "0"},
     {"parallel.recompute", "none"},
     {"parallel.sequence_parallel", "false"},
     {"parallel.loss_parallel", "false"},
     {"parallel.regather", "false"},
     {"parallel.accumulate", "full"},
     {"parallel.context", "auto"},
     {"parallel.shard_over_context", "true"},
     {"parallel.expert_tp", "null"}}};

void require_positive(std::int64_t size, const char* what) {
  if (size >= 1) return;
  throw ConfigError(fmt::format("{} is {}", what, size), {.remedy = "give a number from 1 up"});
}

}  // namespace

std::string_view plan_recompute_name(PlanRecompute mode) {
  return kRecomputeNames.at(static_cast<std::size_t>(mode));
}

PlanRecompute parse_plan_recompute(std::string_view text) {
  const auto found = std::ranges::find(kRecomputeNames, text);
  if (found != kRecomputeNames.end()) return static_cast<PlanRecompute>(found - kRecomputeNames.begin());
  throw ConfigError(fmt::format("\"{}\" is no kind of recompute", text),
                    {.remedy = did_you_mean(std::string(text),
                                            std::vector<std::string>(kRecomputeNames.begin(), kRecomputeNames.end()))});
}

void check_sizes(const PlanSettings& settings) {
  require_positive(settings.micro_batch, "the micro batch");
  require_positive(settings.global_batch, "the global batch");
  require_positive(settings.sequence, "the sequence length");
  const auto rows = settings.replicas() * settings.micro_batch;
  if (settings.global_batch % rows != 0) {
    const auto below = std::max<std::int64_t>(settings.global_batch / rows, 1) * rows;
    throw ConfigError(
        fmt::format("a global batch of {} for {} replicas with micro batches of {}: {} is no multiple of {}",
                    settings.global_batch, settings.replicas(), settings.micro_batch, settings.global_batch, rows),
        {.remedy = fmt::format("set --global-batch {}, or a micro batch that divides", below)});
  }
  if (settings.microbatches() > kMostMicrobatches) {
    throw ConfigError(
        fmt::format("a global batch of {} makes {} microbatches of {} replicas", settings.global_batch,
                    settings.microbatches(), settings.replicas()),
        {.remedy = fmt::format("use a larger micro batch or more replicas: at most {}", kMostMicrobatches)});
  }
}

std::vector<TrainSetting> train_settings(const PlanSettings& settings) {
  std::vector<TrainSetting> given;
  const auto set = [&](const char* key, const auto& value) { given.emplace_back(key, fmt::format("{}", value)); };
  set("train.global_batch_size", settings.global_batch);
  set("data.sequence_length", settings.sequence);
  set("parallel.microbatches", settings.microbatches());
  if (settings.mesh.degree(Axis::pp) > 1) {
    set("parallel.schedule", settings.stages.schedule);
    if (settings.stages.virtual_stages > 1) set("parallel.virtual_stages", settings.stages.virtual_stages);
  }
  if (settings.mesh.degree(Axis::fsdp) > 1) set("parallel.zero", settings.data.zero);
  if (settings.recompute != PlanRecompute::none) set("parallel.recompute", plan_recompute_name(settings.recompute));
  if (settings.tensor.sequence_parallel) set("parallel.sequence_parallel", true);
  if (settings.tensor.loss_parallel) set("parallel.loss_parallel", true);
  if (settings.tensor.regather) set("parallel.regather", true);
  if (settings.tensor.expert_tp) set("parallel.expert_tp", *settings.tensor.expert_tp);
  if (settings.mesh.degree(Axis::cp) > 1) {
    if (settings.context) set("parallel.context", context_way_name(*settings.context));
    const bool apart = !settings.data.shard_over_context && settings.mesh.degree(Axis::fsdp) > 1;
    if (apart) set("parallel.shard_over_context", false);
  }
  if (settings.data.accumulate_sharded) set("parallel.accumulate", "sharded");
  set("precision.params", dtype_name(settings.params));
  set("precision.compute", settings.float8 ? kFloat8Name : dtype_name(settings.compute));
  set("precision.reduce", dtype_name(settings.gradients));
  if (settings.splits_master) {
    set("precision.master", "bf16_remainder");
  } else if (std::ranges::find(settings.configured, "precision.master") != settings.configured.end()) {
    set("precision.master", dtype_name(settings.params));
  }
  if (settings.join_head_and_loss != JoinHeadAndLoss::automatic) {
    set("train.join_head_and_loss", join_name(settings.join_head_and_loss));
  }
  if (settings.loss_chunk_rows > 0) set("train.loss_chunk_rows", settings.loss_chunk_rows);
  if (settings.deterministic) set("train.deterministic", true);
  const auto is_configured = [&](std::string_view key) {
    return std::ranges::find(settings.configured, key) != settings.configured.end();
  };
  for (const auto& [key, standard] : kStandards) {
    if (!is_configured(key) || std::ranges::find(given, key, &TrainSetting::first) != given.end()) continue;
    given.emplace_back(key, standard);
  }
  return given;
}

std::vector<std::string_view> planned_keys() {
  std::vector<std::string_view> keys = {"parallel.microbatches"};
  for (const auto& [key, standard] : kStandards) keys.push_back(key);
  return keys;
}

std::string run_command(const RunLine& run, const PlanSettings& settings) {
  return run.has_plan ? run.start : run.start + " " + train_words(settings);
}

std::string train_words(const PlanSettings& settings) {
  std::vector<std::string> words = {fmt::format("--mesh {}", settings.mesh.to_string())};
  for (const auto& [key, value] : train_settings(settings)) words.push_back(fmt::format("--set {}={}", key, value));
  return fmt::format("{}", fmt::join(words, " "));
}

}  // namespace orthant
