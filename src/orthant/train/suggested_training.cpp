#include "orthant/train/suggested_training.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <nlohmann/json.hpp>

#include "orthant/train/usual_values.h"

namespace orthant {
namespace {

using Json = nlohmann::ordered_json;

struct Lengths {
  std::int64_t batch = 1;
  std::int64_t microbatches = 1;
  std::int64_t steps_per_epoch = 1;
  std::int64_t epochs = 1;
  std::int64_t interval = 1;  // of evaluations and saves

  std::int64_t steps() const { return steps_per_epoch * epochs; }
};

Lengths choose_lengths(const TrainingFacts& facts, const UsualValues& usual) {
  constexpr std::int64_t kEnoughSteps = 1000;  // to learn something from nothing
  constexpr std::int64_t kMostPasses = 10;
  constexpr std::int64_t kMicrobatchTokens = 8192;
  Lengths lengths;
  lengths.batch = std::min(usual.batch, power_of_two(facts.samples / 8));
  while (lengths.microbatches < lengths.batch &&
         lengths.batch / lengths.microbatches * facts.length > kMicrobatchTokens) {
    lengths.microbatches *= 2;
  }
  lengths.steps_per_epoch = (facts.samples + lengths.batch - 1) / lengths.batch;
  lengths.epochs = facts.use == "pretrain"
                       ? std::clamp<std::int64_t>(kEnoughSteps / lengths.steps_per_epoch, 1, kMostPasses)
                       : usual.epochs;
  lengths.interval = std::clamp<std::int64_t>(lengths.steps() / 10, 1, 1000);
  return lengths;
}

void add_device_sections(Json& config, const TrainingFacts& facts, const Lengths& lengths) {
  add_section(
      config, "parallel",
      fmt::format("Microbatches bound memory: {} tokens at once.", lengths.batch / lengths.microbatches * facts.length),
      {{"microbatches", lengths.microbatches}});
  add_section(config, "precision",
              facts.card ? "A GPU was found: products in bfloat16, weights kept in float32."
                         : "No GPU was found: float32 throughout. On a GPU set compute to bfloat16.",
              {{"params", "float32"}, {"compute", facts.card ? "bfloat16" : "float32"}, {"reduce", "float32"}});
}

}  // namespace

std::int64_t power_of_two(std::int64_t most) {
  return static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(std::max<std::int64_t>(1, most))));
}

void add_section(Json& config, const char* name, std::string comment, const Json& values) {
  config[name] = {{"_comment", std::move(comment)}};
  config[name].update(values);
}

std::string add_training(Json& config, const TrainingFacts& facts) {
  const auto usual = usual_values(facts.use, facts.pretrained, facts.parameters);
  const auto lengths = choose_lengths(facts, usual);
  const bool pretrain = facts.use == "pretrain";
  const bool evaluates = facts.eval_fraction > 0;
  const auto warmup = static_cast<std::int64_t>(static_cast<double>(lengths.steps()) * usual.warmup_fraction);
  add_device_sections(config, facts, lengths);
  add_section(config, "optimizer", fmt::format("A usual rate for {}: {}.", facts.use, usual.why),
              {{"kind", "adamw"},
               {"lr", usual.lr},
               {"betas", {0.9, pretrain ? 0.95 : 0.999}},
               {"weight_decay", usual.weight_decay},
               {"clip", 1.0}});
  add_section(config, "lr_schedule", fmt::format("Over all of about {} steps.", lengths.steps()),
              {{"kind", usual.schedule}, {"warmup_steps", warmup}, {"final_fraction", usual.final_fraction}});
  add_section(config, "train",
              fmt::format("About {} steps an epoch; global_batch_size counts the samples of a step on all ranks.",
                          lengths.steps_per_epoch),
              {{"global_batch_size", lengths.batch},
               {"epochs", lengths.epochs},
               {"eval_every", evaluates ? lengths.interval : 0}});
  add_section(config, "checkpoint",
              evaluates ? "In steps; the last two checkpoints and the best by evaluation loss are kept."
                        : "In steps; the last two checkpoints are kept.",
              {{"save_every", lengths.interval}, {"keep_last", 2}, {"keep_best", evaluates ? 1 : 0}});
  return fmt::format("learning rate {}, {} x about {} steps, batch {} in {} microbatch{}, {}, {} every {} steps",
                     usual.lr, lengths.epochs, lengths.steps_per_epoch, lengths.batch, lengths.microbatches,
                     lengths.microbatches == 1 ? "" : "es",
                     facts.card ? "bfloat16 (a GPU is here)" : "float32 (no GPU here)",
                     evaluates ? "evaluated and saved" : "too little data to evaluate on, saved", lengths.interval);
}

}  // namespace orthant
