// Names of models for messages that give an example.
#pragma once

namespace orthant {

inline constexpr const char* kExamplePresets = "llama-tiny or gpt2";
inline constexpr const char* kExampleLanguageModel = "llama3-70b";
inline constexpr const char* kExampleEncoders = "BERT or RoBERTa";  // whose folders and tokenizers know masked tokens

}  // namespace orthant
