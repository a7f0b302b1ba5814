// Text files to a folder of token ids on disk: `orthant data prepare-text`. A preparation that was killed goes on where
// its last flush was when it is called again in the same way; the folder's bytes are those of one that was never
// stopped.
#pragma once

#include <cstdint>
#include <string>

#include "orthant/data/tokenize_text.h"

namespace orthant {

struct PrepareOptions {
  std::string folder;                                // made when missing
  bool force = false;                                // start anew whatever is there
  std::int64_t flush_bytes = std::int64_t{8} << 20;  // of input between two points to go on from
  TextProgressCall progress = {};                    // after every chunk
};

struct PreparedText {
  TokenIndex index;
  bool was_complete = false;       // nothing was to be done
  std::int64_t resumed_bytes = 0;  // of the input, done by earlier calls
};

// ConfigError for no files, an unknown separator, no end token to add, a folder made of other files or with another
// tokenizer (all differences are named); DataError for input without a token.
PreparedText prepare_text(const TextEncoder& encoder, const TextInput& input, const PrepareOptions& options);

}  // namespace orthant
