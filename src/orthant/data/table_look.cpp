#include "orthant/data/table_look.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <optional>

#include "orthant/base/error.h"

namespace orthant {
namespace {

constexpr std::int64_t kSampleRows = 1000;
constexpr std::int64_t kSampleTextBytes = std::int64_t{2} << 20;  // of text that is tokenized

std::string lowered(std::string_view name) {
  std::string text(name);
  std::ranges::transform(text, text.begin(), [](unsigned char letter) { return std::tolower(letter); });
  return text;
}

std::optional<std::string> named(const std::vector<std::string>& columns, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    for (const auto& column : columns) {
      if (lowered(column) == name) return column;
    }
  }
  return std::nullopt;
}

// The first rows.
TableFacts sample_of(const std::string& path, const std::optional<Tokenizer>& tokenizer) {
  return inspect_table({.path = path,
                        .columns = {},
                        .tokenizer = tokenizer,
                        .most_rows = kSampleRows,
                        .most_bytes = kSampleTextBytes,
                        .invalid_utf8 = InvalidUtf8::kStop});
}

bool is_row_number(const std::string& column) {
  const auto name = lowered(column);
  return name.empty() || name == "id" || name == "index" || name.ends_with("_id") || name.starts_with("unnamed:");
}

constexpr std::int64_t kMostGuessedLabels = 20;

// The last column of few values, each of which comes twice on average; of words rather than numbers.
std::optional<std::string> guess_label(const TableFacts& facts) {
  std::optional<std::string> found;
  bool words = false;
  for (const auto& column : facts.columns) {
    if (column.distinct < 2 || column.distinct > kMostGuessedLabels || column.distinct * 2 > facts.rows) continue;
    const bool numeric = column.is_mostly_numeric();
    if (found && words && numeric) continue;
    found = column.name;
    words = !numeric;
  }
  return found;
}

[[noreturn]] void refuse_table(const DataFound& data, std::string_view why, const char* remedy) {
  throw DataError(fmt::format("{}: {} (columns: {})", data.files[0], why, fmt::join(data.columns, ", ")),
                  {.remedy = remedy});
}

// The column that was named comes first.
void move_to_front(const DataFound& data, std::vector<const ColumnFacts*>& texts, const std::string& name) {
  const auto found = std::ranges::find_if(texts, [&](const auto* column) { return column->name == name; });
  if (found == texts.end()) {
    refuse_table(data, fmt::format("column {} is the label, or does not hold texts", name),
                 "name another with --text-column COLUMN, or the label with --label COLUMN");
  }
  std::rotate(texts.begin(), found, found + 1);
}

// Columns of a sample that may be texts, and those of numbers, into `look`. A column that was named is a text.
std::vector<const ColumnFacts*> sort_columns(const TableFacts& sample, const std::string& named, TableLook& look) {
  std::vector<const ColumnFacts*> texts;
  for (const auto& column : sample.columns) {
    if (column.name == look.label) continue;
    const bool asked = !named.empty() && column.name == named && column.tokens;
    const bool row_number = is_row_number(column.name);
    if (!asked && !row_number && column.is_mostly_numeric() && column.numbers * 2 >= sample.rows) {
      look.numbers.push_back(column.name);
    } else if (!asked && !row_number && column.is_wordless()) {
      look.wordless.push_back(column);
      look.unused.push_back(column.name);
    } else if (column.tokens && column.distinct > 1 && (asked || !row_number)) {
      texts.push_back(&column);
      if (!asked && holds_stray_words(column)) look.numbered_words.push_back(column);
    } else {
      look.unused.push_back(column.name);
    }
  }
  std::ranges::stable_sort(texts, [](const auto* a, const auto* b) { return a->tokens->total > b->tokens->total; });
  return texts;
}

void check_labels(const DataFound& data, const ColumnFacts& label) {
  if (label.values.size() >= 2) return;
  refuse_table(data,
               fmt::format("column {} has {}, and a label has 2 to {}", label.name,
                           label.distinct < 2 ? fmt::format("{} value", label.distinct)
                                              : fmt::format("more than {} values", ColumnFacts::kMostValues),
                           ColumnFacts::kMostValues),
               "name another with --label COLUMN");
}

// Every label must have its class, and every number its place: these columns are read to their end.
void look_at_all_rows(const DataFound& data, TableLook& look) {
  auto columns = std::vector<std::string>{look.label};
  columns.insert(columns.end(), look.numbers.begin(), look.numbers.end());
  const auto whole = inspect_table(
      {.path = data.files[0], .columns = std::move(columns), .tokenizer = {}, .invalid_utf8 = InvalidUtf8::kStop});
  const auto& label = whole.columns[0];
  check_labels(data, label);
  look.labels = label.values;
  look.typos = label_typos(look.labels);
  look.bad_rows = whole.bad.count + label.missing;
  look.rows = whole.rows - label.missing;
  look.numbers.clear();
  for (std::size_t i = 1; i < whole.columns.size(); ++i) {
    const auto& column = whole.columns[i];
    (column.is_mostly_numeric() ? look.numbers : look.unused).push_back(column.name);
    if (column.words > 0) (column.is_mostly_numeric() ? look.worded_numbers : look.numbered_words).push_back(column);
  }
}

}  // namespace

// Documents come with other columns of few values, such as where they are from: beside a column of documents in JSON
// lines only a name makes a label.
void find_columns(DataFound& data) {
  const auto& path = data.files[0];
  const auto sample = sample_of(path, {});
  if (sample.rows == 0) throw DataError(fmt::format("{}: has no rows", path), {.remedy = "name a file with rows"});
  for (const auto& column : sample.columns) data.columns.push_back(column.name);
  data.text_column = named(data.columns, {"text", "content", "document", "body"});
  data.label_column = named(data.columns, {"label", "labels", "class", "target", "category", "sentiment", "y"});
  const auto ending = lowered(std::filesystem::path(path).extension().string());
  const bool may_guess = ending == ".csv" || ending == ".tsv" || !data.text_column;
  if (!data.label_column && may_guess) data.label_column = guess_label(sample);
  for (const auto& column : sample.columns) {
    const bool text =
        !column.is_mostly_numeric() && !column.is_wordless() && column.distinct > 1 && !is_row_number(column.name);
    if (text && column.name != data.label_column) data.text_columns.push_back(column.name);
  }
}

TableLook look_at_table(const DataFound& data, const Tokenizer& tokenizer, const std::string& label,
                        const std::string& text) {
  const auto sample = sample_of(data.files[0], tokenizer);
  const auto chosen = label.empty() ? data.label_column : std::optional(label);
  if (!chosen) {
    refuse_table(data, "no column looks like a label: few values that come again and again",
                 "name it with --label COLUMN");
  }
  TableLook look;
  look.label = *chosen;
  auto texts = sort_columns(sample, text, look);
  look_at_all_rows(data, look);
  if (!text.empty()) move_to_front(data, texts, text);
  if (texts.empty()) refuse_table(data, "no column holds texts", "a classifier needs one column of text at least");
  look.primary_text = texts[0]->name;
  look.primary_tokens = texts[0]->tokens->p99;
  if (texts.size() > 1) {
    look.secondary_text = texts[1]->name;
    look.secondary_tokens = texts[1]->tokens->p99;
  }
  for (std::size_t i = 2; i < texts.size(); ++i) look.unused.push_back(texts[i]->name);
  return look;
}

}  // namespace orthant
