#include "orthant/checkpoint/retention.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <exception>
#include <filesystem>
#include <limits>
#include <set>
#include <utility>

#include "orthant/base/error.h"
#include "orthant/checkpoint/reader.h"
#include "orthant/files/name_suffixes.h"
#include "orthant/files/partial.h"
#include "orthant/files/path_facts.h"
#include "orthant/files/replacing_folder.h"

namespace orthant {
namespace {

namespace fs = std::filesystem;

// Whether it is a checkpoint with that suffix: "step-4.superseded-2" with ".superseded".
bool is_aside_of_step(std::string_view name, std::string_view suffix) {
  return is_set_aside(name, suffix) && step_in_name(name.substr(0, name.find('.'))).has_value();
}

std::string move_aside(const std::string& path, std::string_view suffix) {
  auto aside = free_name(path, std::string(suffix)).string();
  rename_to_new(path, aside);
  return aside;
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
  for (const auto& name : names_in_folder(parent)) {
    const auto step = step_in_name(name);
    if (step && is_folder(fs::path(parent) / name)) found.push_back({*step, (fs::path(parent) / name).string()});
  }
  std::ranges::sort(found, std::greater<>(), &FoundCheckpoint::step);
  return found;
}

std::vector<RankedCheckpoint> ranked_checkpoints(const std::vector<FoundCheckpoint>& found, bool losses) {
  std::vector<RankedCheckpoint> ranked;
  for (const auto& checkpoint : found) {
    ranked.push_back({checkpoint.step});
    if (!losses) continue;
    try {
      ranked.back().eval_loss = read_manifest(checkpoint.path).eval_loss;
    } catch (const IoError&) {
      throw;
    } catch (const Error&) {
      // A damaged one is worse than any other.
    }
  }
  return ranked;
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
  for (const auto& name : names_in_folder(parent)) {
    for (const auto suffix : {kReplacingSuffix, kReplacedSuffix}) {
      if (!name.ends_with(suffix)) continue;
      const auto step_name = name.substr(0, name.size() - suffix.size());
      if (step_in_name(step_name)) restore_replaced(fs::path(parent) / step_name);
    }
  }
}

void remove_checkpoint(const std::string& path) {
  std::error_code ignored;  // what stays is removed with the next one
  fs::remove_all(move_aside(path, kRemovedSuffix), ignored);
}

std::vector<std::string> superseded_checkpoints(const std::string& parent) {
  std::vector<std::string> found;
  for (const auto& name : names_in_folder(parent)) {
    if (is_aside_of_step(name, kSupersededSuffix)) found.push_back(name);
  }
  std::ranges::sort(found, {}, [](const std::string& name) { return *step_in_name(name.substr(0, name.find('.'))); });
  for (auto& name : found) name = parent + "/" + name;
  return found;
}

std::vector<std::string> remove_leftovers(const std::string& parent) {
  if (!is_there(parent)) return {};
  std::vector<std::string> found;
  for (const auto& path : stale_partials(parent)) found.push_back(path.string());
  for (const auto& name : names_in_folder(parent)) {
    for (const auto suffix : {kReplacingSuffix, kReplacedSuffix, kRemovedSuffix}) {
      if (is_aside_of_step(name, suffix)) found.push_back(parent + "/" + name);
    }
  }
  std::erase_if(found, [](const std::string& path) {
    std::error_code error;
    fs::remove_all(path, error);
    return !error;
  });
  return found;
}

void prune_checkpoints(const std::string& parent, const KeepRules& rules) {
  restore_checkpoints(parent);
  const auto found = list_checkpoints(parent);
  const auto gone = steps_to_remove(ranked_checkpoints(found, rules.best > 0), rules);
  std::vector<std::string> unwanted = superseded_checkpoints(parent);
  for (const auto& checkpoint : found) {
    if (std::ranges::find(gone, checkpoint.step) != gone.end()) unwanted.push_back(checkpoint.path);
  }
  std::exception_ptr failed;
  for (const auto& path : unwanted) {
    try {
      remove_checkpoint(path);
    } catch (const DataError&) {
      if (!failed) failed = std::current_exception();
    }
  }
  const auto left = remove_leftovers(parent);
  if (failed) std::rethrow_exception(failed);
  if (!left.empty()) throw DataError(fmt::format("{}: cannot be removed", left.front()));
}

std::string set_aside_refused(const std::string& checkpoint) {
  return move_aside(checkpoint, kRefusedSuffix);
}

void supersede_checkpoints_after(const std::string& parent, std::int64_t step, std::vector<std::string>& aside) {
  try {
    for (const auto& checkpoint : list_checkpoints(parent)) {
      if (checkpoint.step > step) aside.push_back(move_aside(checkpoint.path, kSupersededSuffix));
    }
  } catch (const DataError&) {
    restore_superseded(aside);
    throw;
  }
}

void restore_superseded(std::vector<std::string>& aside) {
  std::erase_if(aside, [](const std::string& path) {
    const auto name = fs::path(path).filename().string();
    try {
      rename_to_new(path, fs::path(path).parent_path() / name.substr(0, name.find('.')));
      return true;
    } catch (const DataError&) {
      return false;
    }
  });
}

}  // namespace orthant
