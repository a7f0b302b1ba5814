#include "orthant/text/tokenizer_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "orthant/base/error.h"
#include "orthant/base/json_tree.h"

namespace orthant {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxDepth = 64;
constexpr std::size_t kMaxValues = 1'000'000;  // added tokens have seven each
constexpr std::size_t kMaxBytes = std::size_t{512} << 20;

// Routes what the parser finds: members of the vocabulary and elements of the merges into lists, all else into a tree.
class FileBuilder : public nlohmann::json_sax<json> {
 public:
  FileBuilder(std::string_view text, TokenizerFile& file, bool vocabulary_only)
      : text_(text), file_(file), vocabulary_only_(vocabulary_only) {}

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return number(value); }
  bool number_unsigned(number_unsigned_t value) override {
    return number(static_cast<std::int64_t>(std::min<std::uint64_t>(value, INT64_MAX)));
  }
  bool number_float(number_float_t value, const string_t&) override {
    return region_ == Region::pieces ? score(value) : add(value);
  }
  bool binary(binary_t&) override { return false; }  // no such token in text

  bool string(string_t& value) override {
    if (region_ == Region::pieces) {
      if (pair_depth_ == 0 || !pair_.empty()) bad_piece();
      pair_.push_back(std::move(value));
      return true;
    }
    if (region_ == Region::merges) {
      if (pair_depth_ == 0) {
        file_.merges.push_back(parse_merge(value, file_.merges.size(), file_.source));
      } else {
        pair_.push_back(std::move(value));
      }
      return true;
    }
    return add(std::move(value));
  }

  bool key(string_t& name) override {
    key_ = std::move(name);
    return true;
  }

  bool start_object(std::size_t) override {
    const bool is_vocabulary =
        vocabulary_only_ ? depth_ == 0 : depth_ == 2 && top_key_ == "model" && key_ == "vocab" && inside_objects();
    if (region_ == Region::rest && is_vocabulary) {
      deeper();
      region_ = Region::vocabulary;
      return true;
    }
    return open(json::object());
  }

  bool start_array(std::size_t) override {
    const bool in_model = !vocabulary_only_ && depth_ == 2 && top_key_ == "model" && inside_objects();
    if (region_ == Region::rest && in_model && (key_ == "merges" || key_ == "vocab")) {
      deeper();
      region_ = key_ == "merges" ? Region::merges : Region::pieces;
      return true;
    }
    if (region_ == Region::merges || region_ == Region::pieces) {
      if (pair_depth_ > 0) bad_element();
      deeper();
      ++pair_depth_;
      pair_.clear();
      return true;
    }
    return open(json::array());
  }

  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool parse_error(std::size_t position, const std::string&, const json::exception&) override {
    const auto before = text_.substr(0, std::min(position == 0 ? 0 : position - 1, text_.size()));
    const auto line = std::count(before.begin(), before.end(), '\n') + 1;
    const auto last_newline = before.rfind('\n');
    const auto column = before.size() - (last_newline == std::string_view::npos ? 0 : last_newline + 1) + 1;
    throw DataError(fmt::format("{}:{}:{}: this is not JSON", file_.source, line, column),
                    {.remedy = "the file may be cut off or of another kind: copy it again"});
  }

 private:
  enum class Region { rest, vocabulary, merges, pieces };

  // Whether the containers around the current place, down to the root, are objects.
  bool inside_objects() const {
    return std::all_of(containers_.begin(), containers_.end(), [](const json* value) { return value->is_object(); });
  }

  void deeper() {
    if (++depth_ > kMaxDepth) {
      throw DataError(fmt::format("{}: nested deeper than {} levels", file_.source, kMaxDepth),
                      {.remedy = "give a file that a Hugging Face tokenizer was saved to"});
    }
  }

  [[noreturn]] void bad_pair() const {
    throw DataError(fmt::format("{}: merge {} is not a pair of two tokens", file_.source, file_.merges.size()),
                    {.remedy = R"(write merges as "a b" or as ["a", "b"])"});
  }

  [[noreturn]] void bad_piece() const {
    throw DataError(
        fmt::format("{}: token {} of the vocabulary is not a token with its score", file_.source, file_.tokens.size()),
        {.remedy = R"(write tokens with scores as ["a", -1.5])"});
  }

  [[noreturn]] void bad_element() const {
    if (region_ == Region::merges) bad_pair();
    bad_piece();
  }

