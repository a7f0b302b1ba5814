// checkpoints/latest and checkpoints/best: small files with the name of a checkpoint beside them, for scripts, for
// --resume, and for the commands that read checkpoints. A run finds its own checkpoints by listing them and never goes
// by a pointer, so that one which a death left behind costs nothing. Local: rank 0's matter.
#pragma once

#include <optional>
#include <string>

#include "orthant/checkpoint/retention.h"

namespace orthant {

inline constexpr const char* kLatestPointer = "latest";
inline constexpr const char* kBestPointer = "best";

// Names the newest of the checkpoints that the rules keep, and with `losses` the one of the least eval loss among them:
// call it after a save and before what is not kept goes, so that a pointer always names what is there. IoError.
void write_pointers(const std::string& parent, const KeepRules& rules, bool losses);

// The checkpoint that a path means: the one that it names where it is a pointer, else the path itself. DataError when a
// pointer names no checkpoint that is there; IoError.
std::string pointed_checkpoint(const std::string& path);

// What the pointer `best` of the folder of checkpoints names; nothing when there is none. Errors as above.
std::optional<RankedCheckpoint> best_checkpoint(const std::string& parent);

}  // namespace orthant
