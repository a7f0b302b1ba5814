// A checkpoint's manifest from any bytes. One that is accepted must come back equal from its own text.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "orthant/base/error.h"
#include "orthant/layout/manifest.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace orthant;
  try {
    const Manifest manifest = parse_manifest({reinterpret_cast<const char*>(data), size}, "manifest.json");
    if (parse_manifest(to_json(manifest), "its own text") != manifest) std::abort();
  } catch (const DataError&) {
  }
  return 0;
}
