#include "orthant/text/tokenizer_json.h"

#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <unordered_map>

#include "orthant/base/error.h"
#include "orthant/text/byte_bpe.h"
#include "orthant/text/character_bpe.h"
#include "orthant/text/json_section.h"
#include "orthant/text/tokenizer_file.h"
#include "orthant/text/unigram.h"
#include "orthant/text/wordpiece.h"

namespace orthant {
namespace {

constexpr std::string_view kReadKinds =
    "BPE (GPT-2, Llama, Mistral, ...), Unigram (T5, XLM-R, ...) and WordPiece (BERT) are read";

// The ids of a few tokens, and the tokens of a few ids, without a table of all.
class FewTokens {
 public:
  FewTokens(const std::vector<Vocabulary::Entry>& tokens, const std::vector<AddedToken>& added,
            const std::vector<std::string>& wanted) {
    std::set<std::int64_t> wanted_ids;
    std::set<std::string_view> wanted_texts(wanted.begin(), wanted.end());
    for (const auto& token : added) {
      wanted_texts.insert(token.content);
      wanted_ids.insert(token.id);
    }
    for (const auto& [token, id] : tokens) {
      if (wanted_texts.contains(token)) ids_[token] = id;
      if (wanted_ids.contains(id)) texts_[id] = token;
    }
  }

  std::optional<std::int64_t> id(std::string_view text) const {
    const auto place = ids_.find(text);
    return place == ids_.end() ? std::nullopt : std::optional(place->second);
  }
  std::optional<std::string_view> text(std::int64_t id) const {
    const auto place = texts_.find(id);
    return place == texts_.end() ? std::nullopt : std::optional<std::string_view>(place->second);
  }

