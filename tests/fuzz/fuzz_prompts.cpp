// Files of prompts from any bytes: every line is a prompt, a bad line with its number, or empty.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <sstream>
#include <string>

#include "orthant/base/error.h"
#include "orthant/serve/prompt_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace orthant;
  std::istringstream file(std::string(reinterpret_cast<const char*>(data), size));
  try {
    const auto found = read_prompts(file, "p");
    if (found.prompts.empty() || found.prompts.size() != found.lines.size()) std::abort();
    const auto most = static_cast<std::int64_t>(std::count(data, data + size, '\n')) + 1;
    for (const auto line : found.lines) {
      if (line < 1 || line > most) std::abort();
    }
    for (const auto& bad : found.bad) {
      if (bad.line < 1 || bad.line > most || bad.error.empty()) std::abort();
    }
  } catch (const DataError&) {
  }
  return 0;
}
