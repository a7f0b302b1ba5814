#include "orthant/data/hash_text.h"

#include <fmt/format.h>

#include <charconv>
#include <system_error>

namespace orthant {

std::uint64_t read_hash(JsonReader& reader, const char* key) {
  const auto text = reader.require<std::string>(key);
  std::uint64_t hash = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), hash, 16);
  if (error != std::errc() || end != text.data() + text.size() || text.size() != 16) {
    reader.fail(key, fmt::format("expected 16 hexadecimal digits, found \"{}\"", text));
  }
  return hash;
}

}  // namespace orthant
