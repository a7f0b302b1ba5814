// Builds a JsonTree from nlohmann's parser events. The parser reads through an iterator that tells how far it got;
// since only white space, commas and colons lie between two tokens, that is enough to know where each begins.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <vector>

#include "orthant/base/human.h"
#include "orthant/base/json_tree.h"
#include "orthant/base/printable.h"

namespace orthant {
namespace {

using nlohmann::json;

class CountingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  CountingIterator(const char* at, const char** reached) : at_(at), reached_(reached) {}
  reference operator*() const { return *at_; }
  CountingIterator& operator++() {
    *reached_ = ++at_;
    return *this;
  }
  CountingIterator operator++(int) {
    CountingIterator before = *this;
    ++*this;
    return before;
  }
  bool operator==(const CountingIterator& other) const { return at_ == other.at_; }
  bool operator!=(const CountingIterator& other) const { return at_ != other.at_; }

 private:
  const char* at_;
  const char** reached_;
};

// Turns offsets that only grow into lines and columns.
class LineCounter {
 public:
  explicit LineCounter(std::string_view text) : text_(text) {}

  JsonPosition position(std::size_t offset) {
    for (; counted_ < offset; ++counted_) {
      if (text_[counted_] != '\n') continue;
      ++line_;
      line_start_ = counted_ + 1;
    }
    return {line_, static_cast<std::int64_t>(offset - line_start_) + 1};
  }

