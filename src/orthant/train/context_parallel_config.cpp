#include "orthant/train/context_parallel_config.h"

#include "orthant/base/error.h"

namespace orthant {

ContextPolicy read_context_parallel(JsonReader& section) {
  const auto way = section.get<std::string>("context", "auto");
  if (way == "auto") return {};
  try {
    return parse_context_way(way);
  } catch (const ConfigError& error) {
    section.fail("context", error.message(), error.remedy());
  }
}

}  // namespace orthant
