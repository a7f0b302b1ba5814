#include "orthant/text/gpt2_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>

#include "orthant/base/error.h"
#include "orthant/files/path_facts.h"
#include "orthant/files/whole_file.h"
#include "orthant/text/byte_bpe.h"
#include "orthant/text/tokenizer_file.h"
#include "orthant/text/tokenizer_json.h"
#include "orthant/text/tokenizer_roles.h"

namespace orthant {
namespace {

namespace fs = std::filesystem;

std::vector<std::pair<std::string, std::string>> read_merges(const fs::path& path) {
  const auto text = read_text_file(path);
  std::vector<std::pair<std::string, std::string>> merges;
  for (std::size_t begin = 0; begin < text.size();) {
    const auto end = std::min(text.find('\n', begin), text.size());
    auto line = std::string_view(text).substr(begin, end - begin);
    if (line.ends_with('\r')) line.remove_suffix(1);
    begin = end + 1;
    if (line.starts_with("#version") || line.empty()) continue;
    merges.push_back(parse_merge(line, merges.size(), path.string()));
  }
  return merges;
}

// "GPT2TokenizerFast" -> "GPT2". Without a class the vocabulary decides.
bool is_roberta(const TokenizerRoles& roles, const Vocabulary& vocabulary, const fs::path& folder) {
  auto name = roles.tokenizer_class;
  if (name.empty()) return vocabulary.find("<s>") && vocabulary.find("</s>") && vocabulary.find("<mask>");
  for (const std::string_view ending : {"Fast", "Tokenizer"}) {
    if (name.ends_with(ending)) name.resize(name.size() - ending.size());
  }
  if (name == "GPT2") return false;
  if (name == "Roberta" || name == "Bart" || name == "Longformer") return true;
  throw DataError(
      fmt::format("{}: tokenizer_class is {}, and there is no tokenizer.json", folder.string(), roles.tokenizer_class),
      {.remedy = "vocab.json with merges.txt is read for GPT2Tokenizer and RobertaTokenizer; save the "
                 "tokenizer with save_pretrained, which writes a tokenizer.json"});
}

// The tokens of the two models have these roles unless the files say otherwise.
void fill_roles(TokenizerRoles& roles, bool roberta) {
  using Names = std::initializer_list<std::pair<const char*, const char*>>;
  const Names gpt2 = {{"bos_token", "<|endoftext|>"}, {"eos_token", "<|endoftext|>"}, {"unk_token", "<|endoftext|>"}};
  const Names roberta_roles = {{"cls_token", "<s>"},    {"sep_token", "</s>"},  {"bos_token", "<s>"},
                               {"eos_token", "</s>"},   {"unk_token", "<unk>"}, {"pad_token", "<pad>"},
                               {"mask_token", "<mask>"}};
  for (const auto& [key, token] : roberta ? roberta_roles : gpt2) roles.tokens.try_emplace(key, token);
}

class AddedTokenList {
 public:
  explicit AddedTokenList(const Vocabulary& vocabulary) : vocabulary_(vocabulary) {}

  // One that is there already keeps its id. A token without an id, there or in the vocabulary, is left out.
  AddedToken* add(const AddedToken& token, const fs::path& path) {
    auto place =
        std::find_if(tokens_.begin(), tokens_.end(), [&](const auto& t) { return t.content == token.content; });
    if (place == tokens_.end()) {
      const auto known = vocabulary_.find(token.content);
      const auto id = token.id >= 0 ? token.id : known.value_or(-1);
      if (id < 0) return nullptr;
      const bool taken = (!known && vocabulary_.has(id)) || (known && *known != id) ||
                         std::any_of(tokens_.begin(), tokens_.end(), [&](const auto& other) { return other.id == id; });
      if (taken || token.content.empty()) {
        throw DataError(fmt::format("{}: token \"{}\" has the id {}, which does not fit the vocabulary", path.string(),
                                    token.content, id),
                        {.remedy = "give every token an id of its own"});
      }
      place = tokens_.insert(tokens_.end(), token);
      place->id = id;
    }
    const auto id = place->id;
    *place = token;
    place->id = id;
    return &*place;
  }
  AddedToken* find(std::string_view content) {
    const auto place =
        std::find_if(tokens_.begin(), tokens_.end(), [&](const auto& t) { return t.content == content; });
    return place == tokens_.end() ? nullptr : &*place;
  }
  std::vector<AddedToken> take() { return std::move(tokens_); }

 private:
  const Vocabulary& vocabulary_;
  std::vector<AddedToken> tokens_;
};

// Tokens of added_tokens.json, what the configuration describes, and the tokens with a role, which are special.
std::vector<AddedToken> added_tokens(const fs::path& folder, const TokenizerRoles& roles, const Vocabulary& vocabulary,
                                     bool roberta) {
  AddedTokenList added(vocabulary);
  const auto path = folder / "added_tokens.json";
  if (is_there(path)) {
    for (const auto& [content, id] : parse_vocabulary_file(read_text_file(path), path.string())) {
      if (id < 0 || id > Vocabulary::kLargestId) {
        throw DataError(fmt::format("{}: token \"{}\" has the id {}", path.string(), content, id),
                        {.remedy = fmt::format("ids are between 0 and {}", Vocabulary::kLargestId)});
      }
      added.add({.content = content, .id = static_cast<std::int32_t>(id), .normalized = true}, path);
    }
  }
  for (const auto& token : roles.described) added.add(token, folder / "tokenizer_config.json");
  for (const auto& [role, content] : roles.tokens) {
    const bool described = std::any_of(roles.described.begin(), roles.described.end(),
                                       [&](const auto& token) { return token.content == content; });
    if (described) {
      if (auto* token = added.find(content)) token->special = true;
    } else {
      // RoBERTa's mask stands for a word and the blank before it.
      added.add({.content = content, .id = -1, .special = true, .lstrip = roberta && role == "mask_token"}, folder);
    }
  }
  return added.take();
}

}  // namespace

std::shared_ptr<const Tokenizer::Model> tokenizer_from_gpt2_files(const fs::path& folder) {
  ByteBpeOptions options;
  const auto vocab_json = folder / "vocab.json";
  options.source = vocab_json.string();
  options.tokens = parse_vocabulary_file(read_text_file(vocab_json), options.source);
  options.merges = read_merges(folder / "merges.txt");
  const Vocabulary vocabulary(options.tokens, options.source);
  auto roles = read_roles(folder);
  const bool roberta = is_roberta(roles, vocabulary, folder);
  fill_roles(roles, roberta);
  options.words = PreTokenizer({byte_level_step(roles.add_prefix_space, true)});
  options.parts.added = added_tokens(folder, roles, vocabulary, roberta);
  options.parts.add_begin = roles.add_bos_token;
  options.parts.special = special_tokens(roles, [&](std::string_view text) -> std::optional<std::int32_t> {
    for (const auto& token : options.parts.added) {
      if (token.content == text) return token.id;
    }
    return vocabulary.find(text);
  });
  if (roberta) {
    const auto& special = options.parts.special;
    if (!special.begin || !special.end) {
      throw DataError(fmt::format("{}: a RoBERTa vocabulary without <s> and </s>", options.source),
                      {.remedy = "name them in tokenizer_config.json as cls_token and sep_token"});
    }
    options.parts.post = PostProcessor::roberta(*special.begin, *special.end);
  }
  return make_byte_bpe(std::move(options));
}

}  // namespace orthant
