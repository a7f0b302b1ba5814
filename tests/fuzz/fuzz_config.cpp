// A configuration: any bytes as JSON, and what is JSON as the description of a model. Only the library's own errors may
// come out.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "orthant/base/error.h"
#include "orthant/base/json_document.h"
#include "orthant/base/json_reader.h"
#include "orthant/models/model_config.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace orthant;
  try {
    const JsonDocument document = JsonDocument::parse({reinterpret_cast<const char*>(data), size});
    JsonReader reader(document);
    (void)read_model(reader);
    reader.finish();
  } catch (const ConfigError&) {
  } catch (const DataError&) {
  }
  return 0;
}
