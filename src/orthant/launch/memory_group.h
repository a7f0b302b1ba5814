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
  // What the tightest of them leaves, files that the kernel can drop counted as free; nothing without a limit.
  std::optional<std::int64_t> free_bytes() const;
};

// `root` holds proc and sys. Nothing where the system has no such groups.
std::optional<MemoryGroup> memory_group_of(pid_t pid, const std::filesystem::path& root = "/");

// What this process and its children may take before the kernel kills one of them: of the host or of its control group,
// whichever leaves less. Nothing where the system does not tell.
std::optional<std::int64_t> free_memory(const std::filesystem::path& root = "/");

// The number after `name` in a file of lines "name number" or "name: number unit".
std::optional<std::int64_t> counter_in(const std::filesystem::path& path, const std::string& name);

}  // namespace orthant::launch
