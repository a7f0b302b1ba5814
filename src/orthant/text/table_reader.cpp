#include "orthant/text/table_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>

#include "orthant/base/error.h"
#include "orthant/base/nearest.h"
#include "orthant/text/parquet_file.h"
#include "orthant/text/table_rows.h"
#include "orthant/text/utf8.h"

namespace orthant {
namespace {

std::unique_ptr<TableRows> make_rows(ChunkedInput input, TableFormat format, const std::vector<std::string>& columns) {
  switch (format) {
    case TableFormat::kCsv:
      return make_csv_rows(std::move(input), ',', columns);
    case TableFormat::kTsv:
      return make_csv_rows(std::move(input), '\t', columns);
    case TableFormat::kJsonLines:
      return make_json_rows(std::move(input), false, columns);
    case TableFormat::kJson:
      return make_json_rows(std::move(input), true, columns);
  }
  throw InternalError("a table format without a reader");
}

struct Ending {
  std::string_view text;
  TableFormat format;
};
constexpr Ending kEndings[] = {{".csv", TableFormat::kCsv},
                               {".tsv", TableFormat::kTsv},
                               {".jsonl", TableFormat::kJsonLines},
                               {".ndjson", TableFormat::kJsonLines},
                               {".json", TableFormat::kJson}};

const Ending* ending_of(const std::filesystem::path& path) {
  auto text = path.extension().string();  // Windows writes CSV, too
  std::ranges::transform(text, text.begin(), [](unsigned char letter) { return std::tolower(letter); });
  const auto* found = std::ranges::find(kEndings, text, &Ending::text);
  return found == std::end(kEndings) ? nullptr : found;
}

TableFormat format_of(const std::filesystem::path& path) {
  if (const auto* ending = ending_of(path)) return ending->format;
  if (is_parquet(path)) {
    throw DataError(fmt::format("{} is a Parquet file, which is not read as a table", path.string()),
                    {.remedy = parquet_as_lines(path.string(), "")});
  }
  std::vector<std::string> known;
  for (const auto& ending : kEndings) known.emplace_back(ending.text);
  const auto found = path.extension().string();
  throw ConfigError(fmt::format("{}: a table cannot be read from a file that ends in \"{}\"", path.string(), found),
                    {.remedy = did_you_mean(found, known)});
}

}  // namespace

std::string left_out_text(const SkippedRows& skipped) {
  return fmt::format("{} bad row{} left out", skipped.count, skipped.count == 1 ? " was" : "s were");
}

struct TableReader::State {
  std::string name;
  TableOptions options;
  std::unique_ptr<TableRows> rows;
  TableRow row;
  std::int64_t num_rows = 0;
  SkippedRows skipped;
  bool has_row = false;

  void refuse(std::string message, std::string remedy) {
    if (options.bad_rows == BadRows::kStop) throw DataError(std::move(message), {.remedy = std::move(remedy)});
    if (skipped.reasons.size() < SkippedRows::kKept) skipped.reasons.push_back(std::move(message));
    ++skipped.count;
  }

  // A parser of JSON does not say that it was a byte it stumbled over.
  void tell_encoding() {
    constexpr std::size_t kCharacter = 4;
    const auto at = find_invalid_utf8(row.text);
    if (!at || row.bad_offset < *at || row.bad_offset >= *at + kCharacter) return;
    row.bad_offset = *at;
    row.reason = describe_invalid_utf8(row.text, *at);
    row.remedy = utf8_remedy(name, row.text, *at);
    if (options.invalid_utf8 != InvalidUtf8::kStop) return;
    throw DataError(fmt::format("{}: {}", place_text(name, place_in(row.text, *at, row.start)), row.reason),
                    {.remedy = row.remedy});
  }

