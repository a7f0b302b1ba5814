#include "orthant/cuda/card_memory.h"

#include <charconv>
#include <sstream>

#include "orthant/base/error.h"
#include "orthant/cuda/shared_library.h"

namespace orthant::cuda {
namespace {

// As the library's header has it.
struct MemoryInfo {
  unsigned long long total = 0;
  unsigned long long free = 0;
  unsigned long long used = 0;
};

using Handle = void*;

struct Management {
  explicit Management(const std::vector<std::string>& libraries) : library(libraries) {
    library.find(init, "nvmlInit_v2");
    library.find(shutdown, "nvmlShutdown");
    library.find(by_index, "nvmlDeviceGetHandleByIndex_v2");
    library.find(by_name, "nvmlDeviceGetHandleByUUID");
    library.find(memory, "nvmlDeviceGetMemoryInfo");
  }

  SharedLibrary library;
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  int (*by_index)(unsigned, Handle*) = nullptr;
  int (*by_name)(const char*, Handle*) = nullptr;
  int (*memory)(Handle, MemoryInfo*) = nullptr;
};

std::optional<std::int64_t> ask(const Management& management, const std::string& card) {
  unsigned index = 0;
  const auto* end = card.data() + card.size();
  const auto [rest, error] = std::from_chars(card.data(), end, index);
  const bool numbered = error == std::errc() && rest == end;
  Handle handle = nullptr;
  MemoryInfo info;
  const int found = numbered ? management.by_index(index, &handle) : management.by_name(card.c_str(), &handle);
  if (found != 0 || management.memory(handle, &info) != 0) return std::nullopt;
  return static_cast<std::int64_t>(info.free);
}

}  // namespace

std::optional<std::int64_t> free_card_bytes(const std::string& card, const std::vector<std::string>& libraries) {
  try {
    const Management management(libraries);
    if (management.init() != 0) return std::nullopt;
    const auto bytes = ask(management, card);
    management.shutdown();
    return bytes;
  } catch (const ConfigError&) {
    return std::nullopt;  // a machine without the library tells nothing
  }
}

std::string visible_card(const std::string& visible_devices, int index) {
  std::istringstream names(visible_devices);
  std::string name;
  for (int i = 0; i <= index; ++i) {
    if (!std::getline(names, name, ',') || name.empty()) return std::to_string(index);
  }
  return name;
}

}  // namespace orthant::cuda
