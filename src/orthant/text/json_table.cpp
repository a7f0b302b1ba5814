// JSON lines and arrays of objects as tables. The stream is cut into objects here; nlohmann's parser reads each one and
// tells of its members, of which only those asked for are kept.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "orthant/base/error.h"
#include "orthant/base/nearest.h"
#include "orthant/text/table_rows.h"

namespace orthant {
namespace {

using nlohmann::json;

constexpr std::string_view kSpace = " \t\r\n";

// Tells how far the parser has read.
class ReadingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  ReadingIterator(const char* at, const char** reached) : at_(at), reached_(reached) {}
  reference operator*() const { return *at_; }
  ReadingIterator& operator++() {
    *reached_ = ++at_;
    return *this;
  }
  bool operator==(const ReadingIterator& other) const { return at_ == other.at_; }
  bool operator!=(const ReadingIterator& other) const { return at_ != other.at_; }

 private:
  const char* at_;
  const char** reached_;
};

// The columns asked for, and what the rows were found to have.
struct JsonColumns {
  std::vector<std::string> asked;
  std::vector<bool> found;         // in any row so far
  std::vector<std::string> names;  // keys of the first good rows
  std::vector<std::string> texts;  // of the present row, where they are not in the window as they are

  std::vector<std::string> keys;          // of the present row, where they are noted
  std::unordered_set<std::string> known;  // names

  void note_keys() {
    constexpr std::size_t kNames = 10000;
    for (auto& key : keys) {
      if (names.size() < kNames && known.insert(key).second) names.push_back(std::move(key));
    }
  }
};

// Keeps the members asked for of one object. A handler returns false to stop the parser: the row is bad then.
class MemberReader : public nlohmann::json_sax<json> {
 public:
  MemberReader(std::string_view text, JsonColumns& columns, bool note_names, TableRow& row)
      : reached(text.data()), text_(text), columns_(columns), note_names_(note_names), row_(row) {
    row.fields.assign(columns.asked.size(), {});
    row.offsets.assign(columns.asked.size(), 0);
    given_.assign(columns.asked.size(), false);
    columns.keys.clear();
  }

  bool null() override {
    return member([](std::size_t) { return std::string_view(); });
  }
  bool boolean(bool value) override {
    return member([&](std::size_t) { return std::string_view(value ? "true" : "false"); });
  }
  bool number_integer(number_integer_t) override { return number(); }
  bool number_unsigned(number_unsigned_t) override { return number(); }
  bool number_float(number_float_t, const string_t&) override { return number(); }
  bool string(string_t& value) override {
    return member([&](std::size_t slot) { return std::string_view(columns_.texts[slot] = value); });
  }
  bool binary(binary_t&) override { return false; }  // no such token in text

  bool key(string_t& name) override {
    const std::size_t start = token_start();
    if (depth_ > 1) return true;
    if (note_names_) columns_.keys.push_back(name);
    slots_.clear();
    for (std::size_t slot = 0; slot < columns_.asked.size(); ++slot) {
      if (columns_.asked[slot] != name) continue;
      if (given_[slot]) return fail(start, fmt::format("key \"{}\" comes twice", name), "keep one of them");
      given_[slot] = true;
      columns_.found[slot] = true;
      slots_.push_back(slot);
    }
    return true;
  }

  bool start_object(std::size_t) override { return open(true); }
  bool start_array(std::size_t) override { return open(false); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool parse_error(std::size_t position, const std::string&, const json::exception& error) override {
    const std::size_t offset = std::min(position == 0 ? 0 : position - 1, text_.size());
    constexpr int kOutOfRange = 406;
    if (error.id == kOutOfRange) return fail(offset, "a number beyond a double", "write a smaller one, or null");
    return fail(offset, "not valid JSON from here on", "write one object, with its keys and texts in quotes");
  }

  const char* reached;

 private:
  std::size_t token_start() {
    const std::size_t start = text_.find_first_not_of(" \t\r\n,:", last_end_);
    last_end_ = static_cast<std::size_t>(reached - text_.data());
    return std::min(start, text_.size());
  }

  bool fail(std::size_t offset, std::string reason, std::string remedy) {
    row_.bad_offset = offset;
    row_.reason = std::move(reason);
    row_.remedy = std::move(remedy);
    return false;
  }

  bool not_an_object(std::size_t start) {
    return fail(start, "a row that is not an object", "write each row as {\"column\": value, ...}");
  }

  // `text_of(slot)` is the member's text.
  template <typename TextOf>
  bool member(const TextOf& text_of) {
    const std::size_t start = token_start();
    if (depth_ == 0) return not_an_object(start);
    if (depth_ > 1) return true;
    for (const std::size_t slot : slots_) {
      const std::string_view text = text_of(slot);
      row_.fields[slot] = {text, text.empty()};
      row_.offsets[slot] = start;
    }
    return true;
  }

  // A number's text is what the file has.
  bool number() {
    const std::size_t from = last_end_;
    return member([&](std::size_t) {
      const std::size_t start = text_.find_first_of("-0123456789", from);
      const std::size_t end = text_.find_first_not_of("+-.0123456789eE", start);
      return text_.substr(start, end == std::string_view::npos ? end : end - start);
    });
  }

  bool open(bool object) {
    const std::size_t start = token_start();
    if (depth_ == 0 && !object) return not_an_object(start);
    if (depth_ == 1 && !slots_.empty()) {
      return fail(start,
                  fmt::format("column \"{}\" holds {}", columns_.asked[slots_[0]], object ? "an object" : "an array"),
                  "write a text, a number, true, false or null");
    }
    ++depth_;
    return true;
  }

  bool close() {
    last_end_ = static_cast<std::size_t>(reached - text_.data());
    --depth_;
    return true;
  }

  std::string_view text_;
  JsonColumns& columns_;
  bool note_names_;
  TableRow& row_;
  std::vector<bool> given_;
  std::vector<std::size_t> slots_;  // that the present member fills
  std::size_t last_end_ = 0;
  int depth_ = 0;
};

class JsonRows : public TableRows {
 public:
  JsonRows(ChunkedInput input, bool may_be_array, const std::vector<std::string>& columns) : input_(std::move(input)) {
    columns_.asked = columns;
    columns_.found.resize(columns.size());
    columns_.texts.resize(columns.size());
    if (!may_be_array) return;
    skip_space();
    array_ = input_.window().starts_with('[');
    if (array_) input_.consume(1);
  }

