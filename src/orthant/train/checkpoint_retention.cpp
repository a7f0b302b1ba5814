#include "orthant/train/checkpoint_retention.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <limits>
#include <set>

#include "orthant/base/error.h"
#include "orthant/files/file_handle.h"
#include "orthant/files/partial.h"
#include "orthant/files/replacing_folder.h"
#include "orthant/train/checkpoint_reader.h"

namespace orthant {
namespace {

namespace fs = std::filesystem;

constexpr const char* kRefusedSuffix = ".refused";

// Instead of what has that name already. Gives the new name.
std::string move_aside(const std::string& path, const char* suffix) {
  std::error_code error;
  auto aside = path + suffix;
  fs::remove_all(aside, error);
  fs::rename(path, aside, error);
  if (error) throw_io_error(path, fmt::format("rename to {}", aside), error.value());
  return aside;
}

void remove_checkpoint(const std::string& path) {
  std::error_code ignored;
  fs::remove_all(move_aside(path, kRemovedSuffix), ignored);  // what stays is removed with the next one
}

void remove_leftovers(const std::string& parent) {
  std::error_code error;
  std::vector<fs::path> found;
  try {
    found = stale_partials(parent);
  } catch (const DataError&) {  // the next prune removes them
  }
  for (fs::directory_iterator item(parent, error), none; !error && item != none; item.increment(error)) {
    const auto name = item->path().filename().string();
    if (!name.starts_with("step-")) continue;
    if (name.ends_with(kReplacingSuffix) || name.ends_with(kRemovedSuffix)) found.push_back(item->path());
  }
  for (const auto& path : found) fs::remove_all(path, error);
}

// A checkpoint whose manifest cannot be read is worse than any other.
std::optional<double> eval_loss_of(const std::string& checkpoint) {
  try {
    return read_manifest(checkpoint).eval_loss;
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace

std::optional<std::int64_t> step_in_name(std::string_view name) {
  constexpr std::string_view kPrefix = "step-";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  std::int64_t step = -1;
  const auto* end = name.data() + name.size();
  const auto read = std::from_chars(name.data() + kPrefix.size(), end, step);
  return read.ptr == end && read.ec == std::errc() && step >= 0 ? std::optional(step) : std::nullopt;
}

std::vector<FoundCheckpoint> list_checkpoints(const std::string& parent) {
  std::vector<FoundCheckpoint> found;
  std::error_code error;
  for (fs::directory_iterator item(parent, error), none; !error && item != none; item.increment(error)) {
    std::error_code ignored;
    const auto step = step_in_name(item->path().filename().string());
    if (step && item->is_directory(ignored)) found.push_back({*step, item->path().string()});
  }
  std::ranges::sort(found, std::greater<>(), &FoundCheckpoint::step);
  return found;
}

std::vector<std::int64_t> steps_to_remove(std::vector<RankedCheckpoint> found, const KeepRules& rules) {
  std::ranges::sort(found, std::greater<>(), &RankedCheckpoint::step);
  std::set<std::int64_t> kept;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const bool is_new = static_cast<std::int64_t>(i) < rules.last;
    if (is_new || (rules.every > 0 && found[i].step % rules.every == 0)) kept.insert(found[i].step);
  }
  auto ranked = found;
  std::erase_if(ranked, [](const RankedCheckpoint& checkpoint) { return !checkpoint.eval_loss; });
  std::ranges::stable_sort(ranked, {}, &RankedCheckpoint::eval_loss);
  for (std::size_t i = 0; i < ranked.size() && static_cast<std::int64_t>(i) < rules.best; ++i) {
    kept.insert(ranked[i].step);
  }
  std::vector<std::int64_t> gone;
  for (const auto& checkpoint : found) {
    if (!kept.contains(checkpoint.step)) gone.push_back(checkpoint.step);
  }
  return gone;
}

void restore_checkpoints(const std::string& parent) {
  std::error_code error;
  for (fs::directory_iterator item(parent, error), none; !error && item != none; item.increment(error)) {
    const auto path = item->path().string();
    if (path.ends_with(kReplacingSuffix)) restore_replaced(path.substr(0, path.size() - std::strlen(kReplacingSuffix)));
  }
}

void prune_checkpoints(const std::string& parent, const KeepRules& rules) {
  restore_checkpoints(parent);
  const auto found = list_checkpoints(parent);
  std::vector<RankedCheckpoint> ranked;
  for (const auto& checkpoint : found) {
    ranked.push_back({checkpoint.step, rules.best > 0 ? eval_loss_of(checkpoint.path) : std::nullopt});
  }
  const auto gone = steps_to_remove(std::move(ranked), rules);
  for (const auto& checkpoint : found) {
    if (std::ranges::find(gone, checkpoint.step) != gone.end()) remove_checkpoint(checkpoint.path);
  }
  remove_leftovers(parent);
}

void set_aside_refused(const std::string& checkpoint) {
  move_aside(checkpoint, kRefusedSuffix);
}

std::vector<std::int64_t> drop_checkpoints_after(const std::string& parent, std::int64_t step) {
  std::vector<std::int64_t> dropped;
  for (const auto& checkpoint : list_checkpoints(parent)) {
    if (checkpoint.step <= step) continue;
    remove_checkpoint(checkpoint.path);
    dropped.push_back(checkpoint.step);
  }
  return dropped;
}

}  // namespace orthant
