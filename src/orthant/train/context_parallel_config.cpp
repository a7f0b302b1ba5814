#include "orthant/train/context_parallel_config.h"

#include <fmt/format.h>

#include <string>

#include "orthant/base/nearest.h"

namespace orthant {

ContextPolicy read_context_parallel(JsonReader& section) {
  const auto way = section.get<std::string>("context", "auto");
  if (const auto policy = parse_context(way)) return *policy;
  section.fail("context", fmt::format("unknown way \"{}\"", way), did_you_mean(way, context_words()));
}

}  // namespace orthant
