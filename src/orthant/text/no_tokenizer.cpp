// Stands in for the tokenizers in a build without PCRE2 or utf8proc.
#include "orthant/base/error.h"
#include "orthant/text/tokenizer.h"

namespace orthant {

class Tokenizer::Model {};

namespace {

[[noreturn]] void refuse() {
  throw ConfigError("this build has no tokenizers",
                    {.remedy = "install libpcre2-dev and libutf8proc-dev, then build again"});
}

}  // namespace

bool Tokenizer::available() {
  return false;
}

Tokenizer Tokenizer::load(const std::filesystem::path&) {
  refuse();
}

std::vector<std::int32_t> Tokenizer::encode(std::string_view, const EncodeOptions&) const {
  refuse();
}

void Tokenizer::encode_into(std::string_view, const EncodeOptions&, std::vector<std::int32_t>&) const {
  refuse();
}

Encoding Tokenizer::encode_pair(std::string_view, std::string_view, const EncodeOptions&) const {
  refuse();
}

bool Tokenizer::may_be_cut() const {
  refuse();
}

std::string Tokenizer::decode(std::span<const std::int32_t>, bool) const {
  refuse();
}

std::int64_t Tokenizer::vocab_size() const {
  refuse();
}

std::optional<std::int32_t> Tokenizer::id(std::string_view) const {
  refuse();
}

const SpecialTokens& Tokenizer::special() const {
  refuse();
}

const std::vector<std::int32_t>& Tokenizer::document_begin() const {
  refuse();
}

std::string Tokenizer::kind() const {
  refuse();
}

std::uint64_t Tokenizer::fingerprint() const {
  refuse();
}

}  // namespace orthant
