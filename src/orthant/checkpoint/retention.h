// Which checkpoints a run's folder holds, and which of them stay. A checkpoint that goes loses its name first, so that
// nobody meets a half of one. What the system cannot tell or do is an IoError, never "none there". Local: rank 0's
// matter, after the newer ones are on the device.
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

// The step-N folders of `parent`, newest first; none when there is no such parent. IoError.
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

// With the eval losses of their manifests where `losses` are asked for; one whose manifest is damaged has none.
// IoError.
std::vector<RankedCheckpoint> ranked_checkpoints(const std::vector<FoundCheckpoint>& found, bool losses);

// The steps that no rule keeps, newest first. Of equal losses the newer is the better.
std::vector<std::int64_t> steps_to_remove(std::vector<RankedCheckpoint> found, const KeepRules& rules);

// Takes the checkpoint its name and then removes it. IoError when the name stays.
void remove_checkpoint(const std::string& path);

// Removes what the rules do not keep, what was superseded, and what dead processes left half-written or half-removed:
// call it after a save. DataError when something of that stays; all else has gone then nevertheless.
void prune_checkpoints(const std::string& parent, const KeepRules& rules);

// Removes what has no use for anybody: half-written, half-removed, replaced. Gives what stays. Call it after
// restore_checkpoints(): until then what is replaced may be the only copy.
std::vector<std::string> remove_leftovers(const std::string& parent);

// What a resumed run left behind, step-N.superseded, the oldest step first. IoError.
std::vector<std::string> superseded_checkpoints(const std::string& parent);

// Gives a checkpoint its name when a death came while it replaced another of its step. Before anybody chooses one.
void restore_checkpoints(const std::string& parent);

// Moves a checkpoint that was refused out of the way, to step-N.refused or the next free name: it may yet be mended by
// hand. Gives the new path. IoError.
std::string set_aside_refused(const std::string& checkpoint);

// Moves those of later steps out of the way, to step-N.superseded: a resumed run takes another way. Adds their new
// paths to `aside`. IoError; then they have their names back, and `aside` has those that do not.
void supersede_checkpoints_after(const std::string& parent, std::int64_t step, std::vector<std::string>& aside);

// Gives them their names back and takes them from `aside`; those stay there that do not get them.
void restore_superseded(std::vector<std::string>& aside);

}  // namespace orthant
