// Tokens to text by the decoder of a tokenizer.json: its steps, each over the list of tokens that the one before it
// left. The result is the tokens one after the other; without any step, with a space between them.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace orthant {

// Immutable, safe from several threads.
class TokenDecoder {
 public:
  using Tokens = std::vector<std::string>;
  struct Step {
    std::function<void(Tokens& tokens)> apply;
    std::string description;  // for fingerprints: equal for equal steps
  };

  TokenDecoder() = default;
  explicit TokenDecoder(std::vector<Step> steps) : steps_(std::move(steps)) {}

  std::string decode(Tokens tokens) const;
  std::string describe() const;

 private:
  std::vector<Step> steps_;
};

// Every `space` becomes a space; those of the first token are left out when `prefixed`.
TokenDecoder::Step metaspace_decoder(std::string space, bool prefixed);
// Runs of <0x41> become the text of their bytes, or U+FFFD each when that is not UTF-8.
TokenDecoder::Step byte_fallback_decoder();
// All tokens become one.
TokenDecoder::Step fuse_decoder();
// Up to `begin` times `character` goes from each token's begin, up to `end` times from its end.
TokenDecoder::Step strip_decoder(std::string character, std::size_t begin, std::size_t end);

// The byte of "<0x41>"; -1 for other tokens.
int byte_of_token(std::string_view token);
// "<0x41>" of the byte.
std::string token_of_byte(unsigned char byte);

}  // namespace orthant