 private:
  std::string_view text_;
  std::size_t counted_ = 0;
  std::size_t line_start_ = 0;
  std::int64_t line_ = 1;
};

// nlohmann's text without its code and position; bytes that a terminal may not show are escaped, long excerpts cut.
std::string parser_message(std::string_view what) {
  constexpr std::size_t kShownLength = 200;
  if (const auto code_end = what.find("] "); code_end != std::string_view::npos) what.remove_prefix(code_end + 2);
  if (what.starts_with("parse error")) {
    if (const auto place_end = what.find(": "); place_end != std::string_view::npos) what.remove_prefix(place_end + 2);
  }
  std::string text;
  for (const char letter : what.substr(0, kShownLength)) {
    const auto byte = static_cast<unsigned char>(letter);
    text += byte < 0x20 || byte >= 0x7f ? fmt::format("\\x{:02x}", byte) : std::string(1, letter);
  }
  return what.size() > kShownLength ? text + "..." : text;
}

class TreeBuilder : public nlohmann::json_sax<json> {
 public:
  TreeBuilder(std::string_view text, JsonTree& tree) : text_(text), lines_(text), tree_(tree) { reached = text.data(); }

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t&) override { return add(value); }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t&) override { return false; }  // no such token in text
  bool start_object(std::size_t) override { return open(json::object()); }
  bool start_array(std::size_t) override { return open(json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(string_t& name) override {
    constexpr std::size_t kMaxKeyBytes = std::size_t{64} << 10;
    if (name.size() > kMaxKeyBytes) {
      fail(token_position(), fmt::format("a key of {} bytes; keys have at most {}", name.size(), kMaxKeyBytes), "");
    }
    const std::string pointer = child_pointer(frames_.back().pointer, name);
    const JsonPosition here = token_position();
    if (const auto first = tree_.origins.find(pointer); first != tree_.origins.end()) {
      fail(here,
           fmt::format("duplicate key {}, first given in line {}", child_path(frames_.back().path, name),
                       first->second.key.line),
           "keep one of them");
    }
    frames_.back().key = std::move(name);
    frames_.back().key_position = here;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&, const json::exception& error) override {
    const std::size_t offset = std::min(position == 0 ? 0 : position - 1, text_.size());
    const bool comment = offset < text_.size() && text_[offset] == '/';
    std::string path = frames_.empty() ? "" : frames_.back().path;
    if (!frames_.empty() && !frames_.back().key.empty()) path = child_path(path, frames_.back().key);
    const char* remedy = comment ? "JSON has no comments: remove it" : is_utf8(text_) ? "" : "store the file as UTF-8";
    fail(LineCounter(text_).position(offset),
         (path.empty() ? "" : fmt::format("at {}: ", path)) + parser_message(error.what()), remedy);
  }

  const char* reached;  // how far the parser has read

 private:
  struct Frame {
    json* container;
    std::string pointer;
    std::string path;
    std::string key;  // of the member being read
    JsonPosition key_position;
  };

  JsonPosition token_position() {
    std::size_t start = last_end_;
    while (start < text_.size() && std::string_view(" \t\r\n,:").find(text_[start]) != std::string_view::npos) ++start;
    last_end_ = static_cast<std::size_t>(reached - text_.data());
    return lines_.position(start);
  }

  json* place(json&& value, std::string& pointer, std::string& path) {
    JsonOrigin origin;
    origin.value = token_position();
    origin.key = origin.value;
    json* stored = tree_.value.get();
    if (frames_.empty()) {
      *stored = std::move(value);
    } else {
      Frame& frame = frames_.back();
      const bool in_object = frame.container->is_object();
      const std::string name = in_object ? frame.key : std::to_string(frame.container->size());
      pointer = child_pointer(frame.pointer, name);
      path = child_path(frame.path, name);
      if (in_object) {
        origin.key = frame.key_position;
        stored = &((*frame.container)[name] = std::move(value));
        frame.key.clear();
      } else {
        frame.container->push_back(std::move(value));
        stored = &frame.container->back();
      }
    }
    // A short text can name a great many places under one long key.
    constexpr std::int64_t kValueBytes = 160;
    tree_bytes_ += kValueBytes + static_cast<std::int64_t>(pointer.size());
    if (tree_bytes_ > tree_.options.max_tree_bytes) {
      fail(origin.value, fmt::format("more values than fit into {}", format_bytes(tree_.options.max_tree_bytes)),
           "name the right file: this one is damaged or of another kind");
    }
    tree_.origins.emplace(pointer, origin);
    return stored;
  }

  bool add(json&& value) {
    std::string pointer;
    std::string path;
    place(std::move(value), pointer, path);
    return true;
  }

  bool open(json&& empty) {
    Frame frame;
    frame.container = place(std::move(empty), frame.pointer, frame.path);
    if (static_cast<int>(frames_.size()) >= tree_.options.max_depth) {
      const JsonPosition here = tree_.origins.find(frame.pointer)->second.value;
      fail(here, fmt::format("nested deeper than {} levels", tree_.options.max_depth), "");
    }
    frames_.push_back(std::move(frame));
    return true;
  }

  bool close() {
    last_end_ = static_cast<std::size_t>(reached - text_.data());
    frames_.pop_back();
    return true;
  }

  [[noreturn]] void fail(const JsonPosition& here, const std::string& message, std::string remedy) {
    throw_json_error(tree_.options.errors,
                     fmt::format("{}:{}:{}: {}", tree_.options.source, here.line, here.column, message),
                     std::move(remedy));
  }

  std::string_view text_;
  LineCounter lines_;
  JsonTree& tree_;
  std::size_t last_end_ = 0;
  std::int64_t tree_bytes_ = 0;
  std::vector<Frame> frames_;
};

}  // namespace

JsonTree parse_json(std::string_view text, const JsonOptions& options) {
  JsonTree tree{options, std::make_shared<json>(), {}};
  if (text.size() > static_cast<std::size_t>(options.max_bytes)) {
    throw_json_error(options.errors, fmt::format("{}: longer than {} bytes", options.source, options.max_bytes));
  }
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos) {
    throw_json_error(options.errors, fmt::format("{}:1:1: empty; expected JSON", options.source),
                     "name a file that holds JSON, or write {} into it");
  }
  TreeBuilder builder(text, tree);
  const CountingIterator begin(text.data(), &builder.reached);
  const CountingIterator end(text.data() + text.size(), &builder.reached);
  json::sax_parse(begin, end, &builder);
  return tree;
}

}  // namespace orthant
