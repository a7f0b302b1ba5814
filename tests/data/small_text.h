// Tokenizers of a few lines for tests on corpora: ids that can be checked by eye.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "orthant/data/tokenize_text.h"

namespace orthant::test {

// Every byte is its own id; 256 ends a document.
inline TextEncoder byte_encoder(std::int64_t vocab_size = 257) {
  TextEncoder encoder;
  encoder.encode = [](std::string_view text, bool, std::vector<std::int32_t>& ids) {
    for (const char letter : text) ids.push_back(static_cast<unsigned char>(letter));
  };
  encoder.facts = {.path = "bytes", .kind = "bytes", .fingerprint = 0xb7e5, .vocab_size = vocab_size, .end = 256};
  return encoder;
}

inline std::string write_text(const std::filesystem::path& path, std::string_view text) {
  std::ofstream(path, std::ios::binary) << text;
  return path.string();
}

// The whole store, ends of documents included, as text: "ab|c|".
inline std::string text_of(const TokenStore& store) {
  std::vector<std::int64_t> ids(static_cast<std::size_t>(store.size()));
  store.read(0, ids);
  std::string text;
  for (const auto id : ids) text += id == 256 ? '|' : static_cast<char>(id);
  return text;
}

}  // namespace orthant::test
