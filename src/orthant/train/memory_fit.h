// Whether the ranks of a run fit into the memory of the hosts and cards that they share, by what the planner predicts.
// Pure arithmetic over where ranks are and what is free there: whoever asks fills both in. Local.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "orthant/train/run_config.h"

namespace orthant {

// What ranks of one host have alike and those of others have not.
std::string this_host();

// Where a rank runs, and what is free there before it starts.
struct RankPlace {
  int rank = 0;
  std::string host;  // ranks with the same one share its memory
  std::string card;  // and with the same one of those, the card's; empty: on the host's cores
  std::optional<std::int64_t> free_bytes = {};

  std::string to_text() const;  // for other ranks; the rank itself is not in it
  static RankPlace from_text(const std::string& text, int rank);
};

// Ranks that share one memory.
struct MemoryNeed {
  std::vector<int> ranks;
  std::string host;
  std::string card;
  std::int64_t needed_bytes = 0;
  std::int64_t free_bytes = 0;  // the least that one of them saw

  bool fits() const { return needed_bytes <= free_bytes; }
  std::int64_t missing_bytes() const { return needed_bytes - free_bytes; }
  std::string text() const;  // "the 2 ranks of this run on this host need 3 GiB, and 1 GiB of memory are free here"
};

// One for every memory of which somebody knows what is free, in the order of first ranks. `places` may be a part of the
// world, in any order.
std::vector<MemoryNeed> memory_needs(const RunConfig& config, const std::vector<RankPlace>& places);

// The memory that lacks most; nothing when all ranks fit.
std::optional<MemoryNeed> worst_shortage(const std::vector<MemoryNeed>& needs);

}  // namespace orthant
