#include "orthant/train/memory_fit.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "orthant/base/human.h"
#include "orthant/shm/mapping.h"
#include "orthant/train/run_estimate.h"

namespace orthant {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;
// What a rank takes besides tensors. On the host: what its process writes of its own, since the program's pages are
// there already. On a card: its context and the kernels in it.
constexpr std::int64_t kProcessBytes = 16 * kMiB;
constexpr std::int64_t kContextBytes = 512 * kMiB;

}  // namespace

std::string this_host() {
  return shm::host_identity();
}

std::string RankPlace::to_text() const {
  return nlohmann::json{host, card, free_bytes.value_or(-1)}.dump(-1, ' ', false,
                                                                  nlohmann::json::error_handler_t::replace);
}

RankPlace RankPlace::from_text(const std::string& text, int rank) {
  const auto parts = nlohmann::json::parse(text);
  const auto free = parts.at(2).get<std::int64_t>();
  return {rank, parts.at(0).get<std::string>(), parts.at(1).get<std::string>(),
          free < 0 ? std::nullopt : std::optional(free)};
}

std::string MemoryNeed::text() const {
  const bool one = ranks.size() == 1;
  const auto where = card.empty() ? "this host" : "card " + card;
  // Many ranks are counted; the few that share a card are named.
  const auto who = one && card.empty() ? std::string("the rank")
                   : one               ? fmt::format("rank {}", ranks.front())
                   : card.empty()      ? fmt::format("the {} ranks", ranks.size())
                                       : fmt::format("the ranks {}", fmt::join(ranks, ", "));
  return fmt::format("{} of this run on {} need{} {}, and {} of memory are free {}", who, where, one ? "s" : "",
                     format_bytes(needed_bytes), format_bytes(free_bytes), card.empty() ? "here" : "there");
}

std::vector<MemoryNeed> memory_needs(const RunConfig& config, const std::vector<RankPlace>& places) {
  const auto plan = estimate_run(config, find_hardware("cpu"));  // memory is the same on any hardware
  std::map<std::pair<std::string, std::string>, MemoryNeed> by_place;
  for (const auto& place : places) {
    if (!place.free_bytes) continue;
    const auto& memory = plan.memory.at(static_cast<std::size_t>(config.mesh.coordinate(place.rank)[Axis::pp]));
    auto& need = by_place[{place.host, place.card}];
    need.free_bytes = need.ranks.empty() ? *place.free_bytes : std::min(need.free_bytes, *place.free_bytes);
    need.ranks.push_back(place.rank);
    need.host = place.host;
    need.card = place.card;
    need.needed_bytes += memory.total() - memory.reserve + (place.card.empty() ? kProcessBytes : kContextBytes);
  }
  std::vector<MemoryNeed> needs;
  for (auto& [place, need] : by_place) {
    std::ranges::sort(need.ranks);
    needs.push_back(std::move(need));
  }
  std::ranges::sort(needs, {}, [](const MemoryNeed& need) { return need.ranks.front(); });
  return needs;
}

std::optional<MemoryNeed> worst_shortage(const std::vector<MemoryNeed>& needs) {
  const auto worst = std::ranges::max_element(needs, {}, &MemoryNeed::missing_bytes);
  return worst == needs.end() || worst->fits() ? std::nullopt : std::optional(*worst);
}

}  // namespace orthant
