#include "orthant/data/inspect_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <span>
#include <unordered_map>

#include "orthant/base/error.h"
#include "orthant/data/open_table.h"
#include "orthant/data/table_numbers.h"
#include "orthant/files/xxhash.h"
#include "orthant/text/shown.h"

namespace orthant {
namespace {

std::string cut_value(std::string_view text) {
  const auto cut = cut_text(text, ColumnFacts::kShownBytes);
  return cut.size() < text.size() ? std::string(cut) + "..." : std::string(text);
}

// Of ASCII, or a byte of any other character.
bool is_letter_byte(char byte) {
  const auto lower = static_cast<unsigned char>(byte | 0x20);
  return (lower >= 'a' && lower <= 'z') || static_cast<unsigned char>(byte) >= 0x80;
}

// All columns of a file.
std::vector<std::string> columns_of(const std::string& path) {
  refuse_other_separator(path);
  auto reader = TableReader::open(path, {.columns = {}, .bad_rows = BadRows::kSkip});
  for (std::int64_t row = 0; row < TableReader::kNamedRows && reader.next(); ++row) {
  }
  if (!reader.columns().empty()) return reader.columns();
  throw DataError(fmt::format("{}: no rows with columns", path), {.remedy = "name a file with one object per row"});
}

// Collects the facts of one column.
class ColumnCounter {
 public:
  ColumnCounter(std::string name, const std::optional<Tokenizer>& tokenizer) : tokenizer_(tokenizer) {
    facts_.name = std::move(name);
    facts_.min = std::numeric_limits<double>::infinity();
    facts_.max = -facts_.min;
  }

  void add(const TableField& field, std::int64_t line) {
    if (tokenizer_) count_tokens(field.text);
    if (field.missing) {
      ++facts_.missing;
      return;
    }
    count_value(field.text, line);
    if (const auto number = parse_table_number(field.text)) {
      ++facts_.numbers;
      facts_.min = std::min(facts_.min, *number);
      facts_.max = std::max(facts_.max, *number);
      sum_ += *number;
    } else if (is_missing_number(field.text)) {
      ++missing_words_;
    } else {
      if (facts_.words == 0) facts_.first_word = {.text = cut_value(field.text), .count = 1, .line = line};
      ++facts_.words;
      if (std::ranges::any_of(field.text, is_letter_byte)) ++facts_.lettered;
    }
  }

  ColumnFacts finish(std::int64_t rows) && {
    // NA and the like are missing numbers in a column of numbers and words in any other.
    if (facts_.is_mostly_numeric()) {
      facts_.missing += missing_words_;
    } else {
      facts_.words += missing_words_;
      facts_.lettered += missing_words_;
    }
    facts_.distinct = static_cast<std::int64_t>(places_.size());
    if (facts_.numbers > 0) {
      facts_.mean = sum_ / static_cast<double>(facts_.numbers);
    } else {
      facts_.min = facts_.max = 0;
    }
    std::ranges::sort(facts_.values, [](const auto& a, const auto& b) {
      return a.count != b.count ? a.count > b.count : a.text < b.text;
    });
    if (tokenizer_ && !facts_.is_numeric()) facts_.tokens = token_facts(rows);
    return std::move(facts_);
  }

 private:
  void count_value(std::string_view text, std::int64_t line) {
    constexpr std::size_t kExamples = 3;
    const auto hash = xxh64(std::as_bytes(std::span(text)));
    if (const auto found = places_.find(hash); found != places_.end()) {
      if (!facts_.values.empty()) ++facts_.values[found->second].count;
      return;
    }
    if (places_.size() == ColumnFacts::kMostDistinct) return;
    const auto place = places_.size();
    places_.emplace(hash, place);
    if (place < ColumnFacts::kMostValues) {
      facts_.values.push_back({.text = cut_value(text), .count = 1, .line = line});
    } else {
      facts_.values.clear();  // there are too many to show
    }
    if (place < kExamples) facts_.examples.push_back(cut_value(text));
  }

  void count_tokens(std::string_view text) {
    ids_.clear();
    tokenizer_->encode_into(text, {}, ids_);
    if (lengths_.size() <= ids_.size()) lengths_.resize(ids_.size() + 1);
    ++lengths_[ids_.size()];
    total_tokens_ += static_cast<std::int64_t>(ids_.size());
    if (const auto unknown = tokenizer_->special().unknown) unknown_ += std::ranges::count(ids_, *unknown);
  }

  TokenFacts token_facts(std::int64_t rows) const {
    TokenFacts facts{.least = -1, .most = 0, .total = total_tokens_, .p99 = -1, .unknown = unknown_};
    std::int64_t seen = 0;
    for (std::size_t length = 0; length < lengths_.size(); ++length) {
      if (lengths_[length] == 0) continue;
      facts.most = static_cast<std::int64_t>(length);
      if (facts.least < 0) facts.least = facts.most;
      seen += lengths_[length];
      if (facts.p99 < 0 && seen * 100 >= rows * 99) facts.p99 = facts.most;
    }
    return facts;
  }

  const std::optional<Tokenizer>& tokenizer_;
  ColumnFacts facts_;
  double sum_ = 0;
  std::int64_t missing_words_ = 0;
  std::unordered_map<std::uint64_t, std::size_t> places_;  // of values by their hashes, in facts_.values while it fits
  std::vector<std::int32_t> ids_;
  std::vector<std::int64_t> lengths_;  // texts by their number of tokens
  std::int64_t total_tokens_ = 0;
  std::int64_t unknown_ = 0;
};

}  // namespace

bool holds_stray_words(const ColumnFacts& column) {
  return column.words > 0 && column.numbers > column.words;
}

std::string describe_stray_words(const ColumnFacts& column) {
  return fmt::format("{} of {} cells {} in line {}: {}", column.words, column.numbers + column.words + column.missing,
                     column.words == 1 ? "is not a number," : "are not numbers, the first", column.first_word.line,
                     shown(column.first_word.text));
}

TableFacts inspect_table(const InspectTableOptions& options) {
  const auto columns = options.columns.empty() ? columns_of(options.path) : options.columns;
  auto reader =
      open_table(options.path, {.columns = columns, .bad_rows = BadRows::kSkip, .invalid_utf8 = options.invalid_utf8});
  std::vector<ColumnCounter> counters;
  for (const auto& column : columns) counters.emplace_back(column, options.tokenizer);
  std::int64_t bytes = 0;
  const auto enough = [&] {
    return (options.most_rows > 0 && reader.rows() >= options.most_rows) ||
           (options.most_bytes > 0 && bytes >= options.most_bytes);
  };
  while (!enough() && reader.next()) {
    const auto fields = reader.fields();
    for (std::size_t i = 0; i < counters.size(); ++i) counters[i].add(fields[i], reader.line());
    for (const auto& field : fields) bytes += static_cast<std::int64_t>(field.text.size());
    if (options.progress && reader.rows() % kProgressRows == 0) options.progress(reader.rows());
  }
  TableFacts facts;
  facts.rows = reader.rows();
  facts.bad = reader.skipped();
  for (auto& counter : counters) facts.columns.push_back(std::move(counter).finish(facts.rows));
  return facts;
}

}  // namespace orthant
