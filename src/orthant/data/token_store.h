// Token ids one after the other, and where documents end: memory-mapped from a folder that prepare-text made, or held
// in memory after text files were tokenized. What a TextDataset reads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "orthant/data/token_index.h"
#include "orthant/files/file_map.h"

namespace orthant {

// Immutable; all methods are Local and safe from several threads.
class TokenStore {
 public:
  // A complete folder, sizes and ends of documents checked against its index. DataError otherwise.
  static std::shared_ptr<const TokenStore> open(const std::filesystem::path& folder);
  // `index` says what the ids are; its counts are filled in from them. `ends[d]` is the token after document d.
  static std::shared_ptr<const TokenStore> in_memory(std::string name, TokenIndex index, std::vector<std::uint32_t> ids,
                                                     std::vector<std::uint64_t> ends);
  // A file of ids one after the other, `token_bytes` (2 or 4, little-endian) each, as one document; its largest id is
  // looked for. DataError for a size that is not a whole number of ids, or none.
  static std::shared_ptr<TokenStore> map_ids(const std::string& path, std::int64_t token_bytes);
  // The same ids, with what is known of their tokenizer.
  static std::shared_ptr<const TokenStore> with_tokenizer(std::shared_ptr<TokenStore> store, TokenizerFacts facts);
  ~TokenStore();
  TokenStore(const TokenStore&) = delete;
  TokenStore& operator=(const TokenStore&) = delete;

  const std::string& name() const { return name_; }  // the folder or files, for messages
  const TokenIndex& index() const { return index_; }
  std::int64_t size() const { return index_.tokens; }
  std::int64_t documents() const { return index_.documents; }

  // Token number of a document's first token; of the end of the last one for document documents().
  std::int64_t document_begin(std::int64_t document) const;

  // Copies tokens [first, first + out.size()). DataError for an id above the index's largest: the file is damaged.
  void read(std::int64_t first, std::span<std::int64_t> out) const;

 private:
  TokenStore(std::string name, TokenIndex index);

  std::string name_;
  TokenIndex index_;
  std::unique_ptr<const FileMap> mapped_tokens_, mapped_documents_;
  std::vector<std::uint32_t> ids_;
  std::vector<std::uint64_t> own_ends_;
  const std::byte* tokens_ = nullptr;  // index_.token_bytes each
  std::span<const std::uint64_t> ends_;
};

// The documents of an input that have tokens, and where they stand among all of it.
struct NumberedDocuments {
  std::shared_ptr<const TokenStore> tokens;
  std::vector<std::int64_t> numbers =
      {};                      // of the store's documents, empty ones of the input counted; none: 0, 1, 2, …
  std::int64_t documents = 0;  // of the input
};

struct DocumentLengths {
  std::int64_t shortest = 0, median = 0, longest = 0;  // tokens
  double mean = 0;
};

// What `orthant data inspect` shows of a prepared folder.
struct TokenFolderFacts {
  TokenIndex index;
  DocumentLengths lengths;  // zero while the folder is incomplete
  std::int64_t bytes = 0;   // of tokens.bin and documents.bin
};

// Sizes, hashes, order of the document ends and the largest id against index.json: DataError names the file and the
// numbers. Of an incomplete folder only the sizes are checked.
TokenFolderFacts inspect_token_folder(const std::filesystem::path& folder);

}  // namespace orthant
