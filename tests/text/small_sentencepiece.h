// SentencePiece models made in memory, in protobuf's wire format.
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "orthant/text/sentencepiece_file.h"
#include "orthant/text/token_decoder.h"

namespace orthant {

class SmallMessage {
 public:
  SmallMessage& integer(std::uint32_t number, std::uint64_t value) {
    varint(number << 3);
    varint(value);
    return *this;
  }
  SmallMessage& bytes(std::uint32_t number, std::string_view value) {
    varint(number << 3 | 2);
    varint(value.size());
    text_ += value;
    return *this;
  }
  SmallMessage& real(std::uint32_t number, float value) {
    varint(number << 3 | 5);
    const auto bits = std::bit_cast<std::uint32_t>(value);
    for (int i = 0; i < 4; ++i) text_ += static_cast<char>(bits >> (8 * i) & 255);
    return *this;
  }
  const std::string& text() const { return text_; }

 private:
  void varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) text_ += static_cast<char>(value | 0x80);
    text_ += static_cast<char>(value);
  }
  std::string text_;
};

inline std::string piece_message(const std::string& text, float score = 0,
                                 SentencePieceFile::Type type = SentencePieceFile::Type::normal) {
  SmallMessage piece;
  piece.bytes(1, text).real(2, score);
  if (type != SentencePieceFile::Type::normal) piece.integer(3, static_cast<std::uint64_t>(type));
  return SmallMessage().bytes(1, piece.text()).text();
}

// <unk>, <s> and </s>, as most models begin.
inline std::string first_pieces() {
  using Type = SentencePieceFile::Type;
  return piece_message("<unk>", 0, Type::unknown) + piece_message("<s>", 0, Type::control) +
         piece_message("</s>", 0, Type::control);
}

// With an empty normalizer_spec behind it.
inline std::string trainer_message(SentencePieceFile::Kind kind, bool byte_fallback = false) {
  SmallMessage trainer;
  trainer.integer(3, static_cast<std::uint64_t>(kind));
  if (byte_fallback) trainer.integer(35, 1);
  return SmallMessage().bytes(2, trainer.text()).bytes(3, "").text();
}

inline std::string normalizer_message(const std::string& charsmap, bool add_prefix = true, bool remove_extra = true,
                                      bool escape = true) {
  SmallMessage normalizer;
  normalizer.bytes(2, charsmap).integer(3, add_prefix).integer(4, remove_extra).integer(5, escape);
  return SmallMessage().bytes(3, normalizer.text()).text();
}

}  // namespace orthant
