#include "orthant/data/id_lines.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "orthant/base/error.h"
#include "orthant/text/chunked_input.h"

namespace orthant {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxLineBytes = std::size_t{1} << 26;
constexpr std::int64_t kMaxNesting = 64;

// Takes the ids of one line as the parser meets them; `reason` is set when it stops the parser.
class IdTaker : public nlohmann::json_sax<json> {
 public:
  IdTaker(const std::string& column, std::int64_t largest, std::vector<std::uint32_t>& ids)
      : column_(column), largest_(largest), ids_(ids) {}

  std::string reason;
  bool found = false;
  bool has_column = false;
  bool is_json = true;

  bool null() override { return other(); }
  bool boolean(bool) override { return other(); }
  bool number_float(number_float_t, const string_t&) override { return other(); }
  bool string(string_t&) override { return other(); }
  bool binary(binary_t&) override { return other(); }
  bool number_integer(number_integer_t value) override { return in_ids_ ? refuse_id(std::to_string(value)) : other(); }
  bool number_unsigned(number_unsigned_t value) override {
    if (!in_ids_) return other();
    if (value > static_cast<std::uint64_t>(largest_)) return refuse_id(std::to_string(value));
    ids_.push_back(static_cast<std::uint32_t>(value));
    return true;
  }

  bool start_object(std::size_t) override { return depth_ == 0 ? deeper() : other() && deeper(); }
  bool start_array(std::size_t) override {
    const bool is_ids = depth_ == 0 || (depth_ == 1 && is_column_ && !in_ids_);
    if (is_ids && found) return refuse(fmt::format("the key \"{}\" is given twice", column_));
    if (!is_ids && !other()) return false;
    found = found || is_ids;
    in_ids_ = is_ids;
    return deeper();
  }
  bool key(string_t& name) override {
    if (depth_ == 1) is_column_ = name == column_;
    has_column = has_column || (depth_ == 1 && is_column_);
    return true;
  }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool parse_error(std::size_t, const std::string&, const json::exception&) override {
    is_json = false;
    return refuse("this is not JSON");
  }

 private:
  bool refuse(std::string why) {
    if (reason.empty()) reason = std::move(why);
    return false;
  }
  bool refuse_id(const std::string& value) {
    return refuse(fmt::format("{} is not between 0 and {}", value, largest_));
  }

  // A value that is no id: fine under other keys.
  bool other() {
    if (in_ids_ || depth_ == 0 || (depth_ == 1 && is_column_)) return refuse("something that is no list of ids");
    return true;
  }
  bool deeper() {
    if (++depth_ > kMaxNesting) return refuse(fmt::format("nested deeper than {} levels", kMaxNesting));
    return true;
  }
  bool close() {
    --depth_;
    in_ids_ = false;
    return true;
  }

  const std::string& column_;
  std::int64_t largest_;
  std::vector<std::uint32_t>& ids_;
  std::int64_t depth_ = 0;
  bool is_column_ = false;
  bool in_ids_ = false;
};

bool is_blank(std::string_view line) {
  return line.find_first_not_of(" \t\r") == std::string_view::npos;
}

void take_line(std::string_view line, IdTaker& taker, const ChunkedInput& input, const std::string& column) {
  const bool whole = json::sax_parse(line.begin(), line.end(), &taker);
  if (whole && taker.found) return;
  const auto reason = taker.reason.empty() ? fmt::format("there is no key \"{}\"", column) : taker.reason;
  throw DataError(
      fmt::format("{}:{}: {}", input.name(), input.place().line, reason),
      {.remedy = fmt::format(R"(write a line as [1, 2, 3] or {{"{}": [1, 2, 3]}}, or set data.ids_column)", column)});
}

// Loads the next line, without its end; nothing at the end of the file. DataError for one that is too long.
std::optional<std::string_view> load_line(ChunkedInput& input) {
  auto end = input.window().find('\n');
  while (end == std::string_view::npos && !input.at_end()) {
    const auto seen = input.window().size();
    if (seen > kMaxLineBytes) {
      throw DataError(
          fmt::format("{}:{}: a line of more than {} bytes", input.name(), input.place().line, kMaxLineBytes),
          {.remedy = "write a document a line"});
    }
    input.load_more();
    end = input.window().find('\n', seen);
  }
  if (input.window().empty()) return std::nullopt;
  return input.window().substr(0, end);
}

void consume_line(ChunkedInput& input, std::string_view line) {
  input.consume(std::min(line.size() + 1, input.window().size()));
}

// Only what opens a list or an object can be a line of ids; a text may well be a single long line.
bool may_be_ids(ChunkedInput& input) {
  for (;;) {
    const auto first = input.window().find_first_not_of(" \t\r\n");
    if (first != std::string_view::npos) {
      input.consume(first);
      return input.window().front() == '[' || input.window().front() == '{';
    }
    if (input.at_end()) return false;
    input.consume(input.window().size());
    input.load_more();
  }
}

}  // namespace

bool begins_with_ids(const std::string& path, const std::string& column) {
  auto input = ChunkedInput::of_file(path);
  if (!may_be_ids(input)) return false;
  const auto line = load_line(input);
  std::vector<std::uint32_t> ids;
  IdTaker taker(column, std::numeric_limits<std::uint32_t>::max(), ids);
  json::sax_parse(line->begin(), line->end(), &taker);
  return taker.has_column || (taker.found && taker.is_json);
}

void read_id_lines(const std::string& path, const std::string& column, std::int64_t largest, IdLines& lines) {
  auto input = ChunkedInput::of_file(path);
  while (const auto line = load_line(input)) {
    if (!is_blank(*line)) {
      const auto before = lines.ids.size();
      IdTaker taker(column, largest, lines.ids);
      take_line(*line, taker, input, column);
      if (lines.ids.size() > before) {
        lines.ends.push_back(lines.ids.size());
        lines.numbers.push_back(lines.documents);
      }
      ++lines.documents;
    }
    consume_line(input, *line);
  }
}

}  // namespace orthant
