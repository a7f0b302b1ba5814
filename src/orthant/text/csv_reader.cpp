// CSV and TSV after RFC 4180. A line without quotes is cut by memchr; only lines that hold a quote are read field by
// field. When a row is not complete in the window, more is loaded and the row is read again from its beginning.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "orthant/base/error.h"
#include "orthant/base/nearest.h"
#include "orthant/text/table_rows.h"
#include "orthant/text/utf8.h"

namespace orthant {
namespace {

constexpr const char* kQuoteRemedy = "put the field in quotes and double the quotes in it";

// The bytes of a field without its quotes; `doubled` tells that quotes inside are still doubled.
struct RawField {
  const char* begin = nullptr;
  std::size_t size = 0;
  bool doubled = false;

  std::string_view view() const { return {begin, size}; }
};

std::string undoubled(std::string_view text) {
  std::string plain;
  for (std::size_t at = 0; at < text.size(); ++at) {
    plain += text[at];
    if (text[at] == '"') ++at;
  }
  return plain;
}

class CsvRows : public TableRows {
 public:
  CsvRows(ChunkedInput input, char separator, const std::vector<std::string>& columns)
      : input_(std::move(input)), separator_(separator) {
    read_header(columns);
  }

  Outcome next(TableRow& row) override {
    const Outcome outcome = next_raw(row);
    if (outcome != Outcome::kRow) return outcome;
    if (raw_.size() != num_columns_) return ragged(row);
    row.fields.resize(sources_.size());
    row.offsets.resize(sources_.size());
    unescaped_.resize(sources_.size());
    for (std::size_t slot = 0; slot < sources_.size(); ++slot) {
      const RawField& raw = raw_[sources_[slot]];
      std::string_view text = raw.view();
      if (raw.doubled) text = unescaped_[slot] = undoubled(text);
      row.fields[slot] = {text, text.empty()};
      row.offsets[slot] = static_cast<std::size_t>(raw.begin - row.text.data());
    }
    return Outcome::kRow;
  }

  const std::vector<std::string>& names() const override { return names_; }

 private:
  enum class Scan { kRow, kBad, kMore };

  void read_header(const std::vector<std::string>& columns);
  Outcome ragged(TableRow& row) const;
  Outcome next_raw(TableRow& row);
  Outcome empty_lines(TableRow& row);
  void split_plain(std::string_view line);
  Scan scan_quoted(TableRow& row);
  Scan scan_quoted_field(std::string_view window, std::size_t& at);
  Scan scan_plain_field(std::string_view window, std::size_t& at, TableRow& row);
  Scan end_of_field(std::string_view window, std::size_t& at, TableRow& row, bool& last);
  void finish_bad(TableRow& row);
  void load_more();
  void consume(TableRow& row, std::size_t bytes);

