// The tokens that end a model's answers, as its files say it. Local.
#pragma once

#include <cstdint>
#include <vector>

#include "orthant/checkpoint/stored_model.h"

namespace orthant {

// Of generation_config.json; else of the model's own config.json; else the end token of its tokenizer. None: answers
// end by length alone. DataError for an eos_token_id that is neither an id, a list of ids nor null.
std::vector<std::int64_t> end_tokens(const StoredModel& model);

}  // namespace orthant
