#include "orthant/launch/out_of_memory.h"

#include <fmt/format.h>

#include <charconv>
#include <fstream>
#include <sstream>

#include "orthant/base/human.h"

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

// The number after `name` in a file of lines "name number".
std::optional<std::int64_t> counter_in(const fs::path& path, const std::string& name) {
  std::ifstream file(path);
  std::string word, number;
  while (file >> word >> number) {
    if (word == name) return number_in(number);
  }
  return std::nullopt;
}

// A path of /proc/PID/cgroup below where the groups are mounted; in a container that may be the mount itself.
fs::path below(const fs::path& mount, const std::string& path) {
  const auto relative = fs::path(path).relative_path();
  std::error_code error;
  return !relative.empty() && fs::is_directory(mount / relative, error) ? mount / relative : mount;
}

}  // namespace

OutOfMemoryWatch::OutOfMemoryWatch(fs::path root) : root_(std::move(root)), host_kills_(kills_on_host()) {}

// Lines "ID:CONTROLLERS:PATH": those of the second version have neither number nor controllers.
std::optional<OutOfMemoryWatch::Group> OutOfMemoryWatch::group_of(pid_t pid) const {
  std::ifstream file(root_ / "proc" / std::to_string(pid) / "cgroup");
  std::optional<Group> found;
  for (std::string line; std::getline(file, line);) {
    const auto first = line.find(':');
    const auto second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const auto controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const auto path = line.substr(second + 1);
    const auto mount = root_ / "sys/fs/cgroup";
    if (controllers.find(",memory,") != std::string::npos) {
      return Group{below(mount / "memory", path), mount / "memory", false};
    }
    if (line.starts_with("0::")) found = Group{below(mount, path), mount, true};
  }
  return found;
}

std::optional<std::int64_t> OutOfMemoryWatch::kills_in(const Group& group) const {
  return counter_in(group.folder / (group.second_version ? "memory.events" : "memory.oom_control"), "oom_kill");
}

std::optional<std::int64_t> OutOfMemoryWatch::kills_on_host() const {
  return counter_in(root_ / "proc/vmstat", "oom_kill");
}

std::optional<std::int64_t> OutOfMemoryWatch::smallest_limit(const Group& group) const {
  std::optional<std::int64_t> smallest;
  for (auto folder = group.folder;; folder = folder.parent_path()) {
    std::ifstream file(folder / (group.second_version ? "memory.max" : "memory.limit_in_bytes"));
    std::string word;
    const auto limit = file >> word ? number_in(word) : std::nullopt;
    if (limit && *limit < kNoLimit && (!smallest || *limit < *smallest)) smallest = limit;
    if (folder == group.mount || !folder.has_relative_path()) return smallest;
  }
}

void OutOfMemoryWatch::note(pid_t pid) {
  const auto group = group_of(pid);
  // The first version shows a process that ends in the topmost group: what was seen before counts.
  if (!group || (groups_.contains(pid) && group->folder == group->mount)) return;
  groups_[pid] = *group;
  if (!kills_.contains(group->folder)) kills_[group->folder] = kills_in(*group).value_or(0);
}

std::string OutOfMemoryWatch::why_killed(pid_t pid) {
  const auto seen_late = group_of(pid);
  if (seen_late && seen_late->folder != seen_late->mount && !kills_.contains(seen_late->folder)) {
    kills_[seen_late->folder] = 0;  // it is younger than the last look
    groups_[pid] = *seen_late;
  }
  const auto found = groups_.find(pid);
  if (found != groups_.end()) {
    const auto& group = found->second;
    const auto kills = kills_in(group);
    if (kills && *kills > kills_[group.folder]) {
      const auto limit = smallest_limit(group);
      if (!limit) return "out of memory: the host has no more";
      return fmt::format("out of memory: its control group may use {}", format_bytes(*limit));
    }
    if (kills && group.second_version) return "";  // which shows the group of a process until it is reaped
  }
  const auto host_kills = kills_on_host();
  if (!host_kills || !host_kills_ || *host_kills <= *host_kills_) return "";
  return "probably out of memory: the kernel has just killed a process of this host for that";
}

}  // namespace orthant::launch
