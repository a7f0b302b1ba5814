#include "orthant/launch/out_of_memory.h"

#include <fmt/format.h>

#include "orthant/base/human.h"

namespace orthant::launch {
namespace fs = std::filesystem;

OutOfMemoryWatch::OutOfMemoryWatch(fs::path root) : root_(std::move(root)), host_kills_(kills_on_host()) {}

std::optional<std::int64_t> OutOfMemoryWatch::kills_in(const MemoryGroup& group) const {
  return counter_in(group.folder / (group.second_version ? "memory.events" : "memory.oom_control"), "oom_kill");
}

std::optional<std::int64_t> OutOfMemoryWatch::kills_on_host() const {
  return counter_in(root_ / "proc/vmstat", "oom_kill");
}

void OutOfMemoryWatch::note(pid_t pid) {
  const auto group = memory_group_of(pid, root_);
  // The first version shows a process that ends in the topmost group: what was seen before counts.
  if (!group || (groups_.contains(pid) && group->folder == group->mount)) return;
  groups_[pid] = *group;
  if (!kills_.contains(group->folder)) kills_[group->folder] = kills_in(*group).value_or(0);
}

std::string OutOfMemoryWatch::why_killed(pid_t pid) {
  const auto seen_late = memory_group_of(pid, root_);
  if (seen_late && seen_late->folder != seen_late->mount && !kills_.contains(seen_late->folder)) {
    kills_[seen_late->folder] = 0;  // it is younger than the last look
    groups_[pid] = *seen_late;
  }
  const auto found = groups_.find(pid);
  if (found != groups_.end()) {
    const auto& group = found->second;
    const auto kills = kills_in(group);
    if (kills && *kills > kills_[group.folder]) {
      const auto limit = group.smallest_limit();
      const auto* counter = group.second_version ? "memory.events" : "memory.oom_control";
      const auto evidence = fmt::format("oom_kill in {} rose", counter);
      if (!limit) return fmt::format("out of memory: the host has no more ({})", evidence);
      return fmt::format("out of memory: its control group may use {} ({})", format_bytes(*limit), evidence);
    }
    if (kills && group.second_version) return "";  // which shows the group of a process until it is reaped
  }
  const auto host_kills = kills_on_host();
  if (!host_kills || !host_kills_ || *host_kills <= *host_kills_) return "";
  return "probably out of memory: the kernel has just killed a process of this host for that (oom_kill in /proc/vmstat "
         "rose)";
}

}  // namespace orthant::launch
