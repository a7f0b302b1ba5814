// Reads a vocab.txt and the tokenizer_config.json beside it.
#include <fmt/format.h>

#include <unordered_map>

#include "orthant/base/error.h"
#include "orthant/base/json_reader.h"
#include "orthant/files/path_facts.h"
#include "orthant/files/whole_file.h"
#include "orthant/text/unicode.h"
#include "orthant/text/wordpiece.h"

namespace orthant {
namespace {

void read_settings(const std::filesystem::path& file, WordPieceOptions& options) {
  JsonReader reader(JsonDocument::load(file.string(), {.errors = JsonErrorKind::kData}));
  options.lowercase = reader.find<bool>("do_lower_case").value_or(options.lowercase);
  options.strip_accents = reader.find<bool>("strip_accents");
  options.handle_chinese_chars = reader.find<bool>("tokenize_chinese_chars").value_or(options.handle_chinese_chars);
  if (!reader.find<bool>("do_basic_tokenize").value_or(true)) {
    reader.fail("do_basic_tokenize", "text is always cut at white space and punctuation", "set it to true");
  }
}

std::vector<Vocabulary::Entry> read_tokens(const std::filesystem::path& file) {
  constexpr std::int64_t kMaxBytes = std::int64_t{32} << 20;  // the largest in use have a few
  const std::string text = read_file(file, kMaxBytes);
  const auto refuse = [&](std::size_t line, const std::string& what, std::string remedy) {
    throw DataError(fmt::format("{}:{}: {}", file.string(), line, what), {.remedy = std::move(remedy)});
  };
  if (text.empty()) refuse(1, "the vocabulary has no tokens", "write one token a line");
  std::vector<Vocabulary::Entry> entries;
  std::unordered_map<std::string_view, std::size_t> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view token = std::string_view(text).substr(begin, end - begin);
    if (token.ends_with('\r')) token.remove_suffix(1);
    const std::size_t line = entries.size() + 1;
    if (token.empty()) refuse(line, "an empty token", "remove the line if it is the last, else use another vocabulary");
    if (unicode::valid_length(token, 0) != token.size()) {
      refuse(line, "a token that is not UTF-8", "save the vocabulary as UTF-8");
    }
    if (const auto [first, is_new] = lines.emplace(token, line); !is_new) {
      refuse(line, fmt::format("token \"{}\" is already in line {}", token, first->second),
             "each token has one id: remove or rename one of them");
    }
    entries.push_back({std::string(token), static_cast<std::int64_t>(line - 1)});
    begin = end + 1;
  }
  return entries;
}

// Finds the usual special tokens; the texts may hold them as they are written.
void add_special_tokens(WordPieceOptions& options) {
  SpecialTokens& special = options.parts.special;
  const std::pair<std::string_view, std::optional<std::int32_t>*> names[] = {{"[PAD]", &special.pad},
                                                                             {"[UNK]", &special.unknown},
                                                                             {"[CLS]", &special.begin},
                                                                             {"[SEP]", &special.end},
                                                                             {"[MASK]", &special.mask}};
  for (const auto& entry : options.vocabulary) {
    for (const auto& [name, place] : names) {
      if (entry.token != name) continue;
      *place = static_cast<std::int32_t>(entry.id);
      options.parts.added.push_back({.content = entry.token, .id = **place, .special = true});
    }
  }
  if (special.begin && special.end) options.parts.post = PostProcessor::bert(*special.begin, *special.end);
}

}  // namespace

WordPieceOptions read_wordpiece_vocabulary(const std::filesystem::path& vocab_txt) {
  WordPieceOptions options;
  options.source = vocab_txt.string();
  options.vocabulary = read_tokens(vocab_txt);
  const auto settings = vocab_txt.parent_path() / "tokenizer_config.json";
  if (is_there(settings)) read_settings(settings, options);
  add_special_tokens(options);
  return options;
}

}  // namespace orthant
