// The control group that bounds a process's memory, of either version, and what is left to it there and on the host.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace orthant::launch {

struct MemoryGroup {
  std::filesystem::path folder;
  std::filesystem::path mount;  // above it there are no groups
  bool second_version = true;

  // Of this group and those above it; nothing without a limit.
  std::optional<std::int64_t> smallest_limit() const;
};

// `root` holds proc and sys. Nothing where the system has no such groups.
std::optional<MemoryGroup> memory_group_of(pid_t pid, const std::filesystem::path& root = "/");

// What this process and its children may take before the kernel kills one of them.
struct FreeMemory {
  std::int64_t bytes = 0;
  std::string group;  // the folder of the control group that bounds it; empty: the host does
};

// Of the host or of the control groups above this process, whichever leaves least; files that the kernel can drop count
// as free. Nothing where the system does not tell.
std::optional<FreeMemory> free_memory(const std::filesystem::path& root = "/");

// The number after `name` in a file of lines "name number" or "name: number unit".
std::optional<std::int64_t> counter_in(const std::filesystem::path& path, const std::string& name);

}  // namespace orthant::launch
