#include "orthant/checkpoint/room.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "orthant/base/human.h"
#include "orthant/files/path_facts.h"

namespace orthant {
namespace {

namespace fs = std::filesystem;

// Of what a resumed run left behind, the oldest first.
std::vector<std::string> superseded_to_remove(const RoomRequest& request, std::int64_t newest_step) {
  auto paths = superseded_checkpoints(request.parent);
  const auto step_of = [](const fs::path& path) {
    const auto name = path.filename().string();
    return step_in_name(name.substr(0, name.find('.'))).value();
  };
  if (!paths.empty() && step_of(paths.back()) > newest_step) paths.pop_back();
  if (request.resumed_from.empty()) return paths;
  std::erase_if(paths,
                [begun = real_path(request.resumed_from)](const auto& path) { return real_path(path) == begun; });
  return paths;
}

// Paths in the order in which they go, the first first.
std::vector<std::string> candidates(const RoomRequest& request) {
  auto found = list_checkpoints(request.parent);
  std::erase_if(found, [&](const FoundCheckpoint& checkpoint) { return checkpoint.step == request.step; });
  if (found.empty()) return {};
  auto after = ranked_checkpoints(found, request.keep.best > 0);
  const auto without_last = steps_to_remove(after, {.last = 0, .every = request.keep.every, .best = request.keep.best});
  after.push_back({request.step});
  const auto with_last = steps_to_remove(after, request.keep);
  const std::set<std::int64_t> gone_anyway(with_last.begin(), with_last.end());
  const std::set<std::int64_t> kept_as_last(without_last.begin(), without_last.end());
  const FoundCheckpoint newest = found.front();
  std::ranges::reverse(found);
  std::vector<std::string> paths;
  for (const auto& checkpoint : found) {
    if (gone_anyway.contains(checkpoint.step) && checkpoint.step != newest.step) paths.push_back(checkpoint.path);
  }
  for (auto& path : superseded_to_remove(request, newest.step)) paths.push_back(std::move(path));
  for (const auto& checkpoint : found) {
    if (gone_anyway.contains(checkpoint.step) || checkpoint.step == newest.step) continue;
    if (kept_as_last.contains(checkpoint.step)) paths.push_back(checkpoint.path);
  }
  return paths;
}

}  // namespace

RoomMade make_room(const RoomRequest& request) {
  RoomMade made;
  if (!is_there(request.parent)) return {.enough = true};
  const auto left = [&] { return request.quota ? std::int64_t{0} : free_bytes(request.parent); };
  made.free_bytes = left();
  made.enough = made.free_bytes >= request.needed_bytes;
  if (made.enough) return made;
  restore_checkpoints(request.parent);
  remove_leftovers(request.parent);
  const auto paths = candidates(request);
  std::int64_t reachable = left();
  for (const auto& path : paths) reachable += bytes_on_disk(path);
  made.enough = left() >= request.needed_bytes;
  if (reachable < request.needed_bytes) return made;
  std::int64_t freed = 0;
  for (const auto& path : paths) {
    if (made.enough) break;
    freed += bytes_on_disk(path);
    remove_checkpoint(path);
    made.removed.push_back(fs::path(path).filename().string());
    made.enough = (request.quota ? freed : left()) >= request.needed_bytes;
  }
  return made;
}

std::string room_note(const RoomRequest& request, const RoomMade& made) {
  const auto space =
      request.quota ? std::string("the quota was spent") : fmt::format("{} were free", format_bytes(made.free_bytes));
  return fmt::format("made room for the checkpoint of step {}, which takes {} where {}: removed {}", request.step,
                     format_bytes(request.needed_bytes), space, fmt::join(made.removed, ", "));
}

}  // namespace orthant
