#include "orthant/train/config_notes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "orthant/layout/rows.h"

namespace orthant {
namespace {

// A key and the value, as JSON, by which it asks for nothing.
struct Setting {
  std::string_view key;
  std::string_view neutral;
};

bool is_set(const JsonDocument& document, const Setting& setting) {
  return std::ranges::any_of(document.entries(), [&](const JsonEntry& entry) {
    const bool same = entry.key == setting.key || entry.key.starts_with(std::string(setting.key) + ".");
    return same && entry.origin != "default" && entry.value != setting.neutral && entry.value != "null";
  });
}

class Notes {
 public:
  explicit Notes(const JsonDocument& document) : document_(document) {}

  // Those of the settings that the user has given, as one line.
  void add_idle(const std::vector<Setting>& settings, const std::string& reason) {
    std::vector<std::string_view> keys;
    for (const auto& setting : settings) {
      if (is_set(document_, setting)) keys.push_back(setting.key);
    }
    if (!keys.empty()) add(fmt::format("{}: no effect, {}", fmt::join(keys, ", "), reason));
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
    notes.add_idle({{"parallel.zero", "0"},
                    {"parallel.accumulate", "\"full\""},
                    {"parallel.limit_all_gathers", "2"},
                    {"parallel.keep_gathered", "false"},
                    {"parallel.units", "\"layer\""}},
                   config.mesh.degree(Axis::dp) > 1 ? "mesh.fsdp is 1 and parallel.zero does not shard over dp"
                                                    : "mesh.fsdp is 1");
  }
  if (num_replicas(config.mesh) == 1) {
    notes.add_idle({{"parallel.bucket_mb", "25"}, {"parallel.comm_hook", "\"none\""}}, "mesh.dp and mesh.fsdp are 1");
  }
  if (is_one(Axis::tp)) {
    notes.add_idle({{"parallel.sequence_parallel", "false"},
                    {"parallel.loss_parallel", "false"},
                    {"parallel.regather", "false"},
                    {"parallel.plan", "{}"}},
                   "mesh.tp is 1");
  } else if (!config.trainer.tensor.sequence_parallel) {
    notes.add_idle({{"parallel.regather", "false"}}, "without parallel.sequence_parallel every rank has all tokens");
  }
  if (is_one(Axis::pp)) {
    notes.add_idle({{"parallel.schedule", "\"1f1b\""}, {"parallel.virtual_stages", "1"}, {"parallel.placement", "[]"}},
                   "mesh.pp is 1");
  }
}

void add_pipeline(Notes& notes, const RunConfig& config) {
  const int pp = config.mesh.degree(Axis::pp);
  if (pp == 1 || config.trainer.microbatches > 1) return;
  const auto rows = config.global_batch_size / num_replicas(config.mesh);
  std::int64_t more = 4 * pp;  // up to there the pipeline gains from each
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
    notes.add_idle({{"train.eval_every", "0"}},
                   "there are no data to evaluate on: set data.eval_fraction or eval_path");
  }
  if (trainer.optimizer.kind == "sgd") {
    notes.add_idle({{"optimizer.betas", ""}, {"optimizer.eps", ""}}, "optimizer.kind is sgd");
  }
  if (trainer.lr.kind != LrSchedule::Kind::wsd) {
    notes.add_idle({{"lr_schedule.decay_steps", "0"}}, "lr_schedule.kind is not wsd");
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
