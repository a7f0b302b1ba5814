#include "orthant/checkpoint/pointers.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "orthant/base/error.h"
#include "orthant/files/path_facts.h"
#include "orthant/files/whole_file.h"

namespace orthant {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMostBytes = 64;  // of "step-N" and a line end

// Replaces whatever has the name, a link as well, and follows none.
void point(const std::string& parent, const char* name, std::int64_t step) {
  write_file_atomically(fs::path(parent) / name, fmt::format("step-{}\n", step));
}

}  // namespace

void write_pointers(const std::string& parent, const KeepRules& rules, bool losses) {
  auto kept = ranked_checkpoints(list_checkpoints(parent), losses || rules.best > 0);
  const auto gone = steps_to_remove(kept, rules);
  std::erase_if(kept, [&](const auto& one) { return std::ranges::find(gone, one.step) != gone.end(); });
  if (kept.empty()) return;
  point(parent, kLatestPointer, std::ranges::max(kept, {}, &RankedCheckpoint::step).step);
  std::erase_if(kept, [](const RankedCheckpoint& one) { return !one.eval_loss; });
  if (kept.empty()) return remove_file(fs::path(parent) / kBestPointer);
  // Of equal losses the newer is the better.
  std::ranges::sort(kept, std::greater<>(), &RankedCheckpoint::step);
  point(parent, kBestPointer, std::ranges::min_element(kept, {}, &RankedCheckpoint::eval_loss)->step);
}

std::string pointed_checkpoint(const std::string& path) {
  const auto name = fs::path(path).filename().string();
  if ((name != kLatestPointer && name != kBestPointer) || !orthant::is_regular_file(path)) return path;
  auto text = read_text_file(path, kMostBytes);
  if (text.ends_with('\n')) text.pop_back();
  const auto checkpoint = fs::path(path).parent_path() / text;
  if (step_in_name(text) && is_folder(checkpoint)) return checkpoint.string();
  throw DataError(fmt::format("{}: names {}, and there is no such checkpoint beside it", path,
                              step_in_name(text) ? text : "no step-N"),
                  {.remedy = "name a folder step-N"});
}

std::optional<RankedCheckpoint> best_checkpoint(const std::string& parent) {
  const auto pointer = fs::path(parent) / kBestPointer;
  if (!orthant::is_regular_file(pointer)) return std::nullopt;
  const auto path = pointed_checkpoint(pointer);
  const auto step = step_in_name(fs::path(path).filename().string());
  return ranked_checkpoints({{.step = step.value(), .path = path}}, /*losses=*/true).front();
}

}  // namespace orthant
