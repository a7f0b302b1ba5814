// Whether the kernel killed a rank for lack of memory: it counts such deaths per control group (both versions) and for
// the whole host. The counts are noted when a rank is started and compared when it was killed.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "orthant/launch/memory_group.h"

namespace orthant::launch {

class OutOfMemoryWatch {
 public:
  // `root` holds proc and sys.
  explicit OutOfMemoryWatch(std::filesystem::path root = "/");

  // A process that was just started, or may have moved to another control group since.
  void note(pid_t pid);

  // Of a process that was killed and not yet reaped: "out of memory: its control group may use 512 MiB (EVIDENCE)", or
  // without the limit where there is none; empty when the kernel did not kill it for that reason.
  std::string why_killed(pid_t pid);

 private:
  std::optional<std::int64_t> kills_in(const MemoryGroup& group) const;
  std::optional<std::int64_t> kills_on_host() const;

  std::filesystem::path root_;
  std::optional<std::int64_t> host_kills_;               // when the watch began
  std::map<std::filesystem::path, std::int64_t> kills_;  // of each group when it was first seen
  std::map<pid_t, MemoryGroup> groups_;                  // as last seen
};

// What a user may do about it.
inline constexpr const char* kOutOfMemoryRemedy =
    "raise the limit, or use less memory per rank: a smaller train.global_batch_size or more parallel.microbatches, "
    "parallel.recompute=full, more fsdp, tp or pp ranks (orthant train --dry-run prices such ways)";

}  // namespace orthant::launch
