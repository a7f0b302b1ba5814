#include "orthant/cli/memory_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "orthant/base/error.h"
#include "orthant/base/human.h"
#include "orthant/base/text_table.h"
#include "orthant/cli/devices.h"
#include "orthant/cli/memory_ways.h"
#include "orthant/cuda/card_memory.h"
#include "orthant/launch/memory_group.h"
#include "orthant/train/run_estimate.h"

namespace orthant::cli {
namespace {

// The place of a rank on this machine, whose device is cores or the card of that number as this process sees them.
RankPlace place_here(int rank, at::Device device, const launch::Environment& environment) {
  const auto free = launch::free_memory();
  RankPlace place{.rank = rank, .host = this_host(), .card = ""};
  if (device.is_cpu()) {
    // Ranks in control groups of their own share no limit.
    if (free && !free->group.empty()) place.host += " " + free->group;
    if (free) place.free_bytes = free->bytes;
    return place;
  }
  const auto visible = environment.find("CUDA_VISIBLE_DEVICES");
  place.card = cuda::visible_card(visible == environment.end() ? "" : visible->second, device.index());
  place.free_bytes = cuda::free_card_bytes(place.card);
  return place;
}

std::string remedy(const std::vector<MemoryWay>& ways, const Mesh& mesh) {
  const std::string otherwise = "; --force trains as it is";
  const auto fits = std::ranges::find_if(ways, &MemoryWay::fits);
  if (fits == ways.end()) {
    return "take a smaller model, shorter sequences, or ranks on more hosts (orthant plan finds a mesh)" + otherwise;
  }
  if (!fits->words.starts_with("--mesh")) return fmt::format("add {}{}", fits->words, otherwise);
  return fmt::format("use {} instead of the mesh {}{}", fits->words, mesh.to_string(), otherwise);
}

// "29.9 GiB of parameters, 29.9 GiB of gradients, ...": of the rank that needs most.
std::string holders(const RunConfig& config) {
  const auto plan = estimate_run(config, find_hardware("cpu"));
  const auto& worst = plan.memory.at(static_cast<std::size_t>(plan.worst_stage()));
  return fmt::format("{} of parameters, {} of gradients, {} of optimizer state, {} of activations",
                     format_bytes(worst.parameters), format_bytes(worst.gradients), format_bytes(worst.optimizer),
                     format_bytes(worst.activations + worst.logits + worst.temporary));
}

void say_ways(const std::vector<MemoryWay>& ways) {
  std::vector<TableLine> lines = {{"needs", "", "with"}};
  for (const auto& way : ways) lines.push_back({format_bytes(way.bytes), way.fits ? "fits" : "", way.words});
  if (lines.size() > 1) say("ways to train this with less memory:\n" + text_table(lines, /*left=*/3));
}

}  // namespace

std::vector<RankPlace> places_of_local_ranks(const RunConfig& config, int ranks_per_host,
                                             const launch::Environment& environment) {
  const int world_size = config.mesh.world_size();
  const int on_host = ranks_per_host > 0 ? ranks_per_host : world_size;
  const auto& device = config.trainer.device;
  const int num_cards = device.is_cpu() ? 1 : std::max(count_gpus(environment), 1);
  std::vector<RankPlace> cards;  // of rank 0, on each card
  for (int card = 0; card < std::min(num_cards, on_host); ++card) {
    const at::Device here = device.is_cpu() ? device : at::Device(device.type(), static_cast<at::DeviceIndex>(card));
    cards.push_back(place_here(0, here, environment));
  }
  std::vector<RankPlace> places;
  for (int rank = 0; rank < world_size; ++rank) {
    auto& place = places.emplace_back(cards[static_cast<std::size_t>(rank % on_host % num_cards)]);
    place.rank = rank;
    if (rank >= on_host) place.host += fmt::format(" {}", rank / on_host);
  }
  return places;
}

RankPlace place_of_this_rank(const RunConfig& config, const launch::Job& job, const launch::Environment& environment) {
  return place_here(job.rank, config.trainer.device, environment);
}

void check_memory(const LoadedConfig& loaded, const ConfigOptions& options, const RankOptions& ranks,
                  const std::vector<RankPlace>& places, const launch::Environment& environment,
                  std::optional<int> own_rank) {
  constexpr double kMostSeconds = 10;
  constexpr double kMostSecondsOfDryRun = 0.15;
  const auto shortage = worst_shortage(memory_needs(loaded.config, places));
  if (!shortage) return;
  const int first = shortage->ranks.front();
  const auto ways = ways_with_less_memory(loaded, options, ranks, places, *shortage, environment,
                                          ranks.dry_run ? kMostSecondsOfDryRun : kMostSeconds);
  if (!own_rank || *own_rank == first) say_ways(ways);
  throw ConfigError(fmt::format("{}; a rank has {}", shortage->text(), holders(loaded.config)),
                    {.remedy = remedy(ways, loaded.config.mesh), .rank = own_rank ? first : -1});
}

std::string memory_verdict(const LoadedConfig& loaded, const ConfigOptions& options, const RankOptions& ranks,
                           const std::vector<RankPlace>& places, const launch::Environment& environment) {
  try {
    check_memory(loaded, options, ranks, places, environment);
  } catch (const ConfigError& error) {
    return fmt::format("train would be refused with exit code 2: {}", error.what());
  }
  const auto needs = memory_needs(loaded.config, places);
  if (needs.empty()) return "train would start; what is free here is not known";
  const auto fullest = std::ranges::max_element(needs, {}, &MemoryNeed::missing_bytes);
  return fmt::format("train would start: {}", fullest->text());
}

}  // namespace orthant::cli
