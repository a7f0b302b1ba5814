// The flat form of a trimodal configuration (label_name, primary_text_name, tab_field_list, ...) as the sections that
// everything else reads. Each value keeps the line of the flat file as its origin.
#pragma once

#include "orthant/base/json_document.h"

namespace orthant {

bool is_flat_config(const JsonDocument& document);

// The same run in sections. What the flat form leaves open is as its own program has it: batches of 32 in 4
// microbatches, 10 epochs, linear decay to 0. ConfigError for unknown keys and contradictions. A model named by
// `primary_tokenizer` is read from its folder when there is one on disk (find_model_folder) and otherwise has the sizes
// of the preset of that name, with weights drawn from the seed.
JsonDocument sections_of_flat_config(const JsonDocument& flat);

}  // namespace orthant
