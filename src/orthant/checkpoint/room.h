// Room for a checkpoint on a disk that is nearly full. See Note [Room by rule]. Local: rank 0's matter, before a save
// or after one that found no room.
//
// Note [Room by rule]: a save needs room beside the checkpoints that are there, and keep_last may ask for more of them
// than the disk takes. Then what goes is, in this order and oldest first: what has no use for anybody; what the rules
// would remove after this save; what a resumed run left behind, but for the newest of it; what only keep_last keeps.
// The newest checkpoint stays, and so do those of keep_every and keep_best: they were asked for by name. What was
// superseded may be the best there is until this run has saved: its newest stays as long as it is newer than all
// others, and so does one that the run began with. Nothing goes where all of that together would not make room enough.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "orthant/checkpoint/retention.h"

namespace orthant {

struct RoomRequest {
  std::string parent;             // of the step-N folders
  std::int64_t step = 0;          // that is to be saved
  std::int64_t needed_bytes = 0;  // that it takes on the device
  KeepRules keep = {};
  bool quota = false;             // a quota is spent, of which the file system's free bytes know nothing
  std::string resumed_from = {};  // the checkpoint that the run began with; empty: none. It stays
};

struct RoomMade {
  bool enough = false;
  std::vector<std::string> removed = {};  // names of checkpoints: "step-2"
  std::int64_t free_bytes = 0;            // before
};

// IoError when the system does not tell what is there.
RoomMade make_room(const RoomRequest& request);

// "made room for the checkpoint of step 8, which takes 1.2 MiB where 310 KiB were free: removed step-2, step-4"
std::string room_note(const RoomRequest& request, const RoomMade& made);

}  // namespace orthant
