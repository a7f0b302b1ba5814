// Ids that another program made: a `.bin` of one id after the other, as nanoGPT and its kind write them, or JSON lines
// of ids, a document a line.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "orthant/data/token_store.h"

namespace orthant {

// Keys of the `data` section.
struct TokenFileOptions {
  std::string token_type = {};  // of a .bin: "uint16" or "uint32"
  std::string ids_column = {};  // key of the ids in JSON lines; a line may also be a bare list
};

bool is_token_bin(const std::string& path);

// Whether the first ids of a .bin look like ids of four bytes: of every second two bytes, the upper halves, none is
// beyond any vocabulary and most are 0, unlike the lower halves. DataError for a file that cannot be read.
bool looks_like_uint32(const std::string& path);

// Whether the files hold ids instead of text: a .bin among them, or ids_column is set. ConfigError for options that do
// not go with the files, and for a .bin beside other files.
bool hold_ids(const std::vector<std::string>& paths, const TokenFileOptions& options);

// `facts` are those of the tokenizer that made the ids; without a vocabulary size the largest id decides. A .bin is
// mapped into memory and is one document; JSON lines are read. DataError that names file and line for a size that is
// not a whole number of ids, for what is not a list of ids, for files without ids, and for ids that the tokenizer does
// not have.
NumberedDocuments open_token_files(const std::vector<std::string>& paths, const TokenFileOptions& options,
                                   const TokenizerFacts& facts);

}  // namespace orthant
