// SentencePiece's .model files: any bytes as a model, which encodes its own first bytes when it is accepted; and any
// bytes as a table of its normalizer. Ids must lie in the vocabulary; only the library's own errors may come out.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "orthant/base/error.h"
#include "orthant/text/charsmap.h"
#include "orthant/text/sentencepiece.h"

namespace {

using namespace orthant;

void load_and_use(std::string_view bytes) {
  const Tokenizer tokenizer(make_sentencepiece(parse_sentencepiece(bytes, "memory")));
  for (const auto text : {bytes.substr(0, 300), std::string_view("  ab  \u00e9\xff<m>a ")}) {
    const auto ids = tokenizer.encode(text);
    for (const auto id : ids) {
      if (id < 0 || id >= tokenizer.vocab_size()) std::abort();
    }
    (void)tokenizer.decode(ids);
  }
}

void walk_table(std::string_view bytes) {
  const Charsmap map(bytes, "memory");
  for (std::size_t at = 0; at < std::min<std::size_t>(bytes.size(), 300); ++at) {
    const auto text = bytes.substr(at, 40);
    const auto match = map.longest(text);
    if (match.length > text.size() || match.result.size() > bytes.size()) std::abort();
    if (map.shortest(text).length > match.length) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  try {
    load_and_use(bytes);
  } catch (const DataError&) {
  } catch (const ConfigError&) {
  }
  try {
    walk_table(bytes);
  } catch (const DataError&) {
  }
  return 0;
}
