#include "orthant/text/sentencepiece_file.h"

#include <fmt/format.h>

#include <array>
#include <cmath>

#include "orthant/base/error.h"
#include "orthant/text/protobuf_reader.h"
#include "orthant/text/shown.h"
#include "orthant/text/token_decoder.h"
#include "orthant/text/unicode.h"
#include "orthant/text/vocabulary.h"

namespace orthant {
namespace {

using Piece = SentencePieceFile::Piece;
using PieceType = SentencePieceFile::Type;

[[noreturn]] void refuse_model(const SentencePieceFile& file, const std::string& what, std::string remedy) {
  throw DataError(fmt::format("{}: {}", file.source, what), {.remedy = std::move(remedy)});
}

constexpr const char* kExportAgain = "train or export the model once more";

Piece read_piece(std::string_view message, const SentencePieceFile& file) {
  Piece piece;
  ProtobufReader reader(message, file.source);
  while (reader.next()) {
    if (reader.number() == 1) piece.text = reader.bytes();
    if (reader.number() == 2) piece.score = reader.real();
    if (reader.number() == 3) {
      const auto type = reader.integer();
      if (type < 1 || type > 6) {
        refuse_model(file, fmt::format("piece {} is of type {}", file.pieces.size(), type),
                     "types are between 1 and 6");
      }
      piece.type = static_cast<PieceType>(type);
    }
  }
  return piece;
}

void read_trainer(std::string_view message, SentencePieceFile& file) {
  ProtobufReader reader(message, file.source);
  while (reader.next()) {
    switch (reader.number()) {
      case 3: {
        const auto kind = reader.integer();
        if (kind < 1 || kind > 4) refuse_model(file, fmt::format("model_type is {}", kind), "unigram and bpe are read");
        file.kind = static_cast<SentencePieceFile::Kind>(kind);
        break;
      }
      case 24:
        file.space_as_suffix = reader.flag();
        break;
      case 35:
        file.byte_fallback = reader.flag();
        break;
      case 44:
        file.unknown_text = reader.bytes();
        break;
      case 46:
        file.begin = reader.bytes();
        break;
      case 47:
        file.end = reader.bytes();
        break;
      case 48:
        file.pad = reader.bytes();
        break;
      default:
        break;
    }
  }
}

void read_normalizer_spec(std::string_view message, SentencePieceFile& file) {
  ProtobufReader reader(message, file.source);
  while (reader.next()) {
    switch (reader.number()) {
      case 2:
        file.charsmap = reader.bytes();
        break;
      case 3:
        file.add_prefix = reader.flag();
        break;
      case 4:
        file.remove_extra_spaces = reader.flag();
        break;
      case 5:
        file.escape_spaces = reader.flag();
        break;
      default:
        break;
    }
  }
}

void refuse_denormalizer(std::string_view message, const SentencePieceFile& file) {
  ProtobufReader reader(message, file.source);
  while (reader.next()) {
    if (reader.number() == 2 && !reader.bytes().empty()) {
      refuse_model(file, "denormalizer_spec has a table, which is not read", "train without a denormalizer");
    }
  }
}

void check_text(const SentencePieceFile& file, const Piece& piece, std::size_t id) {
  if (piece.text.empty()) refuse_model(file, fmt::format("piece {} is empty", id), kExportAgain);
  if (unicode::valid_length(piece.text, 0) != piece.text.size()) {
    refuse_model(file, fmt::format("piece {} is not UTF-8", id), kExportAgain);
  }
  if (!std::isfinite(piece.score)) {
    refuse_model(file, fmt::format("piece {} ({}) has the score {}", id, shown(piece.text), piece.score), kExportAgain);
  }
}

void check_pieces(const SentencePieceFile& file) {
  std::size_t num_unknown = 0;
  std::array<bool, 256> bytes = {};
  for (std::size_t id = 0; id < file.pieces.size(); ++id) {
    const auto& piece = file.pieces[id];
    check_text(file, piece, id);
    if (piece.type == PieceType::unknown) ++num_unknown;
    if (piece.type == PieceType::unused && file.kind == SentencePieceFile::Kind::bpe) {
      refuse_model(file, fmt::format("piece {} ({}) is unused, which is not read in BPE", id, shown(piece.text)),
                   "train the model without it");
    }
    if (piece.type != PieceType::byte) continue;
    const int byte = byte_of_token(piece.text);
    if (byte < 0 || !file.byte_fallback) {
      refuse_model(file,
                   fmt::format("piece {} ({}) is a byte, {}", id, shown(piece.text),
                               byte < 0 ? "but not <0x00> to <0xFF>" : "but byte_fallback is off"),
                   kExportAgain);
    }
    bytes[static_cast<std::size_t>(byte)] = true;
  }
  if (num_unknown != 1) refuse_model(file, fmt::format("{} pieces are the unknown one", num_unknown), kExportAgain);
  const auto num_bytes = std::count(bytes.begin(), bytes.end(), true);
  if (file.byte_fallback && num_bytes != 256) {
    refuse_model(file, fmt::format("byte_fallback is on, but {} of 256 bytes have a piece", num_bytes), kExportAgain);
  }
}

}  // namespace

std::int32_t SentencePieceFile::unknown_id() const {
  std::int32_t id = 0;
  while (pieces[static_cast<std::size_t>(id)].type != Type::unknown) ++id;
  return id;
}

SentencePieceFile parse_sentencepiece(std::string_view bytes, const std::string& source) {
  SentencePieceFile file;
  file.source = source;
  bool has_trainer = false;
  bool has_normalizer = false;
  ProtobufReader reader(bytes, source);
  while (reader.next()) {
    switch (reader.number()) {
      case 1:
        if (static_cast<std::int64_t>(file.pieces.size()) > Vocabulary::kLargestId) {
          refuse_model(file, fmt::format("more than {} pieces", file.pieces.size()), "use a smaller vocabulary");
        }
        file.pieces.push_back(read_piece(reader.bytes(), file));
        break;
      case 2:
        has_trainer = true;
        read_trainer(reader.bytes(), file);
        break;
      case 3:
        has_normalizer = true;
        read_normalizer_spec(reader.bytes(), file);
        break;
      case 5:
        refuse_denormalizer(reader.bytes(), file);
        break;
      default:
        break;
    }
  }
  if (file.pieces.empty()) refuse_model(file, "this is not a SentencePiece model: it has no pieces", kExportAgain);
  if (file.kind == SentencePieceFile::Kind::word || file.kind == SentencePieceFile::Kind::character) {
    refuse_model(file,
                 fmt::format("model_type is {}, which is not read",
                             file.kind == SentencePieceFile::Kind::word ? "word" : "char"),
                 "unigram and bpe are read");
  }
  check_pieces(file);
  if (!has_trainer || !has_normalizer) {  // they follow the pieces
    refuse_model(file, fmt::format("there is no {}", has_trainer ? "normalizer_spec" : "trainer_spec"),
                 "the file may be cut off: copy it again");
  }
  return file;
}

}  // namespace orthant
