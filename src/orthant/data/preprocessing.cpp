#include "orthant/data/preprocessing.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "orthant/base/error.h"
#include "orthant/base/json_reader.h"
#include "orthant/data/hash_text.h"
#include "orthant/files/whole_file.h"
#include "orthant/files/xxhash.h"

namespace orthant {
namespace {

constexpr std::int64_t kVersion = 1;
constexpr std::int64_t kMaxPreprocessingBytes = std::int64_t{256} << 20;

nlohmann::ordered_json text_json(const TextPreprocessing& text) {
  return {{"column", text.column},
          {"tokenizer", text.tokenizer},
          {"fingerprint", hash_text(text.fingerprint)},
          {"vocab_size", text.vocab_size},
          {"length", text.length}};
}

TextPreprocessing read_text(JsonReader reader) {
  TextPreprocessing text;
  text.column = reader.require<std::string>("column");
  text.tokenizer = reader.require<std::string>("tokenizer");
  text.fingerprint = read_hash(reader, "fingerprint");
  text.vocab_size = reader.require<std::int64_t>("vocab_size");
  text.length = reader.require<std::int64_t>("length");
  if (text.length < 1) reader.fail("length", fmt::format("{} is below 1", text.length));
  return text;
}

NumberPreprocessing read_number(JsonReader reader) {
  NumberPreprocessing number;
  number.column = reader.require<std::string>("column");
  number.mean = reader.require<double>("mean");
  number.scale = reader.require<double>("scale");
  if (!(number.scale > 0)) reader.fail("scale", fmt::format("{} is not above 0", number.scale));
  return number;
}

// A line for every key whose two values differ: "<key>: <saved> saved, <now> now".
class Comparison {
 public:
  template <typename T>
  void compare(const std::string& key, const T& saved, const T& now) {
    if (saved != now) lines_.push_back(fmt::format("{}: {} saved, {} now", key, shown(saved), shown(now)));
  }

  void compare_text(const std::string& key, const TextPreprocessing& saved, const TextPreprocessing& now) {
    compare(key + ".column", saved.column, now.column);
    if (saved.fingerprint != now.fingerprint) {
      lines_.push_back(fmt::format(
          "{}.tokenizer: \"{}\" ({} tokens, fingerprint {:016x}) saved, \"{}\" ({} tokens, "
          "fingerprint {:016x}) now",
          key, saved.tokenizer, saved.vocab_size, saved.fingerprint, now.tokenizer, now.vocab_size, now.fingerprint));
    }
    compare(key + ".length", saved.length, now.length);
  }

  std::vector<std::string> lines() && { return std::move(lines_); }

 private:
  static std::string shown(std::int64_t value) { return fmt::format("{}", value); }
  static std::string shown(double value) { return fmt::format("{}", value); }
  static std::string shown(const std::string& value) { return fmt::format("\"{}\"", value); }
  template <typename T>
  static std::string shown(const std::vector<T>& values) {
    constexpr std::size_t kMost = 20;
    std::string text = "[";
    for (std::size_t i = 0; i < values.size() && i < kMost; ++i) text += (i == 0 ? "" : ", ") + shown(values[i]);
    return text + (values.size() > kMost ? fmt::format(", ... {} in all]", values.size()) : "]");
  }

  std::vector<std::string> lines_;
};

std::vector<std::string> columns_of(const std::vector<NumberPreprocessing>& numbers) {
  std::vector<std::string> columns;
  for (const auto& number : numbers) columns.push_back(number.column);
  return columns;
}

}  // namespace

std::string to_json(const Preprocessing& preprocessing) {
  auto numbers = nlohmann::ordered_json::array();
  for (const auto& number : preprocessing.numbers) {
    numbers.push_back({{"column", number.column}, {"mean", number.mean}, {"scale", number.scale}});
  }
  const nlohmann::ordered_json json = {{"version", kVersion},
                                       {"primary", text_json(preprocessing.primary)},
                                       {"secondary", text_json(preprocessing.secondary)},
                                       {"numbers", std::move(numbers)},
                                       {"label", preprocessing.label},
                                       {"labels", preprocessing.labels},
                                       {"class_weights", preprocessing.class_weights}};
  return json.dump(1) + "\n";
}

Preprocessing preprocessing_from_json(std::string_view text, const std::string& source) {
  JsonReader reader(JsonDocument::parse(text, {.source = source,
                                               .errors = JsonErrorKind::kData,
                                               .max_bytes = kMaxPreprocessingBytes,
                                               .max_tree_bytes = 4 * kMaxPreprocessingBytes}));
  if (const auto version = reader.require<std::int64_t>("version"); version != kVersion) {
    reader.fail("version", fmt::format("this program reads version {}, found {}", kVersion, version));
  }
  Preprocessing read;
  read.primary = read_text(reader.require_object("primary"));
  read.secondary = read_text(reader.require_object("secondary"));
  for (auto& number : reader.objects("numbers")) read.numbers.push_back(read_number(number));
  read.label = reader.require<std::string>("label");
  read.labels = reader.require<std::vector<std::string>>("labels");
  read.class_weights = reader.require<std::vector<double>>("class_weights");
  if (!read.class_weights.empty() && read.class_weights.size() != read.labels.size()) {
    reader.fail("class_weights",
                fmt::format("{} weights for {} labels", read.class_weights.size(), read.labels.size()));
  }
  reader.finish();
  return read;
}

void save_preprocessing(const Preprocessing& preprocessing, const std::filesystem::path& file) {
  write_file_atomically(file, to_json(preprocessing));
}

Preprocessing load_preprocessing(const std::filesystem::path& file) {
  return preprocessing_from_json(read_text_file(file, kMaxPreprocessingBytes), file.string());
}

std::vector<std::string> differences(const Preprocessing& saved, const Preprocessing& now, bool fitted) {
  Comparison comparison;
  comparison.compare_text("primary", saved.primary, now.primary);
  comparison.compare_text("secondary", saved.secondary, now.secondary);
  const auto columns = columns_of(saved.numbers);
  comparison.compare("numbers", columns, columns_of(now.numbers));
  if (fitted && columns == columns_of(now.numbers)) {
    for (std::size_t i = 0; i < columns.size(); ++i) {
      comparison.compare(fmt::format("numbers.{}.mean", columns[i]), saved.numbers[i].mean, now.numbers[i].mean);
      comparison.compare(fmt::format("numbers.{}.scale", columns[i]), saved.numbers[i].scale, now.numbers[i].scale);
    }
  }
  comparison.compare("label", saved.label, now.label);
  comparison.compare("labels", saved.labels, now.labels);
  if (fitted) comparison.compare("class_weights", saved.class_weights, now.class_weights);
  return std::move(comparison).lines();
}

void check_same_preprocessing(const Preprocessing& saved, const Preprocessing& now, const std::string& source,
                              bool fitted) {
  const auto lines = differences(saved, now, fitted);
  if (lines.empty()) return;
  throw DataError(
      fmt::format("{} does not describe the data of this run:\n  {}", source, fmt::join(lines, "\n  ")),
      {.remedy =
           "use the columns, tokenizers, lengths and labels that the model was trained with, or start a new run"});
}

}  // namespace orthant