  ChunkedInput input_;
  char separator_;
  std::vector<std::string> names_;      // of all columns
  std::size_t num_columns_ = 0;         // 0 while the header is read
  std::vector<std::size_t> sources_;    // the file's column of each column asked for
  std::vector<RawField> raw_;           // of the present row
  std::vector<std::string> unescaped_;  // texts that are not in the window as they are
  std::size_t scanned_ = 0;             // bytes of the present row from `text` on, its line end included
};

void CsvRows::read_header(const std::vector<std::string>& columns) {
  TableRow row;
  const Outcome outcome = next_raw(row);
  if (outcome == Outcome::kEnd) {
    throw DataError(fmt::format("{}: there is no header line", input_.name()),
                    {.remedy = "begin the file with a line of column names"});
  }
  if (outcome == Outcome::kBad) {
    const std::string where = place_text(input_.name(), place_in(row.text, row.bad_offset, row.start));
    throw DataError(fmt::format("{}: in the header: {}", where, row.reason), {.remedy = row.remedy});
  }
  if (const auto at = find_invalid_utf8(row.text)) {
    throw DataError(fmt::format("{}: in the header: {}", place_text(input_.name(), place_in(row.text, *at, row.start)),
                                describe_invalid_utf8(row.text, *at)),
                    {.remedy = utf8_remedy(input_.name(), row.text, *at)});
  }
  num_columns_ = raw_.size();
  std::unordered_map<std::string, std::size_t> known;
  for (const RawField& raw : raw_) {
    names_.push_back(raw.doubled ? undoubled(raw.view()) : std::string(raw.view()));
    const auto [first, is_new] = known.emplace(names_.back(), names_.size() - 1);
    if (is_new) continue;
    throw DataError(fmt::format("{}: columns {} and {} are both called \"{}\"", place_text(input_.name(), row.start),
                                first->second + 1, names_.size(), names_.back()),
                    {.remedy = "give each column a name of its own"});
  }
  for (const std::string& column : columns) {
    const auto found = known.find(column);
    if (found == known.end()) {
      throw ConfigError(fmt::format("{}: there is no column \"{}\"", input_.name(), column),
                        {.remedy = did_you_mean(column, names_)});
    }
    sources_.push_back(found->second);
  }
}

TableRows::Outcome CsvRows::ragged(TableRow& row) const {
  const bool more = raw_.size() > num_columns_;
  const RawField& field = more ? raw_[num_columns_] : raw_.back();
  row.bad_offset = static_cast<std::size_t>(field.begin - row.text.data()) + (more ? 0 : field.size);
  row.reason =
      fmt::format("a row of {} field{}, but the header has {}", raw_.size(), raw_.size() == 1 ? "" : "s", num_columns_);
  row.remedy = fmt::format("put fields that hold {} in quotes, or complete the row",
                           separator_ == '\t' ? "a tab or a line end" : "a comma or a line end");
  return Outcome::kBad;
}

void CsvRows::load_more() {
  if (input_.window().size() > kMaxRowBytes) {
    throw DataError(
        fmt::format("{}: a row longer than {} MiB", place_text(input_.name(), input_.place()), kMaxRowBytes >> 20),
        {.remedy = "look for a quote that is never closed"});
  }
  input_.load_more();
}

void CsvRows::consume(TableRow& row, std::size_t bytes) {
  row.text = input_.window().substr(0, bytes);
  row.start = input_.place();
  input_.consume(bytes);
}

// The fields of the next line, or lines, into raw_.
TableRows::Outcome CsvRows::next_raw(TableRow& row) {
  while (true) {
    const std::string_view window = input_.window();
    const auto* end =
        static_cast<const char*>(window.empty() ? nullptr : std::memchr(window.data(), '\n', window.size()));
    if (end == nullptr && !input_.at_end()) {
      load_more();
      continue;
    }
    if (window.empty()) return Outcome::kEnd;
    std::string_view line = end == nullptr ? window : window.substr(0, static_cast<std::size_t>(end - window.data()));
    const std::size_t bytes = line.size() + (end == nullptr ? 0 : 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() && num_columns_ != 1) return empty_lines(row);
    if (line.find('"') == std::string_view::npos && line.find('\r') == std::string_view::npos) {
      split_plain(line);
      consume(row, bytes);
      return Outcome::kRow;
    }
    const Scan scan = scan_quoted(row);
    if (scan == Scan::kMore) {
      load_more();
      continue;
    }
    if (scan == Scan::kBad) {
      finish_bad(row);
      return Outcome::kBad;
    }
    consume(row, scanned_);
    return Outcome::kRow;
  }
}

// Empty lines end the file or are one bad row.
TableRows::Outcome CsvRows::empty_lines(TableRow& row) {
  while (true) {
    const std::size_t other = input_.window().find_first_not_of("\r\n");
    if (other == std::string_view::npos && !input_.at_end()) {
      load_more();
      continue;
    }
    if (other == std::string_view::npos) return Outcome::kEnd;
    consume(row, other);
    row.bad_offset = 0;
    row.reason = "an empty line";
    row.remedy = "remove it";
    return Outcome::kBad;
  }
}

void CsvRows::split_plain(std::string_view line) {
  raw_.clear();
  const char* at = line.data();
  const char* const end = at + line.size();
  while (true) {
    const auto* found = static_cast<const char*>(std::memchr(at, separator_, static_cast<std::size_t>(end - at)));
    const char* const stop = found == nullptr ? end : found;
    raw_.push_back({at, static_cast<std::size_t>(stop - at), false});
    if (found == nullptr) return;
    at = found + 1;
  }
}

CsvRows::Scan CsvRows::scan_quoted(TableRow& row) {
  const std::string_view window = input_.window();
  raw_.clear();
  std::size_t at = 0;
  for (bool last = false; !last;) {
    const bool quoted = at < window.size() && window[at] == '"';
    Scan scan = quoted ? scan_quoted_field(window, at) : scan_plain_field(window, at, row);
    if (scan == Scan::kRow) scan = end_of_field(window, at, row, last);
    if (scan != Scan::kRow) return scan;
  }
  scanned_ = at;
  return Scan::kRow;
}

CsvRows::Scan CsvRows::scan_quoted_field(std::string_view window, std::size_t& at) {
  const std::size_t opening = at;
  bool doubled = false;
  for (at = opening + 1;; at += 2) {
    at = window.find('"', at);
    if (at == std::string_view::npos) {
      if (!input_.at_end()) return Scan::kMore;
      throw DataError(fmt::format("{}: this quote is never closed",
                                  place_text(input_.name(), place_in(window, opening, input_.place()))),
                      {.remedy = kQuoteRemedy});
    }
    if (at + 1 == window.size() && !input_.at_end()) return Scan::kMore;
    if (at + 1 == window.size() || window[at + 1] != '"') break;
    doubled = true;
  }
  raw_.push_back({window.data() + opening + 1, at - opening - 1, doubled});
  ++at;
  return Scan::kRow;
}

CsvRows::Scan CsvRows::scan_plain_field(std::string_view window, std::size_t& at, TableRow& row) {
  const std::size_t begin = at;
  while (at < window.size() && window[at] != separator_ && window[at] != '\n' && window[at] != '\r') {
    if (window[at] == '"') {
      row.bad_offset = at;
      row.reason = "a quote inside a field that does not begin with one";
      row.remedy = kQuoteRemedy;
      return Scan::kBad;
    }
    ++at;
  }
  raw_.push_back({window.data() + begin, at - begin, false});
  return Scan::kRow;
}

// Steps over the separator or the line end at `at`.
CsvRows::Scan CsvRows::end_of_field(std::string_view window, std::size_t& at, TableRow& row, bool& last) {
  const std::size_t left = window.size() - at;
  if (left < 2 && !input_.at_end()) return Scan::kMore;
  if (left > 0 && window[at] == separator_) {
    ++at;
    return Scan::kRow;
  }
  last = true;
  if (left == 0) return Scan::kRow;
  if (window[at] == '\n' || (window[at] == '\r' && (left == 1 || window[at + 1] == '\n'))) {
    at += window[at] == '\r' && left > 1 ? 2 : 1;
    return Scan::kRow;
  }
  row.bad_offset = at;
  row.reason = window[at] == '\r' ? "a carriage return that no line feed follows" : "text after the closing quote";
  row.remedy =
      window[at] == '\r' ? "end lines with a line feed, and put fields that hold line ends in quotes" : kQuoteRemedy;
  return Scan::kBad;
}

// Goes on with the line after the one in which the row turned out bad.
void CsvRows::finish_bad(TableRow& row) {
  while (true) {
    const std::size_t end = input_.window().find('\n', row.bad_offset);
    if (end == std::string_view::npos && !input_.at_end()) {
      load_more();
      continue;
    }
    consume(row, end == std::string_view::npos ? input_.window().size() : end + 1);
    return;
  }
}

}  // namespace

std::unique_ptr<TableRows> make_csv_rows(ChunkedInput input, char separator, const std::vector<std::string>& columns) {
  return std::make_unique<CsvRows>(std::move(input), separator, columns);
}

}  // namespace orthant
