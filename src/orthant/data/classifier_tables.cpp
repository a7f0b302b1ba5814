// read_classifier_tables(): from options to a training and an evaluation part and what was fitted.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "orthant/base/error.h"
#include "orthant/base/random.h"
#include "orthant/data/field_checks.h"
#include "orthant/data/table_file.h"
#include "orthant/data/table_numbers.h"

namespace orthant {
namespace {

using Part = std::vector<std::int64_t>;

void check_text(const char* which, const TableText& text, const Tokenizer& tokenizer) {
  const auto needed = std::max<std::int64_t>(1, static_cast<std::int64_t>(tokenizer.encode("").size()));
  if (text.length > needed) return;
  throw ConfigError(fmt::format("the {} text has {} positions, but {} special tokens need room besides the text", which,
                                text.length, needed),
                    {.remedy = fmt::format("set its length to {} or more", needed + 1)});
}

void check_options(const ClassifierTableOptions& options) {
  if (options.primary.column.empty() || options.label.empty()) {
    throw ConfigError(fmt::format("no column is named as the {}", options.label.empty() ? "label" : "primary text"),
                      {.remedy = options.label.empty() ? "set data.label" : "set data.primary_text"});
  }
  if (!options.primary.tokenizer) {
    throw ConfigError("no tokenizer is named for the texts", {.remedy = "set data.tokenizer"});
  }
  if (!(options.eval_fraction >= 0 && options.eval_fraction < 1)) {
    throw ConfigError(fmt::format("eval_fraction is {}, but it must be at least 0 and below 1", options.eval_fraction),
                      {.remedy = "set data.eval_fraction=0.1"});
  }
  if (options.eval_fraction > 0 && !options.eval_path.empty()) {
    throw ConfigError("eval_path and eval_fraction are both given", {.remedy = "set one of them"});
  }
  if (options.balanced_class_weights && !options.class_weights.empty()) {
    throw ConfigError("class weights are given and asked to be balanced", {.remedy = "set one of them"});
  }
  auto inputs = options.tabular;
  std::ranges::sort(inputs);
  if (const auto twice = std::ranges::adjacent_find(inputs); twice != inputs.end()) {
    throw ConfigError(fmt::format("column \"{}\" is listed twice in tabular", *twice), {.remedy = "list it once"});
  }
  inputs.insert(inputs.end(), {options.primary.column, options.secondary.column});
  if (std::ranges::find(inputs, options.label) != inputs.end()) {
    throw ConfigError(fmt::format("column \"{}\" is both the label and an input", options.label),
                      {.remedy = "leave the label out of the texts and of tabular"});
  }
  check_text("primary", options.primary, *options.primary.tokenizer);
  check_text("secondary", options.secondary, options.secondary.tokenizer.value_or(*options.primary.tokenizer));
}

TextPreprocessing text_preprocessing(const TableText& text, const TableText& first) {
  const auto& named = text.tokenizer ? text : first;
  return {.column = text.column,
          .tokenizer = named.tokenizer_name,
          .fingerprint = named.tokenizer->fingerprint(),
          .vocab_size = named.tokenizer->vocab_size(),
          .length = text.length};
}

// All but what the data decides.
Preprocessing stated_preprocessing(const ClassifierTableOptions& options) {
  Preprocessing stated;
  stated.primary = text_preprocessing(options.primary, options.primary);
  stated.secondary = text_preprocessing(options.secondary, options.primary);
  for (const auto& column : options.tabular) stated.numbers.push_back({.column = column, .mean = 0, .scale = 1});
  stated.label = options.label;
  stated.labels = options.labels;
  stated.class_weights = options.class_weights;
  return stated;
}

// Labels in class order, in `labels` and in the rows.
void order_labels(LabelMap& labels, ClassifierTable::Rows& rows, const std::string& path, const std::string& column) {
  const auto classes = labels.sort();
  for (auto& label : rows.labels.own) label = classes[static_cast<std::size_t>(label)];
  rows.classes = static_cast<std::int64_t>(classes.size());
  if (rows.classes >= 2) return;
  throw DataError(fmt::format("{}: column \"{}\" has only one label, \"{}\"", path, column, labels.labels().front()),
                  {.remedy = "name a column with two labels or more"});
}

// The rows to train on and those held out: round(fraction x rows) with the smallest draws of (seed, row number).
std::pair<Part, Part> split(const std::vector<std::int64_t>& file_rows, double fraction, std::uint64_t seed) {
  const RandomStream stream(seed, "data.trimodal.split");
  std::vector<std::pair<std::uint64_t, std::int64_t>> draws;
  for (std::size_t place = 0; place < file_rows.size(); ++place) {
    draws.emplace_back(stream.bits(static_cast<std::uint64_t>(file_rows[place])), static_cast<std::int64_t>(place));
  }
  const auto held = std::llround(fraction * static_cast<double>(draws.size()));
  std::ranges::nth_element(draws, draws.begin() + held);
  Part train;
  Part eval;
  for (auto it = draws.begin(); it != draws.end(); ++it) {
    (it - draws.begin() < held ? eval : train).push_back(it->second);
  }
  std::ranges::sort(train);
  std::ranges::sort(eval);
  return {std::move(train), std::move(eval)};
}

void fit_numbers(Preprocessing& preprocessing, const TableFile& file, const Part& part, const std::string& path) {
  for (std::size_t i = 0; i < preprocessing.numbers.size(); ++i) {
    auto& number = preprocessing.numbers[i];
    const auto fitted = fit_column(file.numbers, file.rows->columns, static_cast<std::int64_t>(i), part);
    if (!fitted) {
      throw DataError(fmt::format("{}: column \"{}\" has no number in the training part", path, number.column),
                      {.remedy = "leave it out of data.tabular"});
    }
    number.mean = fitted->mean;
    number.scale = fitted->scale;
  }
}

// Fills in the rows' numbers and gives the read ones up.
void standardise(TableFile& file, const Preprocessing& preprocessing, const std::string& path) {
  constexpr double kFarthest = 1e18;  // squares must fit a float
  auto& rows = *file.rows;
  const auto columns = preprocessing.numbers.size();
  rows.numbers.own.resize(file.numbers.size());
  for (std::size_t i = 0; i < file.numbers.size(); ++i) {
    const auto& [column, mean, scale] = preprocessing.numbers[i % columns];
    const double value = std::isnan(file.numbers[i]) ? 0 : (file.numbers[i] - mean) / scale;
    if (std::abs(value) > kFarthest) {
      throw DataError(fmt::format("{}: row {}: column \"{}\" is {}, which is {:.0e} standard deviations from the mean "
                                  "of the training part",
                                  path, rows.file_rows.own[i / columns] + 1, column, file.numbers[i], std::abs(value)),
                      {.remedy = "mend the number, or leave it empty"});
    }
    rows.numbers.own[i] = static_cast<float>(value);
  }
  file.numbers = {};
}

void add_skipped(SkippedRows& all, const SkippedRows& more) {
  all.count += more.count;
  for (const auto& reason : more.reasons) {
    if (all.reasons.size() < SkippedRows::kKept) all.reasons.push_back(reason);
  }
}

// What the options say, completed by a trained model's where they have one.
Preprocessing known_preprocessing(const ClassifierTableOptions& options) {
  auto known = stated_preprocessing(options);
  const auto& saved = options.preprocessing;
  if (!saved) return known;
  if (known.labels.empty()) known.labels = saved->labels;
  check_same_preprocessing(*saved, known, options.preprocessing_source, false);
  known.numbers = saved->numbers;
  if (options.class_weights.empty()) known.class_weights = saved->class_weights;
  return known;
}

// A file whose labels and numbers are prepared by what is known already, as one part.
TableToScore read_prepared(const std::string& path, const ClassifierTableOptions& options, const Preprocessing& known) {
  LabelMap labels(known.labels);
  auto file = read_table_file(path, options, labels);
  file.rows->classes = static_cast<std::int64_t>(known.labels.size());
  standardise(file, known, path);
  Part all(file.rows->file_rows.own.size());
  std::iota(all.begin(), all.end(), 0);
  return {.rows = std::make_shared<ClassifierTable>(file.rows, std::move(all), known.class_weights),
          .preprocessing = known,
          .skipped = file.skipped,
          .has_labels = file.has_labels,
          .unknown_labels = file.unknown_labels};
}

}  // namespace

TableToScore read_table_to_score(const ClassifierTableOptions& options) {
  check_options(options);
  if (!options.preprocessing) throw InternalError("a table to score without the preprocessing of a model");
  return read_prepared(options.path, options, known_preprocessing(options));
}

ClassifierTables read_classifier_tables(const ClassifierTableOptions& options) {
  check_options(options);
  ClassifierTables tables;
  auto& fitted = tables.preprocessing;
  fitted = known_preprocessing(options);

  auto labels = fitted.labels.empty() ? LabelMap() : LabelMap(fitted.labels);
  auto file = read_table_file(options.path, options, labels);
  order_labels(labels, *file.rows, options.path, options.label);
  fitted.labels = labels.labels();
  check_class_weights(fitted.class_weights, file.rows->classes);
  tables.skipped = file.skipped;

  auto [train, eval] = split(file.rows->file_rows.own, options.eval_fraction, options.seed);
  if (train.empty()) {
    throw DataError(fmt::format("{}: of {} rows none is left to train on", options.path, eval.size()),
                    {.remedy = "make data.eval_fraction smaller"});
  }
  if (!options.preprocessing) fit_numbers(fitted, file, train, options.path);
  standardise(file, fitted, options.path);
  if (options.balanced_class_weights && fitted.class_weights.empty()) {
    fitted.class_weights = balanced_weights(ClassifierTable(file.rows, train, {}).label_counts(), fitted.labels);
  }
  tables.train = std::make_shared<ClassifierTable>(file.rows, std::move(train), fitted.class_weights);
  if (!eval.empty()) tables.eval = std::make_shared<ClassifierTable>(file.rows, std::move(eval), fitted.class_weights);
  if (options.eval_path.empty()) return tables;

  const auto other = read_prepared(options.eval_path, options, fitted);
  add_skipped(tables.skipped, other.skipped);
  tables.eval = other.rows;
  return tables;
}

}  // namespace orthant
