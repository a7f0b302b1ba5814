// How a run that `orthant init` suggests trains: batch, learning rate, length, precision, evaluation and saves, by what
// the run is for and how much data there is.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace orthant {

struct TrainingFacts {
  std::string use;  // finetune, pretrain, classify
  bool pretrained = false;
  std::int64_t parameters = 0;
  std::int64_t samples = 0;  // to train on; may be an estimate
  std::int64_t length = 0;   // tokens of a sample
  double eval_fraction = 0;
  bool card = false;  // the run will find a GPU
};

// Adds the sections parallel, precision, optimizer, lr_schedule, train and checkpoint, each with its `_comment`; gives
// the choices in one line for people.
std::string add_training(nlohmann::ordered_json& config, const TrainingFacts& facts);

// The largest power of two up to `most`; 1 at least.
std::int64_t power_of_two(std::int64_t most);

// config[name] = values, after a comment.
void add_section(nlohmann::ordered_json& config, const char* name, std::string comment,
                 const nlohmann::ordered_json& values);

}  // namespace orthant
