// Checkpoints of a training: parameters and optimizer state as pieces of global tensors, the manifest last, all of it
// atomic. Every rank writes a file of its own, each element once over all of them; any mesh reads what another wrote,
// and a rank reads what it owns. Where several ranks call, the folder that rank 0 names counts, and all of them throw
// the same error or none does.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "orthant/base/error.h"
#include "orthant/checkpoint/reader.h"
#include "orthant/checkpoint/retention.h"
#include "orthant/data/sampler.h"
#include "orthant/files/io_patience.h"
#include "orthant/layout/manifest.h"

namespace orthant {

class Checkpointed;
class ControlGroup;

// What safetensors files call a dtype.
std::string element_name(DType dtype);

// Where the data stood; a trainer does not know.
struct DataCursor {
  std::int64_t epoch = 0;
  std::int64_t position = 0;  // of the next sample in its epoch
  std::int64_t samples_seen = 0;
  friend bool operator==(const DataCursor&, const DataCursor&) = default;
};

// After so many steps of that order.
DataCursor cursor_after(const Sampler& sampler, std::int64_t steps);

// Texts by file name that belong to a model besides its weights, such as preprocessing.json.
using SavedFiles = std::map<std::string, std::string>;

// Writes `folder`, instead of one that is there; its parent is made. DataError with rank and path on I/O errors of any
// rank; what was there before is there still then, and nothing else is left. Collective over the world.
void save_checkpoint(const Checkpointed& training, const DataCursor& cursor, const std::string& folder,
                     const SavedFiles& others = {});

// Checks manifest, sizes, hashes, and that every piece of a tensor is where the manifest says. The ranks share out what
// there is to hash. DataError for contents that are proved wrong, IoError for what cannot be read, AuthenticityError
// for what is whole but not of the key. Collective over the world; Local for one rank.
CheckpointReader open_checkpoint(const std::string& folder, const ControlGroup& ranks,
                                 const CheckpointAccess& access = {});

// The first of rank 0's `candidates` that is whole; nothing when none is. Those whose contents are proved wrong are
// passed over and told to `damaged`, on every rank, while they are caught; other errors as by open_checkpoint(), and
// those of another version of the format (VersionError), are thrown. Collective over the world.
using DamagedCheckpoint = std::function<void(const std::string& path, const DataError& error)>;
std::optional<CheckpointReader> open_first_whole(const std::vector<std::string>& candidates, const ControlGroup& ranks,
                                                 const CheckpointAccess& access, const DamagedCheckpoint& damaged);

Manifest verify_checkpoint(const std::string& folder, const CheckpointAccess& access = {});

// Parameters, optimizer state and step. DataError that names tensor and file for a damaged checkpoint or one of another
// model; all of that is found before anything is changed, and only a file that cannot be read to its end afterwards
// leaves the training with a part of it. One without optimizer state from before the first update (an imported model)
// starts the optimizer anew; it may be of another dtype and lack the head, which the notes say then. Collective over
// the world.
struct LoadedCheckpoint {
  Manifest manifest;
  std::vector<std::string> notes;  // lines for the log
};
LoadedCheckpoint load_checkpoint(Checkpointed& training, const CheckpointReader& checkpoint,
                                 const IoPatience& patience = IoPatience());
LoadedCheckpoint load_checkpoint(Checkpointed& training, const std::string& folder);

}  // namespace orthant
