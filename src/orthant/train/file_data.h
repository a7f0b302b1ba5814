// Data sets from a user's files, checked against the model that will read them. Files are opened and read here.
#pragma once

#include "orthant/train/datasets.h"

namespace orthant {

// Saved with the checkpoints of runs on files: sizes and hashes of what they were trained on.
inline constexpr const char* kDataFile = "data.json";

// data.kind trimodal: a table. Takes the class weights over into the model's configuration.
RunData table_data(RunConfig& config, TrimodalConfig& model);

// Masked language modelling over the tokens of another data set.
std::shared_ptr<const Dataset> masked(const RunConfig& config, std::shared_ptr<const Dataset> tokens,
                                      std::int64_t mask_id, const std::vector<std::int64_t>& special_ids);

// data.kind text: token files or texts, for language models and (masked) for bert.
RunData text_data(const RunConfig& config);

}  // namespace orthant
