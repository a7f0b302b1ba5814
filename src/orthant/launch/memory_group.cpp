#include "orthant/launch/memory_group.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <functional>

namespace orthant::launch {
namespace {

namespace fs = std::filesystem;

// The second version says "max" instead of a number, the first one the largest multiple of a page.
constexpr std::int64_t kNoLimit = std::int64_t{1} << 62;

std::optional<std::int64_t> number_in(const std::string& text) {
  std::int64_t number = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  return status == std::errc() ? std::optional(number) : std::nullopt;
}

std::optional<std::int64_t> first_number(const fs::path& path) {
  std::ifstream file(path);
  std::string word;
  return file >> word ? number_in(word) : std::nullopt;
}

// A path of /proc/PID/cgroup below where the groups are mounted; in a container that may be the mount itself.
fs::path below(const fs::path& mount, const std::string& path) {
  const auto relative = fs::path(path).relative_path();
  std::error_code error;
  return !relative.empty() && fs::is_directory(mount / relative, error) ? mount / relative : mount;
}

// What is left below a limit, files that the kernel can drop counted as free.
std::int64_t left_below(std::int64_t limit, const fs::path& folder, bool second_version) {
  const auto used = first_number(folder / (second_version ? "memory.current" : "memory.usage_in_bytes")).value_or(0);
  const auto droppable =
      counter_in(folder / "memory.stat", second_version ? "inactive_file" : "total_inactive_file").value_or(0);
  return std::max<std::int64_t>(limit - std::max<std::int64_t>(used - droppable, 0), 0);
}

struct Measured {
  std::int64_t bytes = 0;
  fs::path folder;
};

// The smallest of what `measure` says of the group's folder and those above it, from the limit there.
std::optional<Measured> smallest(
    const MemoryGroup& group, const std::function<std::int64_t(const fs::path& folder, std::int64_t limit)>& measure) {
  std::optional<Measured> least;
  for (auto folder = group.folder;; folder = folder.parent_path()) {
    const auto limit = first_number(folder / (group.second_version ? "memory.max" : "memory.limit_in_bytes"));
    if (limit && *limit < kNoLimit) {
      const auto found = measure(folder, *limit);
      if (!least || found < least->bytes) least = Measured{found, folder};
    }
    if (folder == group.mount || !folder.has_relative_path()) return least;
  }
}

}  // namespace

std::optional<std::int64_t> counter_in(const fs::path& path, const std::string& name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const auto end = line.find_first_of(": ");
    if (end == std::string::npos || line.compare(0, end, name) != 0) continue;
    const auto begin = line.find_first_not_of(": ", end);
    return begin == std::string::npos ? std::nullopt : number_in(line.substr(begin));
  }
  return std::nullopt;
}

std::optional<std::int64_t> MemoryGroup::smallest_limit() const {
  const auto found = smallest(*this, [](const fs::path& /*folder*/, std::int64_t limit) { return limit; });
  return found ? std::optional(found->bytes) : std::nullopt;
}

// Lines "ID:CONTROLLERS:PATH": those of the second version have neither number nor controllers.
std::optional<MemoryGroup> memory_group_of(pid_t pid, const fs::path& root) {
  std::ifstream file(root / "proc" / std::to_string(pid) / "cgroup");
  std::optional<MemoryGroup> found;
  for (std::string line; std::getline(file, line);) {
    const auto first = line.find(':');
    const auto second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const auto controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const auto path = line.substr(second + 1);
    const auto mount = root / "sys/fs/cgroup";
    if (controllers.find(",memory,") != std::string::npos) {
      return MemoryGroup{below(mount / "memory", path), mount / "memory", false};
    }
    if (line.starts_with("0::")) found = MemoryGroup{below(mount, path), mount, true};
  }
  return found;
}

std::optional<FreeMemory> free_memory(const fs::path& root) {
  const auto kilobytes = counter_in(root / "proc/meminfo", "MemAvailable");
  const auto group = memory_group_of(getpid(), root);
  const auto in_group =
      group ? smallest(*group, [&](const fs::path& folder,
                                   std::int64_t limit) { return left_below(limit, folder, group->second_version); })
            : std::nullopt;
  if (in_group && (!kilobytes || in_group->bytes < *kilobytes * 1024)) {
    return FreeMemory{in_group->bytes, in_group->folder.string()};
  }
  return kilobytes ? std::optional(FreeMemory{*kilobytes * 1024, ""}) : std::nullopt;
}

}  // namespace orthant::launch
