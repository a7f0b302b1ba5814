// Which checkpoints a run's folder holds, and which of them stay. A checkpoint that goes loses its name first, so that
// nobody meets a half of one. Local: rank 0's matter, after the newer ones are on the device.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace orthant {

// A folder step-N.
struct FoundCheckpoint {
  std::int64_t step = 0;
  std::string path;
};

// N of a name step-N; nothing for any other name.
std::optional<std::int64_t> step_in_name(std::string_view name);

// The step-N folders of `parent`, newest first.
std::vector<FoundCheckpoint> list_checkpoints(const std::string& parent);

// A checkpoint stays when any rule keeps it.
struct KeepRules {
  std::int64_t last = 3;   // the newest; at least 1
  std::int64_t every = 0;  // steps that are multiples of it; 0: none for that
  std::int64_t best = 0;   // those with the least eval loss; 0: none for that
};

struct RankedCheckpoint {
  std::int64_t step = 0;
  std::optional<double> eval_loss = {};  // nothing: it was not evaluated
};

// The steps that no rule keeps. Of equal losses the newer is the better.
std::vector<std::int64_t> steps_to_remove(std::vector<RankedCheckpoint> found, const KeepRules& rules);

// Removes what the rules do not keep (DataError when that fails), and what dead processes left half-written.
void prune_checkpoints(const std::string& parent, const KeepRules& rules);

// Gives a checkpoint its name when a death came while it replaced another of its step. Before anybody chooses one.
void restore_checkpoints(const std::string& parent);

// Moves a checkpoint that was refused out of the way, to step-N.refused: it may yet be mended by hand. DataError.
void set_aside_refused(const std::string& checkpoint);

// Removes those of later steps and says which: a resumed run takes another way. DataError when that fails.
std::vector<std::int64_t> drop_checkpoints_after(const std::string& parent, std::int64_t step);

}  // namespace orthant
