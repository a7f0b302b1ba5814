// A tokenizer.json in memory: vocabulary and merges, which are most of it, in plain lists; the rest as JSON. A general
// JSON tree of the large ones would take seconds and hundreds of megabytes.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "orthant/text/vocabulary.h"

namespace orthant {

struct TokenizerFile {
  std::string source;
  std::vector<Vocabulary::Entry> tokens;                    // model.vocab; a list gives ids in order
  std::vector<double> scores;                               // of model.vocab, when that is a list of tokens and scores
  std::vector<std::pair<std::string, std::string>> merges;  // model.merges, from "a b" or ["a", "b"]
  std::shared_ptr<nlohmann::json> rest;                     // an object, without those two
};

// DataError with line and column for text that is not JSON, is nested deeper than 64 levels, or whose vocabulary or
// merges are not of the right form.
TokenizerFile parse_tokenizer_file(std::string_view text, const std::string& source);

// The same for a vocab.json, which holds the vocabulary alone.
std::vector<Vocabulary::Entry> parse_vocabulary_file(std::string_view text, const std::string& source);

// "a b" as a merge. DataError unless it is two tokens with one space between.
std::pair<std::string, std::string> parse_merge(std::string_view line, std::size_t number, const std::string& source);

}  // namespace orthant
