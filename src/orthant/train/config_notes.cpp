#include "orthant/train/config_notes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>

#include "orthant/layout/rows.h"
#include "orthant/train/default_config.h"

namespace orthant {
namespace {

// The value that the readers take for `key` when the configuration leaves it out; null where they take none.
nlohmann::json default_of(const JsonDocument& document, const std::string& key) {
  auto without = JsonDocument::parse(document.value().dump());
  without.remove(key);
  read_run_config(without);
  const auto found = std::ranges::find(without.entries(), key, &JsonEntry::key);
  return found == without.entries().end() ? nlohmann::json() : nlohmann::json::parse(found->value);
}

// The value of `key` in the embedded default run; null where it has none.
nlohmann::json value_of_default_run(std::string key) {
  std::ranges::replace(key, '.', '/');
  return nlohmann::json::parse(kDefaultConfig).value(nlohmann::json::json_pointer("/" + key), nlohmann::json());
}

// Whether somebody chose this value. A run's resolved configuration has every key: there, the readers' defaults and the
// values of the embedded default run count as chosen by nobody. An empty list or object is as good as none.
bool is_given(const JsonDocument& document, const std::string& key) {
  const auto entry = std::ranges::find(document.entries(), key, &JsonEntry::key);
  if (entry == document.entries().end() || entry->origin == "default") return false;
  const auto value = nlohmann::json::parse(entry->value);
  const bool by_override = entry->origin.starts_with("--set ");
  if (value.empty() || (!by_override && value == value_of_default_run(key))) return false;
  return value != default_of(document, key);
}

class Notes {
 public:
  explicit Notes(const JsonDocument& document) : document_(document) {}

  // One line with those of `keys` that somebody gave.
  void add_idle(const std::vector<std::string>& keys, const std::string& reason) {
    std::vector<std::string> given;
    std::ranges::copy_if(keys, std::back_inserter(given), [&](const auto& key) { return is_given(document_, key); });
    if (!given.empty()) add(fmt::format("{}: no effect, {}", fmt::join(given, ", "), reason));
  }

  void add(const std::string& text) { lines_.push_back("note: " + text); }
  std::vector<std::string> done() { return lines_; }

 private:
  const JsonDocument& document_;
  std::vector<std::string> lines_;
};

void add_axes(Notes& notes, const RunConfig& config) {
  const auto is_one = [&](Axis axis) { return config.mesh.degree(axis) == 1; };
  if (is_one(Axis::fsdp)) {
    std::vector<std::string> keys = {"parallel.accumulate", "parallel.limit_all_gathers", "parallel.keep_gathered",
                                     "parallel.units"};
    // Zero 0 asks for whole replicas, and there is nothing else here.
    if (config.trainer.policy.zero > 0) keys.insert(keys.begin(), "parallel.zero");
    notes.add_idle(keys, config.mesh.degree(Axis::dp) > 1 ? "mesh.fsdp is 1 and parallel.zero does not shard over dp"
                                                          : "mesh.fsdp is 1");
  }
  if (num_replicas(config.mesh) == 1 && is_one(Axis::cp)) {
    notes.add_idle({"parallel.bucket_mb", "parallel.comm_hook"}, "mesh.dp and mesh.fsdp are 1");
  }
  if (is_one(Axis::cp)) {
    notes.add_idle({"parallel.context", "parallel.shard_over_context"}, "mesh.cp is 1");
  } else if (is_one(Axis::fsdp)) {
    notes.add_idle({"parallel.shard_over_context"}, "mesh.fsdp is 1 and parameters are whole over cp");
  }
  if (is_one(Axis::tp)) {
    notes.add_idle({"parallel.sequence_parallel", "parallel.loss_parallel", "parallel.regather", "parallel.plan"},
                   "mesh.tp is 1");
  } else if (!config.trainer.tensor.sequence_parallel) {
    notes.add_idle({"parallel.regather"}, "without parallel.sequence_parallel every rank has all tokens");
  }
  if (is_one(Axis::pp)) {
    std::vector<std::string> keys = {"parallel.schedule", "parallel.virtual_stages", "parallel.placement"};
    if (config.trainer.stages.stages <= 1)
      keys.insert(keys.end(), {"parallel.split_costs", "parallel.split_memory_gb"});
    notes.add_idle(keys, "mesh.pp is 1");
  }
}

void add_pipeline(Notes& notes, const RunConfig& config) {
  const int pp = config.mesh.degree(Axis::pp);
  if (pp == 1 || config.trainer.microbatches > 1) return;
  const auto rows = config.global_batch_size / num_replicas(config.mesh);
  std::int64_t more = 4 * pp;  // further microbatches would shorten the pipeline's idle time only a little
  while (rows % more != 0) --more;
  notes.add(fmt::format("parallel.microbatches is 1 with mesh.pp {}: no two stages work at the same time; {}", pp,
                        more > 1 ? fmt::format("set parallel.microbatches={}", more)
                                 : fmt::format("raise train.global_batch_size: a replica has {} of its rows", rows)));
}

void add_others(Notes& notes, const RunConfig& config) {
  const auto& trainer = config.trainer;
  if (trainer.policy.offload == Offload::params && trainer.policy.zero < 3 && config.mesh.degree(Axis::fsdp) > 1) {
    notes.add("parallel.offload=params: below parallel.zero 3 it is optimizer");
  }
  if (config.eval_every > 0 && !has_eval_data(config)) {
    notes.add_idle({"train.eval_every"}, "there are no data to evaluate on: set data.eval_fraction or eval_path");
  }
  if (trainer.optimizer.kind == "sgd") {
    notes.add_idle({"optimizer.betas", "optimizer.eps"}, "optimizer.kind is sgd");
  }
  if (trainer.precision.compute != DType::float16) {
    notes.add_idle({"precision.loss_scale"}, fmt::format("precision.compute is {}: only gradients in float16 underflow",
                                                         dtype_name(trainer.precision.compute)));
  }
  if (trainer.join_head_and_loss == JoinHeadAndLoss::off) {
    notes.add_idle({"train.loss_chunk_rows"}, "train.join_head_and_loss is off");
  }
  if (trainer.lr.kind != LrSchedule::Kind::wsd) {
    notes.add_idle({"lr_schedule.decay_steps"}, "lr_schedule.kind is not wsd");
  }
}

}  // namespace

std::vector<std::string> config_notes(const JsonDocument& document, const RunConfig& config) {
  Notes notes(document);
  const auto asked = read_run_mesh(document);
  if (asked != config.mesh) {
    notes.add(fmt::format("parallel.zero={} shards over dp: mesh {} trains as {}", config.trainer.policy.zero,
                          asked.to_string(), config.mesh.to_string()));
  }
  add_axes(notes, config);
  add_pipeline(notes, config);
  add_others(notes, config);
  return notes.done();
}

}  // namespace orthant
