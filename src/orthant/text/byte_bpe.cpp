#include "orthant/text/byte_bpe.h"

#include <fmt/format.h>

#include <array>
#include <mutex>

#include "orthant/base/error.h"
#include "orthant/files/xxhash.h"
#include "orthant/text/bpe_merges.h"
#include "orthant/text/byte_alphabet.h"
#include "orthant/text/word_cache.h"

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

std::int32_t id_of(const Vocabulary& tokens, std::string_view token, std::size_t merge, const std::string& source) {
  if (const auto id = tokens.find(token)) return *id;
  throw DataError(fmt::format("{}: merge {} needs the token \"{}\", which is not in the vocabulary", source, merge,
                              token.substr(0, 80)),
                  {.remedy = "take vocabulary and merges from the same model"});
}

BpeMerges merges_of(const ByteBpeOptions& options, const Vocabulary& tokens) {
  BpeMerges merges(options.merges.size());
  std::string joined;
  std::uint32_t rank = 0;
  for (const auto& [left, right] : options.merges) {
    joined.assign(left).append(right);
    const auto left_id = id_of(tokens, left, rank, options.source);
    const auto right_id = id_of(tokens, right, rank, options.source);
    merges.set(left_id, right_id, {rank, id_of(tokens, joined, rank, options.source)});
    ++rank;
  }
  return merges;
}

std::string settings_of(const ByteBpeOptions& options) {
  Xxh64 hash;
  const std::byte end{0};
  for (const auto& [left, right] : options.merges) {
    for (const auto& part : {std::string_view(left), std::string_view(right)}) {
      hash.update(std::as_bytes(std::span(part)));
      hash.update(std::span(&end, 1));
    }
  }
  return fmt::format("merges {} {:016x}\nignore_merges {}\nunknown {} {}\n{}\n{}", options.merges.size(), hash.digest(),
                     options.ignore_merges, options.fuse_unknown, options.unknown, options.normalizer.describe(),
                     options.words.describe());
}

class ByteBpe : public Tokenizer::Model {
 public:
  explicit ByteBpe(ByteBpeOptions options)
      : Model(Vocabulary(options.tokens, options.source)),
        bytes_(bytes_of_tokens(options.tokens, options.source)),
        merges_(merges_of(options, vocabulary())),
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
    caches_.reserve(kMaxCaches);
    start(options.parts, settings_of(options));
  }

  std::string kind() const override { return "BPE"; }

 protected:
  std::string_view normalize(std::string_view piece, std::string& buffer) const override {
    return normalizer_.apply(piece, buffer);
  }

  void encode_words(std::string_view piece, bool continues, std::vector<std::int32_t>& ids) const override {
    const Borrowed cache(*this);
    words_.split(piece, continues, [&](std::string_view word) {
      if (word.size() > WordCache::kMaxBytes) return encode_word(word, ids);
      const auto key = WordCache::key(word);
      if (cache->find(key, ids)) return;
      const auto from = ids.size();
      encode_word(word, ids);
      cache->put(key, std::span(ids).subspan(from));
    });
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
  // A cache for the time of one call; callers on other threads take others. They go back for later calls.
  class Borrowed {
   public:
    explicit Borrowed(const ByteBpe& owner) : owner_(owner) {
      {
        const std::lock_guard lock(owner_.mutex_);
        if (!owner_.caches_.empty()) {
          cache_ = std::move(owner_.caches_.back());
          owner_.caches_.pop_back();
        }
      }
      if (!cache_) cache_ = std::make_unique<WordCache>();
    }
    ~Borrowed() {
      const std::lock_guard lock(owner_.mutex_);
      if (owner_.caches_.size() < kMaxCaches) owner_.caches_.push_back(std::move(cache_));
    }
    Borrowed(const Borrowed&) = delete;
    Borrowed& operator=(const Borrowed&) = delete;
    WordCache* operator->() const { return cache_.get(); }

   private:
    const ByteBpe& owner_;
    std::unique_ptr<WordCache> cache_;
  };

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

  static constexpr std::size_t kMaxCaches = 64;

  Vocabulary bytes_;
  BpeMerges merges_;
  bool ignore_merges_;
  bool fuse_unknown_;
  TextNormalizer normalizer_;
  PreTokenizer words_;
  std::array<std::int32_t, 256> byte_ids_ = {};
  std::int32_t unknown_ = -1;

  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<WordCache>> caches_;
};

}  // namespace

std::shared_ptr<const Tokenizer::Model> make_byte_bpe(ByteBpeOptions options) {
  return std::make_shared<const ByteBpe>(std::move(options));
}

}  // namespace orthant
