// A tower whose vocabulary follows its tokenizer: model.primary.vocab_size null is the number of ids that
// data.primary_tokenizer has.
#pragma once

#include "orthant/base/json_document.h"

namespace orthant {

// Puts the tokenizers' sizes in the place of such nulls; nothing for other models. Reads the tokenizers. ConfigError
// when a tower has none; DataError.
void follow_tokenizers(JsonDocument& document);

}  // namespace orthant
