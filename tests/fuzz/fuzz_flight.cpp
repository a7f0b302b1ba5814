// Flight recorder files of any bytes, as a rank leaves them that is killed or means harm: records whose events are in
// their order and name texts of the file, or a DataError.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "fuzz/scratch_run.h"
#include "orthant/base/error.h"
#include "orthant/trace/flight_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace orthant;
  static const fuzz::ScratchRun kRun;
  kRun.write("flight/rank-0.events", {reinterpret_cast<const char*>(data), size});
  try {
    const auto record = trace::read_flight_file(kRun.path("flight/rank-0.events"));
    std::uint64_t number = 0;
    for (const auto& event : record.events) {
      if (event.number <= number || event.text.size() > size || event.group_text.size() > size) std::abort();
      number = event.number;
    }
    if (record.events.size() > record.header.capacity || record.host().size() > sizeof record.header.host) std::abort();
  } catch (const DataError&) {
  }
  return 0;
}
