#include "orthant/text/tokenizer_model.h"

#include <fmt/format.h>

#include <algorithm>

#include "orthant/base/error.h"
#include "orthant/files/xxhash.h"
#include "orthant/text/safe_cut.h"

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
  void add(const std::vector<PostProcessor::Part>& parts) {
    add(static_cast<std::int64_t>(parts.size()));
    for (const auto& part : parts) {
      add(static_cast<std::int64_t>(part.source));
      add(std::int64_t{part.id});
      add(std::int64_t{part.type});
    }
  }
  std::uint64_t digest() const { return hash_.digest(); }

 private:
  Xxh64 hash_;
};

// Whether a token may be found across a safe cut, or what it takes along depends on what lies behind one.
bool reaches_over_cut(const AddedToken& token) {
  const auto may_touch = [&](char letter) {
    return may_touch_cut(letter) || (token.normalized && static_cast<unsigned char>(letter) >= 0x80);
  };
  return token.content.find('\n') != std::string::npos || may_touch(token.content.back()) ||
         (token.lstrip && may_touch(token.content.front()));
}

}  // namespace

void Tokenizer::Model::start(const TokenizerParts& parts, std::string_view settings) {
  added_ = AddedTokens(parts.added, [this](std::string_view content) {
    std::string buffer;
    return std::string(normalize(content, buffer));
  });
  post_ = parts.post;
  special_ = parts.special;
  document_begin_ = post_.begin();
  if (parts.add_begin && document_begin_.empty() && special_.begin) document_begin_ = {*special_.begin};

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
  for (const auto& role : {special_.pad, special_.unknown, special_.begin, special_.end, special_.mask}) {
    hash.add(std::int64_t{role.value_or(-1)});
  }
  fingerprint_ = hash.digest();
}

std::vector<std::int32_t> Tokenizer::Model::encode_text(std::string_view text, bool continues) const {
  std::vector<std::int32_t> ids;
  ids.reserve(text.size() / 3);
  std::string buffer;
  auto place = continues ? Place::continued : Place::begin;
  added_.split_raw(text, [&](std::string_view piece, std::int32_t token) {
    if (token >= 0) {
      ids.push_back(token);
    } else {
      added_.split_normalized(normalize(piece, buffer), [&](std::string_view inner, std::int32_t inner_token) {
        if (inner_token >= 0) {
          ids.push_back(inner_token);
        } else {
          encode_words(inner, place, ids);
        }
        place = Place::inside;
      });
    }
    place = Place::inside;
  });
  return ids;
}

bool Tokenizer::Model::may_be_cut() const {
  return words_may_be_cut() && std::ranges::none_of(added_.tokens(), reaches_over_cut);
}

void Tokenizer::Model::encode(std::string_view text, const EncodeOptions& options,
                              std::vector<std::int32_t>& ids) const {
  post_.apply(encode_text(text, options.continues), options, ids);
}

Encoding Tokenizer::Model::encode_pair(std::string_view first, std::string_view second,
                                       const EncodeOptions& options) const {
  return post_.apply_pair(encode_text(first, options.continues), encode_text(second, false), options);
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

std::vector<std::string> Tokenizer::Model::tokens_of(std::span<const std::int32_t> ids) const {
  std::vector<std::string> tokens;
  tokens.reserve(ids.size());
  for (const auto id : ids) {
    const auto* token = added_.find(std::int64_t{id});
    tokens.emplace_back(token ? std::string_view(token->content) : vocabulary_.token(id));
  }
  return tokens;
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
