// Checkpoints of a trainer: parameters and optimizer state as pieces of global tensors, the manifest last, all of it
// atomic. What is written does not depend on the mesh; what is read is what this rank needs.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "orthant/data/sampler.h"
#include "orthant/layout/manifest.h"

namespace orthant {

class Trainer;

// What safetensors files call a dtype.
std::string element_name(DType dtype);

// Where the data stood; a trainer itself does not know.
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

// Writes `folder`, instead of one that is there; its parent is made. DataError on I/O errors, and nothing is left then.
void save_checkpoint(const Trainer& trainer, const DataCursor& cursor, const std::string& folder,
                     const SavedFiles& others = {});

// Parameters, optimizer state and step. DataError that names tensor and file for a damaged checkpoint or one of another
// model; all of that is found before anything is changed, and only a file that cannot be read to its end afterwards
// leaves the trainer with a part of it. One without optimizer state from before the first update (an imported model)
// starts the optimizer anew; it may be of another dtype and lack the head, which the notes say then.
struct LoadedCheckpoint {
  Manifest manifest;
  std::vector<std::string> notes;  // lines for the log
};
LoadedCheckpoint load_checkpoint(Trainer& trainer, const std::string& folder);

// Reads and checks manifest, sizes, hashes, and that every piece of a tensor is where the manifest says.
Manifest verify_checkpoint(const std::string& folder);

// step-N folders of `parent` with their steps, newest first.
struct FoundCheckpoint {
  std::int64_t step = 0;
  std::string path;
};
std::vector<FoundCheckpoint> list_checkpoints(const std::string& parent);

// The newest one that verifies; what was refused, and why, goes to `refused`.
std::optional<FoundCheckpoint> newest_valid_checkpoint(const std::string& parent, std::vector<std::string>& refused);

// Removes those of later steps and says which: a resumed run takes another way.
std::vector<std::int64_t> drop_checkpoints_after(const std::string& parent, std::int64_t step);

// Removes all but the newest `keep` and what dead processes left half-written.
void prune_checkpoints(const std::string& parent, std::int64_t keep);

}  // namespace orthant