  bool score(double value) {
    if (pair_depth_ == 0 || pair_.size() != 1) bad_piece();
    file_.tokens.push_back({std::move(pair_[0]), static_cast<std::int64_t>(file_.tokens.size())});
    file_.scores.push_back(value);
    pair_.emplace_back();
    return true;
  }

  json* place(json&& value) {
    if (++values_ > kMaxValues) {
      throw DataError(
          fmt::format("{}: more than {} values beside the vocabulary and the merges", file_.source, kMaxValues),
          {.remedy = "give a file that a Hugging Face tokenizer was saved to"});
    }
    if (containers_.empty()) {
      *file_.rest = std::move(value);
      return file_.rest.get();
    }
    auto& parent = *containers_.back();
    if (parent.is_object()) {
      if (parent.contains(key_)) {
        throw DataError(fmt::format("{}: the key {} is given twice", file_.source, describe_json(key_)),
                        {.remedy = "keep one of them"});
      }
      return &(parent[key_] = std::move(value));
    }
    parent.push_back(std::move(value));
    return &parent.back();
  }

  bool add(json&& value) {
    if (region_ == Region::merges || region_ == Region::pieces) bad_element();
    if (region_ == Region::vocabulary) {
      throw DataError(
          fmt::format("{}: the id of token {} is {}", file_.source, describe_json(key_), describe_json(value)),
          {.remedy = "ids are integers"});
    }
    place(std::move(value));
    return true;
  }

  bool number(std::int64_t value) {
    if (region_ == Region::pieces) return score(static_cast<double>(value));
    if (region_ != Region::vocabulary) return add(value);
    file_.tokens.push_back({std::move(key_), value});
    return true;
  }

  bool open(json&& empty) {
    if (region_ != Region::rest) return add(std::move(empty));
    deeper();
    if (depth_ == 2) top_key_ = key_;
    containers_.push_back(place(std::move(empty)));
    return true;
  }

  bool close() {
    --depth_;
    if (pair_depth_ > 0) {
      if (pair_.size() != 2) bad_element();
      if (region_ == Region::merges) file_.merges.emplace_back(std::move(pair_[0]), std::move(pair_[1]));
      --pair_depth_;
    } else if (region_ != Region::rest) {
      region_ = Region::rest;
    } else {
      containers_.pop_back();
    }
    return true;
  }

  std::string_view text_;
  TokenizerFile& file_;
  bool vocabulary_only_;
  Region region_ = Region::rest;
  std::size_t depth_ = 0;
  std::size_t values_ = 0;
  std::size_t pair_depth_ = 0;
  std::string key_;
  std::string top_key_;            // the member of the root that is being read
  std::vector<std::string> pair_;  // of a merge; of a piece its token, then a text for its score
  std::vector<json*> containers_;
};

TokenizerFile parse(std::string_view text, const std::string& source, bool vocabulary_only) {
  if (text.size() > kMaxBytes) {
    throw DataError(fmt::format("{}: {} bytes are too many for a tokenizer", source, text.size()),
                    {.remedy = fmt::format("such files have at most {} bytes", kMaxBytes)});
  }
  TokenizerFile file{source, {}, {}, {}, std::make_shared<json>()};
  FileBuilder builder(text, file, vocabulary_only);
  json::sax_parse(text.begin(), text.end(), &builder);
  return file;
}

}  // namespace

TokenizerFile parse_tokenizer_file(std::string_view text, const std::string& source) {
  return parse(text, source, false);
}

std::vector<Vocabulary::Entry> parse_vocabulary_file(std::string_view text, const std::string& source) {
  auto file = parse(text, source, true);
  const auto first = text.find_first_not_of(" \t\r\n\xef\xbb\xbf");
  const bool is_object = first != std::string_view::npos && text[first] == '{';
  if (!is_object || !file.rest->is_null()) {
    throw DataError(
        fmt::format("{}: the whole is {}; expected an object of tokens and ids", source, describe_json(*file.rest)),
        {.remedy = "give the vocab.json of a GPT-2 or RoBERTa model"});
  }
  return std::move(file.tokens);
}

std::pair<std::string, std::string> parse_merge(std::string_view line, std::size_t number, const std::string& source) {
  const auto space = line.find(' ');
  if (space == std::string_view::npos || space == 0 || space + 1 == line.size() ||
      line.find(' ', space + 1) != std::string_view::npos) {
    throw DataError(fmt::format("{}: merge {} is \"{}\"", source, number, line.substr(0, 80)),
                    {.remedy = "a merge is two tokens with one space between"});
  }
  return {std::string(line.substr(0, space)), std::string(line.substr(space + 1))};
}

}  // namespace orthant
