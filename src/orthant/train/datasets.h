// The data set a configuration asks for, checked against the model that will read it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "orthant/checkpoint/checkpoint.h"
#include "orthant/data/dataset.h"
#include "orthant/data/loader.h"
#include "orthant/data/sampler.h"
#include "orthant/train/run_config.h"

namespace orthant {

class ControlGroup;

struct RunData {
  std::shared_ptr<const Dataset> train;
  std::shared_ptr<const Dataset> eval;  // null without evaluation data
  std::optional<double> best_accuracy;  // known for generated classification data
  std::int64_t num_labels = 0;          // 0: language modelling
  SavedFiles saved_files;               // what belongs to the model besides weights
  std::vector<std::string> notes;       // lines for the log
};

// The order of the samples; ConfigError for a batch larger than the data.
Sampler make_sampler(const RunConfig& config, const RunData& data);

// The batches of one rank from the step after `steps_done` on, read ahead.
std::unique_ptr<Loader> make_loader(const RunConfig& config, const RunData& data, std::int64_t steps_done);

// Opens or generates the data, and completes the configuration by what only the data knows: the number of samples and
// thereby of steps, and class weights. ConfigError when model and data do not fit: kinds, vocabulary, sequence lengths,
// tabular columns, labels. DataError for bad files.
RunData make_run_data(RunConfig& config);

// The same for all ranks of a run: a table is read by one rank of each host, whose memory the others read. Collective
// over the world.
RunData make_run_data(RunConfig& config, const ControlGroup& ranks);

// DataError, on all ranks, when one of them found other data than rank 0; `found` says what. Ranks with different
// samples would not even make the same number of calls. Collective over the world.
void check_same_data(const std::string& found, const ControlGroup& ranks);

// ConfigError for generated data that does not fit the model or the batch, before anything is started; random data
// fits every model. Local.
void check_generated_data(RunConfig config);

}  // namespace orthant
