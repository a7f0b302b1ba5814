// index.json of a prepared token folder: what `orthant data prepare-text` made of which files, and how far it is. The
// ids lie in tokens.bin (uint16 or uint32, little-endian), the number of the token after each document's last one in
// documents.bin (uint64). Nothing in it depends on when or in how many attempts the folder was made.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace orthant {

inline constexpr const char* kTokenIndexFile = "index.json";
inline constexpr const char* kTokensFile = "tokens.bin";
inline constexpr const char* kDocumentsFile = "documents.bin";

// The tokenizer that made the ids, as far as training needs it.
struct TokenizerFacts {
  std::string path;
  std::string kind;
  std::uint64_t fingerprint = 0;
  std::int64_t vocab_size = 0;
  std::optional<std::int32_t> pad = {}, unknown = {}, begin = {}, end = {}, mask = {};

  // Those of the above that are there, ascending and each once.
  std::vector<std::int64_t> special_ids() const;
};

struct TextFile {
  std::string path;
  std::int64_t bytes = 0;
  std::uint64_t xxh64 = 0;
};

// Where the next chunk of text begins.
struct TextPosition {
  std::int64_t file = 0;      // number in `sources`
  std::int64_t position = 0;  // in it, see TextChunk::next
  std::int64_t bytes = 0;     // of all files before it, about
  bool inside_document = false;

  friend bool operator==(const TextPosition&, const TextPosition&) = default;
};

struct TokenIndex {
  bool complete = false;
  std::int64_t token_bytes = 2;  // 2 or 4
  std::int64_t tokens = 0;
  std::int64_t documents = 0;
  std::int64_t empty_documents = 0;  // left out
  std::int64_t max_id = -1;
  std::uint64_t tokens_xxh64 = 0;  // of the files, once complete
  std::uint64_t documents_xxh64 = 0;
  std::string separator = "file";
  std::string text_column = "text";
  bool end_token = true;                        // tokenizer.end follows every document
  std::vector<std::int32_t> begin_tokens = {};  // that every document begins with
  TokenizerFacts tokenizer;
  std::vector<TextFile> sources;
  TextPosition next;  // of an incomplete folder: what is not tokenized yet
};

bool holds_token_index(const std::filesystem::path& folder);

// DataError for a file that is missing, damaged, of another version, or whose numbers contradict each other.
TokenIndex read_token_index(const std::filesystem::path& folder);

// Atomic: the old or the new one, whatever dies when.
void write_token_index(const std::filesystem::path& folder, const TokenIndex& index);

}  // namespace orthant
