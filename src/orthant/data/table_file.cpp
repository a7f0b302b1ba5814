#include "orthant/data/table_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "orthant/base/error.h"
#include "orthant/base/nearest.h"
#include "orthant/data/open_table.h"
#include "orthant/data/table_numbers.h"
#include "orthant/text/shown.h"
#include "orthant/text/table_reader.h"

namespace orthant {
namespace {

// Turns texts into ids of one column.
class TextColumn {
 public:
  TextColumn(const TableText& text, const Tokenizer& tokenizer, TextRows& rows)
      : tokenizer_(tokenizer), options_{.special = true, .max_length = text.length}, rows_(rows) {
    rows_.length = text.length;
    rows_.pad = tokenizer.special().pad.value_or(0);
  }

  void add(std::string_view text) {
    ids_.clear();
    tokenizer_.encode_into(text, options_, ids_);
    // A row without any position has nothing to attend to: tokenizers without special tokens give it one id.
    const auto& special = tokenizer_.special();
    if (ids_.empty()) ids_.push_back(special.end.value_or(special.begin.value_or(special.pad.value_or(0))));
    rows_.ids.add(ids_);
  }

 private:
  Tokenizer tokenizer_;
  EncodeOptions options_;
  TextRows& rows_;
  std::vector<std::int32_t> ids_;
};

// Places of the columns asked for in the reader's fields: texts, then numbers, then the label.
struct FieldPlaces {
  std::vector<std::string> columns;
  bool secondary = false;
  std::size_t first_number = 0;
  std::size_t label = 0;  // behind all columns where no label is read
};

// Of a JSON file, the first rows tell.
bool has_column(const std::string& path, const std::string& column) {
  auto reader = TableReader::open(path, {.columns = {}, .bad_rows = BadRows::kSkip});
  const auto found = [&] { return std::ranges::find(reader.columns(), column) != reader.columns().end(); };
  while (!found() && reader.rows() < TableReader::kNamedRows && reader.next()) continue;
  return found();
}

FieldPlaces field_places(const ClassifierTableOptions& options, bool with_label) {
  FieldPlaces places;
  places.columns = {options.primary.column};
  places.secondary = !options.secondary.column.empty();
  if (places.secondary) places.columns.push_back(options.secondary.column);
  places.first_number = places.columns.size();
  places.columns.insert(places.columns.end(), options.tabular.begin(), options.tabular.end());
  places.label = places.columns.size();
  if (with_label) places.columns.push_back(options.label);
  return places;
}

// The label of the present row; rejects the row when it has none.
std::optional<std::int32_t> read_label(TableReader& reader, std::size_t place, LabelMap& labels,
                                       const std::string& skip_remedy) {
  const auto& field = reader.fields()[place];
  if (field.missing) {
    reader.reject(place, "the label is missing", fmt::format("give every row a label, or {}", skip_remedy));
    return std::nullopt;
  }
  const auto label = labels.number(field.text);
  if (!label) {
    reader.reject(place, fmt::format("{} is not one of the labels", shown(field.text)),
                  did_you_mean(field.text, labels.labels()));
  }
  return label;
}

// The same where labels are optional: none where there is no class.
std::int32_t read_optional_label(const TableReader& reader, std::size_t place, LabelMap& labels, TableFile& file) {
  constexpr auto kNone = static_cast<std::int32_t>(kIgnoredLabel);
  if (!file.has_labels || reader.fields()[place].missing) return kNone;
  const auto label = labels.number(reader.fields()[place].text);
  if (!label) ++file.unknown_labels;
  return label.value_or(kNone);
}

// Adds the numbers of the present row to `numbers`; rejects the row and adds nothing when one is bad.
bool read_numbers(TableReader& reader, const FieldPlaces& places, std::vector<double>& numbers,
                  const std::string& skip_remedy) {
  const auto before = numbers.size();
  for (auto place = places.first_number; place < places.label; ++place) {
    const auto& field = reader.fields()[place];
    if (field.missing || is_missing_number(field.text)) {
      numbers.push_back(std::numeric_limits<double>::quiet_NaN());
    } else if (const auto value = parse_table_number(field.text)) {
      numbers.push_back(*value);
    } else {
      numbers.resize(before);
      reader.reject(place, fmt::format("{} is not a number", shown(field.text)),
                    fmt::format("write it like -2.5 or 1e3, leave it empty where it is missing, or {}", skip_remedy));
      return false;
    }
  }
  return true;
}

void check_rows(const TableReader& reader) {
  const auto& skipped = reader.skipped();
  if (skipped.count > reader.rows()) {
    throw DataError(fmt::format("{}: {} of {} rows are bad; the first: {}", reader.name(), skipped.count,
                                skipped.count + reader.rows(), skipped.reasons.front()),
                    {.remedy = "look at them with orthant data inspect"});
  }
  if (reader.rows() == 0) {
    throw DataError(fmt::format("{}: no rows", reader.name()), {.remedy = "name a file with one row per sample"});
  }
}

// As open_table(), with the remedy of the options where only the label's column is missing.
TableReader open_labelled(const std::string& path, const ClassifierTableOptions& options,
                          const std::vector<std::string>& columns) {
  try {
    return open_table(path, {.columns = columns, .bad_rows = options.skip_bad_rows ? BadRows::kSkip : BadRows::kStop});
  } catch (const ConfigError& error) {
    const bool only_label = std::ranges::all_of(
        columns, [&](const auto& column) { return has_column(path, column) == (column != options.label); });
    if (options.label_remedy.empty() || !only_label) throw;
    const bool near = error.remedy().starts_with("did you mean");
    throw ConfigError(error.message(), {.remedy = (near ? error.remedy() + "; " : "") + options.label_remedy});
  }
}

}  // namespace

TableFile read_table_file(const std::string& path, const ClassifierTableOptions& options, LabelMap& labels) {
  const bool with_label = !options.labels_optional || has_column(path, options.label);
  const auto places = field_places(options, with_label);
  auto reader = open_labelled(path, options, places.columns);
  TableFile file{.rows = std::make_shared<ClassifierTable::Rows>(), .numbers = {}, .skipped = {}};
  file.has_labels = with_label;
  auto& rows = *file.rows;
  rows.columns = static_cast<std::int64_t>(options.tabular.size());
  TextColumn primary(options.primary, *options.primary.tokenizer, rows.primary);
  TextColumn secondary(options.secondary, options.secondary.tokenizer.value_or(*options.primary.tokenizer),
                       rows.secondary);
  while (reader.next()) {
    const auto file_row = reader.rows() - 1 + reader.skipped().count;
    if (options.progress && file_row % kProgressRows == kProgressRows - 1) options.progress(file_row + 1);
    const auto numbers = file.numbers.size();
    if (!read_numbers(reader, places, file.numbers, options.skip_remedy)) continue;
    // Last: a row that is left out makes no new class.
    const auto label = options.labels_optional ? read_optional_label(reader, places.label, labels, file)
                                               : read_label(reader, places.label, labels, options.skip_remedy);
    if (!label) {
      file.numbers.resize(numbers);
      continue;
    }
    rows.labels.own.push_back(*label);
    rows.file_rows.own.push_back(file_row);
    primary.add(reader.fields()[0].text);
    secondary.add(places.secondary ? reader.fields()[1].text : std::string_view());
  }
  check_rows(reader);
  if (options.progress) options.progress(reader.rows() + reader.skipped().count);
  rows.primary.ids.shrink();
  rows.secondary.ids.shrink();
  file.skipped = reader.skipped();
  return file;
}

}  // namespace orthant
