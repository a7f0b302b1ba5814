// The configuration of a run: the sections of a config file, typed and checked. Nothing here runs; every value that is
// read, defaults included, is noted with its origin for --print-config and the resolved config.json.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "orthant/base/json_document.h"
#include "orthant/checkpoint/retention.h"
#include "orthant/mesh/mesh.h"
#include "orthant/models/model_config.h"
#include "orthant/train/data_config.h"
#include "orthant/train/trainer.h"

namespace orthant {

struct CheckpointConfig {
  std::int64_t save_every = 0;         // steps; 0: only at the end
  std::int64_t save_every_epochs = 0;  // instead; turned into steps
  double save_minutes = 0;             // by the clock of rank 0, besides; 0: never
  KeepRules keep;                      // keys keep_last, keep_every, keep_best
  bool asynchronous = false;           // saves of save_every; the last one is waited for
  std::string key_file = {};           // of the key that manifests and files are tagged with; empty: no tags
  double retry_seconds = 3;            // for how long what a file system refuses is tried again on a resume
};

// What is done about a step whose loss or gradients are not finite. Its update is left out either way.
enum class BadSteps { stop, skip };

struct RunConfig {
  std::string name = "run";
  ModelConfig model;
  DataConfig data;
  Mesh mesh;               // that is trained on: an explicit parallel.zero has made shards of dp where there is no fsdp
  TrainerOptions trainer;  // seed, precision, optimizer, learning rate, schedule, recompute, microbatches
  std::int64_t global_batch_size = 8;
  std::int64_t epochs = 0;
  std::int64_t steps = 0;  // of the whole run: epochs are turned into steps when the number of samples is known
  std::int64_t eval_every = 0;
  std::int64_t early_stop = 0;  // evaluations in a row without a smaller loss that end the run; 0: none do
  BadSteps bad_steps = BadSteps::stop;
  CheckpointConfig checkpoint;
};

// Reads every section and refuses what it does not know. ConfigError.
RunConfig read_run_config(const JsonDocument& document);

// Whether evaluations have something to look at.
bool has_eval_data(const RunConfig& config);

// The mesh alone as it was asked for, without looking at what must fit it or what parallel.zero makes of it.
Mesh read_run_mesh(const JsonDocument& document);

// The file or, when `path` is empty, the embedded default, with overrides applied.
JsonDocument load_run_document(const std::string& path, const std::vector<std::string>& overrides);

// Every value that was read, as a config file that reads the same.
std::string resolved_config(const JsonDocument& document);

// "model.hidden_size = 64   (train.json:3)": one line per value.
std::string printed_config(const JsonDocument& document);

// What only the data knows: turns epochs into steps and completes the learning-rate schedule. read_run_config() has
// done so for generated data; files are counted when they are read. ConfigError.
void set_samples(RunConfig& config, std::int64_t samples);

// Steps of an epoch, whose last batch may be smaller.
std::int64_t steps_per_epoch(const RunConfig& config);

// The rows of a microbatch and the sequence lengths, for the model's spec.
WorkSize work_size(const RunConfig& config);

// The spec of the run's model, with what is frozen, and with the costs of a rank that holds whole layers.
GraphSpec declared_spec(const RunConfig& config);

// The same as it is trained (trainer_graph), with the costs of one of its tp ranks. ConfigError where it cannot.
GraphSpec run_spec(const RunConfig& config);

}  // namespace orthant
