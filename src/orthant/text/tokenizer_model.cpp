#include "orthant/text/tokenizer_model.h"

#include <fmt/format.h>

#include <algorithm>

#include "orthant/base/error.h"
#include "orthant/files/xxhash.h"

namespace orthant {
namespace {

// Lengths are hashed with the texts, so that no two lists of texts run into each other.
class Fingerprint {
 public:
  void add(std::string_view text) {
    add(static_cast<std::int64_t>(text.size()));
    hash_.update(std::as_bytes(std::span(text)));
  }
  void add(std::int64_t value) {
    std::array<std::byte, 8> bytes;
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(value >> (8 * i) & 255);
    hash_.update(bytes);
  }
  void add(const std::vector<PostProcessor::Piece>& pieces) {
    add(static_cast<std::int64_t>(pieces.size()));
    for (const auto& piece : pieces) {
      add(static_cast<std::int64_t>(piece.source));
      add(std::int64_t{piece.id});
      add(std::int64_t{piece.type});
    }
  }
  std::uint64_t digest() const { return hash_.digest(); }

 private:
  Xxh64 hash_;
};

}  // namespace

void Tokenizer::Model::start(const TokenizerParts& parts, std::string_view settings) {
  added_ = AddedTokens(parts.added, [this](std::string_view content) {
    std::string buffer;
    return std::string(normalize(content, buffer));
  });
  post_ = parts.post;
  special_ = parts.special;

  Fingerprint hash;
  hash.add(kind());
  hash.add(settings);
  for (std::int64_t id = 0; id < vocabulary_.size(); ++id) hash.add(vocabulary_.token(id));
  auto added = added_.tokens();
  std::sort(added.begin(), added.end(), [](const auto& left, const auto& right) { return left.id < right.id; });
  for (const auto& token : added) {
    hash.add(token.content);
    hash.add(std::int64_t{token.id});
    hash.add(std::int64_t{token.special * 1 + token.single_word * 2 + token.lstrip * 4 + token.rstrip * 8 +
                          token.normalized * 16});
  }
  hash.add(post_.single);
  hash.add(post_.pair);
  fingerprint_ = hash.digest();
}

std::vector<std::int32_t> Tokenizer::Model::encode_text(std::string_view text) const {
  std::vector<std::int32_t> ids;
  ids.reserve(text.size() / 3);
  std::string buffer;
  added_.split_raw(text, [&](std::string_view piece, std::int32_t token) {
    if (token >= 0) return ids.push_back(token);
    added_.split_normalized(normalize(piece, buffer), [&](std::string_view inner, std::int32_t inner_token) {
      if (inner_token >= 0) return ids.push_back(inner_token);
      encode_words(inner, ids);
    });
  });
  return ids;
}

void Tokenizer::Model::encode(std::string_view text, const EncodeOptions& options,
                              std::vector<std::int32_t>& ids) const {
  post_.apply(encode_text(text), options, ids);
}

Encoding Tokenizer::Model::encode_pair(std::string_view first, std::string_view second,
                                       const EncodeOptions& options) const {
  return post_.apply_pair(encode_text(first), encode_text(second), options);
}

std::string Tokenizer::Model::decode(std::span<const std::int32_t> ids, bool skip_special) const {
  std::vector<std::int32_t> known;
  known.reserve(ids.size());
  for (const auto id : ids) {
    const auto* token = added_.find(std::int64_t{id});
    if (!token && !vocabulary_.has(id)) {
      throw DataError(fmt::format("id {} is not in the vocabulary", id),
                      {.remedy = fmt::format("ids of this tokenizer are between 0 and {}", vocab_size() - 1)});
    }
    if (!(token && token->special && skip_special)) known.push_back(id);
  }
  return decode_known(known);
}

std::int64_t Tokenizer::Model::vocab_size() const {
  auto size = vocabulary_.size();
  for (const auto& token : added_.tokens()) size = std::max(size, std::int64_t{token.id} + 1);
  return size;
}

std::optional<std::int32_t> Tokenizer::Model::id(std::string_view token) const {
  if (const auto* added = added_.find(token)) return added->id;
  return vocabulary_.find(token);
}

}  // namespace orthant
