#include "orthant/text/word_model.h"

#include <fmt/format.h>

#include "orthant/text/space_mark.h"

namespace orthant {

WordModel::WordModel(const WordModelOptions& options)
    : Model(Vocabulary(options.tokens, options.source)),
      byte_fallback_(options.byte_fallback),
      bytes_(options.byte_fallback ? ByteTokens(vocabulary()) : ByteTokens()),
      normalizer_(options.normalizer),
      words_(options.words),
      decoder_(options.decoder) {}

std::string WordModel::describe_rules(const WordModelOptions& options) {
  return fmt::format("{}\n{}\n{}", options.normalizer.describe(), options.words.describe(), options.decoder.describe());
}

bool WordModel::add_bytes(std::string_view text, std::vector<std::int32_t>& ids) const {
  return byte_fallback_ && bytes_.add(text, ids);
}

std::string_view WordModel::normalize(std::string_view piece, std::string& buffer) const {
  return normalizer_.apply_replacing(piece, buffer);
}

void WordModel::encode_words(std::string_view piece, Place place, std::vector<std::int32_t>& ids) const {
  const WordCachePool::Borrowed cache(caches_);
  const auto make = [this](std::string_view word, std::vector<std::int32_t>& made) { encode_word(word, made); };
  const auto add = [&](std::string_view word) { cache.ids_of(word, ids, make); };
  words_.split(piece, place, [&](std::string_view word) {
    if (words_at_marks()) {
      for_each_marked_word(word, add);
    } else {
      add(word);
    }
  });
}

std::string WordModel::decode_known(std::span<const std::int32_t> ids) const {
  return decoder_.decode(tokens_of(ids));
}

}  // namespace orthant
