// Values that people commonly start from, by what a run is for: what `orthant init` writes, and the defaults of a run
// without a configuration file whose model or data is not the demo's.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "orthant/base/json_document.h"

namespace orthant {

struct UsualValues {
  double lr = 0;
  double warmup_fraction = 0;  // of all steps
  double weight_decay = 0;
  std::int64_t batch = 0;
  std::int64_t epochs = 0;
  const char* schedule = "cosine";
  double final_fraction = 0;
  const char* why = "";
};

// `use` is finetune, classify or pretrain; `parameters` 0: not known.
UsualValues usual_values(std::string_view use, bool pretrained, std::int64_t parameters);

// Of the embedded demo's document: when these overrides name another model or other data, takes the demo's name,
// lengths, optimizer, schedule and training out, and puts the usual values of that use in, with "default of finetune"
// as their origin. Call it before the overrides are applied.
void leave_demo(JsonDocument& demo, const std::vector<std::string>& overrides);

}  // namespace orthant
