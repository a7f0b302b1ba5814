#include "orthant/text/byte_bpe.h"

#include <fmt/format.h>

#include <array>

#include "orthant/base/error.h"
#include "orthant/text/bpe_merges.h"
#include "orthant/text/byte_alphabet.h"
#include "orthant/text/word_cache_pool.h"

namespace orthant {
namespace {

// The tokens as the bytes they stand for. Tokens that are not spelled in the alphabet stay out: no merge makes them.
Vocabulary bytes_of_tokens(const std::vector<Vocabulary::Entry>& tokens, const std::string& source) {
  std::vector<Vocabulary::Entry> entries;
  entries.reserve(tokens.size());
  for (const auto& [token, id] : tokens) {
    if (auto bytes = bytes_of_spelling(token)) entries.push_back({std::move(*bytes), id});
  }
  return {entries, source};
}

std::string settings_of(const ByteBpeOptions& options) {
  return fmt::format("{}\nignore_merges {}\nunknown {} {}\n{}\n{}", describe(options.merges), options.ignore_merges,
                     options.fuse_unknown, options.unknown, options.normalizer.describe(), options.words.describe());
}

class ByteBpe : public Tokenizer::Model {
 public:
  explicit ByteBpe(ByteBpeOptions options)
      : Model(Vocabulary(options.tokens, options.source)),
        bytes_(bytes_of_tokens(options.tokens, options.source)),
        merges_(merges_of(options.merges, vocabulary(), options.source)),
        ignore_merges_(options.ignore_merges),
        fuse_unknown_(options.fuse_unknown),
        normalizer_(options.normalizer),
        words_(options.words) {
    for (int byte = 0; byte < 256; ++byte) {
      const char letter = static_cast<char>(byte);
      byte_ids_[static_cast<std::size_t>(byte)] = bytes_.find({&letter, 1}).value_or(-1);
    }
    if (!options.unknown.empty()) {
      const auto id = vocabulary().find(options.unknown);
      if (!id) {
        throw DataError(fmt::format("{}: unk_token \"{}\" is not in the vocabulary", options.source, options.unknown),
                        {.remedy = "add it to the vocabulary"});
      }
      unknown_ = *id;
    }
    start(options.parts, settings_of(options));
  }

  std::string kind() const override { return "BPE"; }

 protected:
  std::string_view normalize(std::string_view piece, std::string& buffer) const override {
    return normalizer_.apply(piece, buffer);
  }

  void encode_words(std::string_view piece, Place place, std::vector<std::int32_t>& ids) const override {
    const WordCachePool::Borrowed cache(caches_);
    const auto make = [this](std::string_view word, std::vector<std::int32_t>& made) { encode_word(word, made); };
    words_.split(piece, place, [&](std::string_view word) { cache.ids_of(word, ids, make); });
  }

  bool words_may_be_cut() const override { return words_.is_known(); }

  std::string decode_known(std::span<const std::int32_t> ids) const override {
    std::string text;
    for (const auto id : ids) {
      if (const auto* token = added().find(std::int64_t{id})) {
        text += token->content;
      } else {
        text += bytes_.has(id) ? bytes_.token(id) : vocabulary().token(id);
      }
    }
    return text;
  }

 private:
  void encode_word(std::string_view word, std::vector<std::int32_t>& ids) const {
    if (ignore_merges_) {
      if (const auto id = bytes_.find(word)) return ids.push_back(*id);
    }
    const auto from = ids.size();
    bool after_unknown = false;
    for (const char letter : word) {
      const auto byte = static_cast<unsigned char>(letter);
      auto id = byte_ids_[byte];
      const bool is_unknown = id < 0;
      if (is_unknown) id = unknown_id(byte);
      if (!(is_unknown && after_unknown && fuse_unknown_)) ids.push_back(id);
      after_unknown = is_unknown;
    }
    merges_.apply(ids, from);
  }

  std::int32_t unknown_id(unsigned char byte) const {
    if (unknown_ >= 0) return unknown_;
    throw DataError(fmt::format("the vocabulary has no token for the byte 0x{:02x}, and no unk_token", byte),
                    {.remedy = "use a vocabulary with all 256 bytes, or set unk_token"});
  }

  Vocabulary bytes_;
  BpeMerges merges_;
  bool ignore_merges_;
  bool fuse_unknown_;
  TextNormalizer normalizer_;
  PreTokenizer words_;
  std::array<std::int32_t, 256> byte_ids_ = {};
  std::int32_t unknown_ = -1;
  mutable WordCachePool caches_;
};

}  // namespace

std::shared_ptr<const Tokenizer::Model> make_byte_bpe(ByteBpeOptions options) {
  return std::make_shared<const ByteBpe>(std::move(options));
}

}  // namespace orthant