 private:
  std::map<std::string, std::int64_t, std::less<>> ids_;
  std::map<std::int64_t, std::string> texts_;
};

std::vector<AddedToken> read_added_tokens(const JsonSection& root) {
  std::vector<AddedToken> tokens;
  for (const auto& section : root.objects("added_tokens")) {
    AddedToken token;
    token.content = section.text("content");
    if (token.content.empty()) section.fail("content", "is empty", "remove the token");
    const auto id = section.integer("id");
    if (id < 0 || id > Vocabulary::kLargestId) {
      section.fail("id", fmt::format("is {}", id), fmt::format("ids are between 0 and {}", Vocabulary::kLargestId));
    }
    token.id = static_cast<std::int32_t>(id);
    token.special = section.flag("special", false);
    token.single_word = section.flag("single_word", false);
    token.lstrip = section.flag("lstrip", false);
    token.rstrip = section.flag("rstrip", false);
    token.normalized = section.flag("normalized", !token.special);
    tokens.push_back(std::move(token));
  }
  return tokens;
}

// An added token is either in the vocabulary under its id, or has an id that no other token has.
void check_added_tokens(const JsonSection& root, const std::vector<AddedToken>& added, const FewTokens& vocabulary) {
  std::map<std::int32_t, std::string_view> by_id;
  for (const auto& token : added) {
    const auto known = vocabulary.id(token.content);
    if (known && *known != token.id) {
      root.fail("added_tokens",
                fmt::format("gives \"{}\" the id {}, the vocabulary {}", token.content, token.id, *known),
                "give both the same id");
    }
    const auto [other, is_new] = by_id.try_emplace(token.id, token.content);
    const auto text = known ? std::nullopt : vocabulary.text(token.id);
    if (text || (!is_new && other->second != token.content)) {
      root.fail("added_tokens",
                fmt::format("gives \"{}\" the id {} of \"{}\"", token.content, token.id, text ? *text : other->second),
                "give every token an id of its own");
    }
  }
}

TokenizerParts read_parts(const JsonSection& root, const TokenizerFile& file, TokenizerRoles roles,
                          const std::string& unknown) {
  TokenizerParts parts;
  parts.added = read_added_tokens(root);
  if (!unknown.empty()) roles.tokens.try_emplace("unk_token", unknown);
  const FewTokens vocabulary(file.tokens, parts.added, wanted_tokens(roles));
  check_added_tokens(root, parts.added, vocabulary);
  parts.post = read_post_processor(root);
  parts.special = special_tokens(roles, [&](std::string_view text) -> std::optional<std::int32_t> {
    for (const auto& token : parts.added) {
      if (token.content == text) return token.id;
    }
    const auto id = vocabulary.id(text);
    return id && *id >= 0 && *id <= Vocabulary::kLargestId ? std::optional(static_cast<std::int32_t>(*id))
                                                           : std::nullopt;
  });
  return parts;
}

// Settings of a BPE model that we do not do, when they are set.
void refuse_unread_settings(const JsonSection& model) {
  if (model.has("dropout") && model.value("dropout") != 0) {
    model.fail("dropout", "makes ids random, which is not done", "set it to null");
  }
  for (const auto* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (const auto text = model.find_text(key); text && !text->empty()) {
      model.fail(key, fmt::format("is \"{}\"", *text), std::string(kReadKinds));
    }
  }
}

void check_decoder(const JsonSection& section, std::string_view expected) {
  const auto type = section.text("type");
  if (type == "Sequence") {
    for (const auto& inner : section.objects("decoders")) check_decoder(inner, expected);
  } else if (type != expected) {
    section.fail("type", fmt::format("is \"{}\"", type), fmt::format("this model's decoder is {}", expected));
  }
}

std::shared_ptr<const Tokenizer::Model> read_byte_bpe(const JsonSection& root, TokenizerFile file,
                                                      const TokenizerRoles& roles, PreTokenizer words) {
  const auto model = root.object("model");
  if (model.flag("byte_fallback", false)) {
    model.fail("byte_fallback", "is true in a model over bytes", "set it to false");
  }
  if (root.has("decoder")) check_decoder(root.object("decoder"), "ByteLevel");
  ByteBpeOptions options;
  options.source = file.source;
  options.words = std::move(words);
  options.normalizer = read_normalizer(root);
  options.ignore_merges = model.flag("ignore_merges", false);
  options.unknown = model.find_text("unk_token").value_or("");
  options.fuse_unknown = model.flag("fuse_unk", false);
  options.parts = read_parts(root, file, roles, options.unknown);
  options.tokens = std::move(file.tokens);
  options.merges = std::move(file.merges);
  return make_byte_bpe(std::move(options));
}

// What kinds over characters share; false, with no more than the words, for a pre-tokenizer that leads to bytes.
bool read_rules(const JsonSection& root, const std::string& source, WordModelOptions& options) {
  options.source = source;
  options.normalizer = read_normalizer(root);
  auto [words, byte_level] = read_pre_tokenizer(root, options.normalizer);
  options.words = std::move(words);
  if (byte_level) return false;
  options.decoder = read_decoder(root);
  options.byte_fallback = root.object("model").flag("byte_fallback", false);
  return true;
}

std::shared_ptr<const Tokenizer::Model> read_bpe(const JsonSection& root, TokenizerFile file,
                                                 const TokenizerRoles& roles) {
  const auto model = root.object("model");
  refuse_unread_settings(model);
  if (!file.scores.empty()) model.fail("vocab", "is a list", "write the vocabulary of BPE as an object of ids");
  if (model.has("merges")) model.fail("merges", "is no list", "write merges as a list of \"a b\" or [\"a\", \"b\"]");
  CharacterBpeOptions options;
  if (!read_rules(root, file.source, options)) {
    return read_byte_bpe(root, std::move(file), roles, std::move(options.words));
  }
  options.ignore_merges = model.flag("ignore_merges", false);
  options.unknown = model.find_text("unk_token").value_or("");
  options.fuse_unknown = model.flag("fuse_unk", false);
  options.parts = read_parts(root, file, roles, options.unknown);
  options.tokens = std::move(file.tokens);
  options.merges = std::move(file.merges);
  return make_character_bpe(options);
}

std::optional<std::int32_t> read_unknown_id(const JsonSection& model, std::size_t num_tokens) {
  if (!model.has("unk_id")) return std::nullopt;
  const auto id = model.integer("unk_id");
  if (id < 0 || id >= static_cast<std::int64_t>(num_tokens)) {
    model.fail("unk_id", fmt::format("is {}", id), fmt::format("ids are between 0 and {}", num_tokens - 1));
  }
  return static_cast<std::int32_t>(id);
}

std::shared_ptr<const Tokenizer::Model> read_unigram(const JsonSection& root, TokenizerFile file,
                                                     const TokenizerRoles& roles) {
  const auto model = root.object("model");
  if (file.scores.size() != file.tokens.size()) {
    model.fail("vocab", "is an object", "write the vocabulary of Unigram as a list of tokens with scores");
  }
  UnigramOptions options;
  if (!read_rules(root, file.source, options)) {
    root.fail("pre_tokenizer", "ends with ByteLevel", "Unigram is read over characters");
  }
  options.unknown = read_unknown_id(model, file.tokens.size());
  const auto unknown = options.unknown ? file.tokens[static_cast<std::size_t>(*options.unknown)].token : std::string();
  options.parts = read_parts(root, file, roles, unknown);
  options.tokens = std::move(file.tokens);
  options.scores = std::move(file.scores);
  return make_unigram(options);
}

std::shared_ptr<const Tokenizer::Model> read_wordpiece(const JsonSection& root, TokenizerFile file,
                                                       const TokenizerRoles& roles) {
  const auto model = root.object("model");
  WordPieceOptions options;
  options.source = file.source;
  if (!file.scores.empty()) model.fail("vocab", "is a list", "write the vocabulary of WordPiece as an object of ids");
  options.unknown = model.find_text("unk_token").value_or(options.unknown);
  options.prefix = model.find_text("continuing_subword_prefix").value_or(options.prefix);
  if (model.has("max_input_chars_per_word")) options.max_word = model.integer("max_input_chars_per_word");
  options.lowercase = options.handle_chinese_chars = options.clean_text = false;
  if (root.has("normalizer")) {
    const auto normalizer = root.object("normalizer");
    if (normalizer.text("type") != "BertNormalizer") {
      normalizer.fail("type", fmt::format("is \"{}\"", normalizer.text("type")),
                      "WordPiece is read with BertNormalizer");
    }
    options.lowercase = normalizer.flag("lowercase", true);
    if (normalizer.has("strip_accents")) options.strip_accents = normalizer.flag("strip_accents", false);
    options.handle_chinese_chars = normalizer.flag("handle_chinese_chars", true);
    options.clean_text = normalizer.flag("clean_text", true);
  }
  const auto words = root.object("pre_tokenizer");
  if (words.text("type") != "BertPreTokenizer") {
    words.fail("type", fmt::format("is \"{}\"", words.text("type")), "WordPiece is read with BertPreTokenizer");
  }
  if (root.has("decoder")) {
    check_decoder(root.object("decoder"), "WordPiece");
    options.clean_decoded = root.object("decoder").flag("cleanup", true);
  }
  options.parts = read_parts(root, file, roles, options.unknown);
  options.vocabulary = std::move(file.tokens);
  return make_wordpiece(options);
}

// Old files do not say it.
std::string kind_of(const JsonSection& model, const TokenizerFile& file) {
  if (const auto type = model.find_text("type")) return *type;
  if (!file.merges.empty()) return "BPE";
  if (!file.scores.empty()) return "Unigram";
  return model.has("max_input_chars_per_word") ? "WordPiece" : "unknown";
}

}  // namespace

std::shared_ptr<const Tokenizer::Model> tokenizer_from_json(std::string_view text, const std::string& source,
                                                            const TokenizerRoles& roles) {
  auto file = parse_tokenizer_file(text, source);
  const auto rest = file.rest;
  const JsonSection root(*rest, source);
  if (!root.has("model")) {
    throw DataError(fmt::format("{}: there is no model in it, so it is not a tokenizer.json", source),
                    {.remedy = "give the tokenizer.json of a Hugging Face model, or its folder"});
  }
  const auto model = root.object("model");
  const auto kind = kind_of(model, file);
  if (kind != "BPE" && kind != "Unigram" && kind != "WordPiece") {
    model.fail("type", fmt::format("is \"{}\", which is not read", kind), std::string(kReadKinds));
  }
  if (file.tokens.empty()) model.fail("vocab", "has no tokens", "give the file of a trained tokenizer");
  if (kind == "BPE") return read_bpe(root, std::move(file), roles);
  if (kind == "Unigram") return read_unigram(root, std::move(file), roles);
  return read_wordpiece(root, std::move(file), roles);
}

}  // namespace orthant
