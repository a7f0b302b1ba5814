#include "orthant/train/context_parallel_config.h"

#include <fmt/format.h>

#include <string>
#include <vector>

#include "orthant/base/nearest.h"

namespace orthant {

ContextPolicy read_context_parallel(JsonReader& section) {
  const auto way = section.get<std::string>("context", "auto");
  if (way == "auto") return {};
  std::vector<std::string> words = {"auto"};
  for (const ContextWay known : {ContextWay::ring, ContextWay::all_to_all, ContextWay::gather}) {
    if (way == context_way_name(known)) return known;
    words.emplace_back(context_way_name(known));
  }
  section.fail("context", fmt::format("unknown way \"{}\"", way), did_you_mean(way, words));
}

}  // namespace orthant