  Outcome next(TableRow& row) override {
    if (ended_ || !(array_ ? next_element(row) : next_line(row))) {
      if (!ended_) check_columns();
      ended_ = true;
      return Outcome::kEnd;
    }
    MemberReader reader(row.text, columns_, num_read_++ < TableReader::kNamedRows, row);
    const char* const end = row.text.data() + row.text.size();
    const ReadingIterator first(row.text.data(), &reader.reached);
    if (!json::sax_parse(first, ReadingIterator(end, &reader.reached), &reader)) return Outcome::kBad;
    columns_.note_keys();
    ++num_good_;
    return Outcome::kRow;
  }

  const std::vector<std::string>& names() const override { return columns_.names; }

 private:
  void check_columns() const {
    for (std::size_t slot = 0; slot < columns_.asked.size() && num_good_ > 0; ++slot) {
      if (columns_.found[slot]) continue;
      throw ConfigError(fmt::format("{}: no row has a column \"{}\"", input_.name(), columns_.asked[slot]),
                        {.remedy = did_you_mean(columns_.asked[slot], columns_.names)});
    }
  }

  void load_more() {
    if (input_.window().size() > kMaxRowBytes) {
      throw DataError(
          fmt::format("{}: a row longer than {} MiB", place_text(input_.name(), input_.place()), kMaxRowBytes >> 20),
          {.remedy = array_ ? "look for a quote or a bracket that is never closed" : "end each row with a line end"});
    }
    input_.load_more();
  }

  void skip_space() {
    while (true) {
      const std::size_t other = input_.window().find_first_not_of(kSpace);
      input_.consume(std::min(other, input_.window().size()));
      if (!input_.window().empty() || input_.at_end()) return;
      input_.load_more();
    }
  }

  // The next line that is not blank.
  bool next_line(TableRow& row) {
    skip_space();
    while (true) {
      const std::string_view window = input_.window();
      if (window.empty()) return false;
      const std::size_t end = window.find('\n');
      if (end == std::string_view::npos && !input_.at_end()) {
        load_more();
        continue;
      }
      row.start = input_.place();
      row.text = window.substr(0, end);
      input_.consume(end == std::string_view::npos ? window.size() : end + 1);
      return true;
    }
  }

  [[noreturn]] void fail_array(std::string_view found) const {
    throw DataError(fmt::format("{}: {}", place_text(input_.name(), input_.place()), found),
                    {.remedy = "write an array of objects, [{...}, {...}], or one object per line"});
  }

  bool next_element(TableRow& row) {
    skip_space();
    if (input_.window().starts_with(']')) {
      input_.consume(1);
      skip_space();
      if (!input_.window().empty()) fail_array("text after the end of the array");
      return false;
    }
    if (!first_) {
      if (!input_.window().starts_with(',')) {
        fail_array(input_.window().empty() ? "the array breaks off" : "no comma between two rows");
      }
      input_.consume(1);
      skip_space();
    }
    first_ = false;
    while (true) {
      const std::size_t end = element_end(input_.window());
      if (end == std::string_view::npos && !input_.at_end()) {
        load_more();
        continue;
      }
      if (end == std::string_view::npos)
        fail_array(input_.window().empty() ? "the array breaks off" : "this row breaks off");
      row.start = input_.place();
      row.text = input_.window().substr(0, end);
      input_.consume(end);
      return true;
    }
  }

  // Where the value ends that begins the window; npos when the window does not hold all of it.
  static std::size_t element_end(std::string_view window) {
    std::size_t depth = 0;
    bool quoted = false;
    for (std::size_t at = 0; at < window.size(); ++at) {
      const char letter = window[at];
      if (quoted) {
        if (letter == '\\') ++at;
        if (letter == '"') quoted = false;
      } else if (letter == '"') {
        quoted = true;
      } else if (letter == '{' || letter == '[') {
        ++depth;
      } else if (depth == 0 && (letter == ',' || letter == ']')) {
        return at;
      } else if (depth > 0 && (letter == '}' || letter == ']') && --depth == 0) {
        return at + 1;
      }
    }
    return std::string_view::npos;
  }

  ChunkedInput input_;
  JsonColumns columns_;
  bool array_ = false;
  bool first_ = true;
  bool ended_ = false;
  std::int64_t num_read_ = 0;
  std::int64_t num_good_ = 0;
};

}  // namespace

std::unique_ptr<TableRows> make_json_rows(ChunkedInput input, bool may_be_array,
                                          const std::vector<std::string>& columns) {
  return std::make_unique<JsonRows>(std::move(input), may_be_array, columns);
}

}  // namespace orthant
