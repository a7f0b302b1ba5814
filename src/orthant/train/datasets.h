// The data set a configuration asks for, checked against the model that will read it.
#pragma once

#include <memory>
#include <optional>

#include "orthant/data/dataset.h"
#include "orthant/data/loader.h"
#include "orthant/data/sampler.h"
#include "orthant/train/run_config.h"

namespace orthant {

struct RunData {
  std::shared_ptr<const Dataset> train;
  std::shared_ptr<const Dataset> eval;  // null without evaluation data
  std::optional<double> best_accuracy;  // known for generated classification data
  std::int64_t num_labels = 0;          // 0: language modelling
};

// The order of the samples; ConfigError for a batch larger than the data.
Sampler make_sampler(const RunConfig& config, const RunData& data);

// The batches of one rank from the step after `steps_done` on, read ahead.
std::unique_ptr<Loader> make_loader(const RunConfig& config, const RunData& data, std::int64_t steps_done);

// ConfigError when model and data do not fit: kinds, vocabulary, sequence lengths, tabular columns, labels.
RunData make_run_data(const RunConfig& config);

}  // namespace orthant
