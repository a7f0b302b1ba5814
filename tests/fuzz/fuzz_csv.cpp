// Tables from any bytes. The first byte chooses format, policy and size of chunks; what is read, or the error, must not
// depend on the chunks, and every number that is accepted is finite.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "orthant/base/error.h"
#include "orthant/text/table_reader.h"

namespace {

using namespace orthant;

// All that a reader tells of a text, as one text.
std::string told(const std::string& text, TableFormat format, BadRows bad_rows, std::size_t chunk_bytes) {
  std::string all;
  try {
    auto reader =
        TableReader::of_text(text, "t", format, {.columns = {"a", "b", "a"}, .bad_rows = bad_rows}, chunk_bytes);
    while (reader.next()) {
      for (std::size_t i = 0; i < reader.fields().size(); ++i) {
        const TableField& field = reader.fields()[i];
        if (field.missing != field.text.empty()) std::abort();
        all += reader.place(i) + (field.missing ? "-" : "=") + std::string(field.text) + "\n";
      }
      const auto number = parse_number(reader.fields()[0].text);
      if (number && !std::isfinite(*number)) std::abort();
    }
    all += std::to_string(reader.rows()) + " rows, " + std::to_string(reader.skipped().count) + " skipped\n";
    for (const auto& reason : reader.skipped().reasons) all += reason + "\n";
  } catch (const ConfigError& error) {
    all += error.message() + error.remedy();
  } catch (const DataError& error) {
    all += error.message() + error.remedy();
  }
  return all;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const auto format = static_cast<TableFormat>(data[0] & 3);
  const BadRows bad_rows = (data[0] & 4) != 0 ? BadRows::kSkip : BadRows::kStop;
  const std::size_t chunk_bytes = 1 + (data[0] >> 3);
  const std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (told(text, format, bad_rows, 1 << 20) != told(text, format, bad_rows, chunk_bytes)) std::abort();
  return 0;
}
