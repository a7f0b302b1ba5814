// What turns a row of a table into what the trimodal model reads: columns, tokenizers, lengths, means and scales of the
// numbers, labels in class order. Fitted once, on the training part; saved beside the model as preprocessing.json, so
// that evaluation, a resumed run and a program that only asks the model prepare their rows in exactly the same way.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace orthant {

inline constexpr const char* kPreprocessingFile = "preprocessing.json";

struct TextPreprocessing {
  std::string column;             // empty: every row has an empty text
  std::string tokenizer;          // as it was named
  std::uint64_t fingerprint = 0;  // of the tokenizer, see Tokenizer::fingerprint()
  std::int64_t vocab_size = 0;
  std::int64_t length = 0;  // ids at most, special ones included
  friend bool operator==(const TextPreprocessing&, const TextPreprocessing&) = default;
};

// A number x becomes (x - mean) / scale; a missing one becomes 0, which is the mean.
struct NumberPreprocessing {
  std::string column;
  double mean = 0;
  double scale = 1;
  friend bool operator==(const NumberPreprocessing&, const NumberPreprocessing&) = default;
};

struct Preprocessing {
  TextPreprocessing primary;
  TextPreprocessing secondary;
  std::vector<NumberPreprocessing> numbers;
  std::string label;                  // column
  std::vector<std::string> labels;    // what it holds, in class order
  std::vector<double> class_weights;  // one per class; empty: all 1
  friend bool operator==(const Preprocessing&, const Preprocessing&) = default;
};

// Numbers are written so that reading gives the same bits.
std::string to_json(const Preprocessing& preprocessing);
// DataError that begins with `source` for text that is not what to_json() writes.
Preprocessing preprocessing_from_json(std::string_view text, const std::string& source);

void save_preprocessing(const Preprocessing& preprocessing, const std::filesystem::path& file);
Preprocessing load_preprocessing(const std::filesystem::path& file);

// "numbers.budget.mean: 3.5 saved, 3.75 now", one line per difference; a tokenizer counts as equal
// when its fingerprint is. `fitted` false leaves out what data decides: means, scales and class weights.
std::vector<std::string> differences(const Preprocessing& saved, const Preprocessing& now, bool fitted = true);

// DataError that lists the differences; `source` is where `saved` was read from.
void check_same_preprocessing(const Preprocessing& saved, const Preprocessing& now, const std::string& source,
                              bool fitted = true);

}  // namespace orthant
