// Text files to token ids in memory, at the start of a run, and what that shares with the preparation of a folder.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "orthant/data/document_reader.h"
#include "orthant/data/token_index.h"
#include "orthant/data/token_store.h"

namespace orthant {

class Tokenizer;
class TokenSink;

// A tokenizer as this layer needs it: adds the ids of a text, without special tokens, to the end of a list. A text may
// continue the one before, see TextChunk.
struct TextEncoder {
  std::function<void(std::string_view text, bool continues, std::vector<std::int32_t>& ids)> encode;
  bool may_cut = true;  // see Note [Safe cuts]
  TokenizerFacts facts;
  std::vector<std::int32_t> begin = {};  // what Tokenizer::document_begin() says
};
TextEncoder text_encoder(const Tokenizer& tokenizer, const std::string& path);

struct TextInput {
  std::vector<std::string> files;
  DocumentOptions documents = {};
  bool end_token = true;                 // the tokenizer's end token follows every document
  std::optional<bool> begin_token = {};  // its begin token precedes every document; nothing: where the tokenizer has it
};

struct TextProgress {
  std::int64_t bytes = 0;  // of the input, done
  std::int64_t total_bytes = 0;
  std::int64_t first_byte = 0;  // where this call began
  std::int64_t documents = 0;
  std::int64_t tokens = 0;
};
using TextProgressCall = std::function<void(const TextProgress&)>;

// The ids of the files, in memory. ConfigError for no files, an unknown separator, no begin or end token to add;
// DataError for input without a token. `progress` is called after every chunk of text.
std::shared_ptr<const TokenStore> tokenize_text(const TextEncoder& encoder, const TextInput& input,
                                                const TextProgressCall& progress = {});

// The same for text whose documents are looked at one by one. DataError when none of them has a token.
NumberedDocuments tokenize_documents(const TextEncoder& encoder, const TextInput& input,
                                     const TextProgressCall& progress = {});

// What `data.path` names: one prepared folder, or text files, which need a tokenizer (file or folder) and are tokenized
// now, with an end token after every document where the tokenizer has one. A tokenizer given with a prepared folder
// must be the one that made it. ConfigError otherwise.
NumberedDocuments open_text(const std::vector<std::string>& paths, const std::string& tokenizer,
                            const DocumentOptions& documents = {}, std::optional<bool> begin_token = {});

// The index of files that are yet to be tokenized: all but their hashes. Errors as tokenize_text().
TokenIndex empty_index(const TextEncoder& encoder, const TextInput& input);

// Tokenizes from index.next to the end of the last of the index's files; the index always counts what the sink holds.
// `last_end` is where the last document it counts ends. DataError when all is done and there is not a single token.
void tokenize_from(TokenIndex& index, const TextEncoder& encoder, const DocumentOptions& documents, TokenSink& sink,
                   std::int64_t last_end, const TextProgressCall& after_chunk);

}  // namespace orthant