  // Whether the present row may be taken; one that may not is refused here.
  bool is_utf8() {
    if (options.invalid_utf8 == InvalidUtf8::kKeep) return true;
    for (std::size_t i = 0; i < row.fields.size(); ++i) {
      const auto text = row.fields[i].text;
      const auto at = find_invalid_utf8(text);
      if (!at) continue;
      const auto where = place_text(name, place_in(row.text, row.offsets[i] + *at, row.start));
      auto message =
          fmt::format("{}: column \"{}\": {}", where, options.columns.at(i), describe_invalid_utf8(text, *at));
      auto remedy = utf8_remedy(name, text, *at);
      if (options.invalid_utf8 == InvalidUtf8::kStop)
        throw DataError(std::move(message), {.remedy = std::move(remedy)});
      refuse(std::move(message), std::move(remedy));
      return false;
    }
    return true;
  }
};

TableReader::TableReader(std::unique_ptr<State> state) : state_(std::move(state)) {}
TableReader::TableReader(TableReader&&) noexcept = default;
TableReader& TableReader::operator=(TableReader&&) noexcept = default;
TableReader::~TableReader() = default;

TableReader TableReader::open(const std::filesystem::path& path, TableOptions options) {
  const TableFormat format = format_of(path);
  auto state = std::make_unique<State>();
  state->name = path.string();
  state->rows = make_rows(ChunkedInput::of_file(path), format, options.columns);
  state->options = std::move(options);
  return TableReader(std::move(state));
}

TableReader TableReader::of_text(std::string text, std::string name, TableFormat format, TableOptions options,
                                 std::size_t chunk_bytes) {
  auto state = std::make_unique<State>();
  state->name = name;
  state->rows =
      make_rows(ChunkedInput::of_text(std::move(text), std::move(name), chunk_bytes), format, options.columns);
  state->options = std::move(options);
  return TableReader(std::move(state));
}

bool TableReader::next() {
  while (true) {
    state_->has_row = false;
    TableRow& row = state_->row;
    switch (state_->rows->next(row)) {
      case TableRows::Outcome::kRow:
        if (!state_->is_utf8()) continue;
        ++state_->num_rows;
        state_->has_row = true;
        return true;
      case TableRows::Outcome::kEnd:
        return false;
      case TableRows::Outcome::kBad:
        break;
    }
    state_->tell_encoding();
    const std::string where = place_text(state_->name, place_in(row.text, row.bad_offset, row.start));
    state_->refuse(fmt::format("{}: {}", where, row.reason), row.remedy);
  }
}

std::span<const TableField> TableReader::fields() const {
  if (!state_->has_row) throw InternalError("the fields of a table were asked for without a row");
  return state_->row.fields;
}

std::int64_t TableReader::line() const {
  return state_->row.start.line;
}

std::string TableReader::place(std::size_t field) const {
  const TableRow& row = state_->row;
  return place_text(state_->name, place_in(row.text, row.offsets.at(field), row.start));
}

void TableReader::reject(std::size_t field, std::string_view message, std::string remedy) {
  if (!state_->has_row) throw InternalError("a row of a table was rejected twice, or without a row");
  state_->has_row = false;
  --state_->num_rows;
  state_->refuse(fmt::format("{}: column \"{}\": {}", place(field), state_->options.columns.at(field), message),
                 std::move(remedy));
}

const std::vector<std::string>& TableReader::columns() const {
  return state_->rows->names();
}

std::int64_t TableReader::rows() const {
  return state_->num_rows;
}

const SkippedRows& TableReader::skipped() const {
  return state_->skipped;
}

const std::string& TableReader::name() const {
  return state_->name;
}

bool is_table(const std::filesystem::path& path) {
  return ending_of(path) != nullptr;
}

std::optional<double> parse_number(std::string_view text) {
  constexpr std::string_view kBlanks = " \t";
  const std::size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return std::nullopt;
  text = text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}

std::string place_text(std::string_view name, TextPlace place) {
  return fmt::format("{}:{}:{}", name, place.line, place.column);
}

}  // namespace orthant
