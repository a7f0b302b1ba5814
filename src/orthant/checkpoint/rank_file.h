// Which pieces of which tensors each rank writes to its file of a checkpoint. What another rank writes follows from its
// coordinate alone, so that one rank can write the manifest for all. Local.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "orthant/checkpoint/checkpointed.h"
#include "orthant/files/safetensors.h"
#include "orthant/layout/manifest.h"
#include "orthant/layout/pieces.h"
#include "orthant/parallel/data/master_values.h"

namespace c10 {
struct Event;
}

namespace orthant {

class FlatParameters;

// One flat tensor that a checkpoint holds, and how its parameters are called there.
struct SavedFlat {
  const FlatParameters* parameters = nullptr;
  MasterValues owned;  // the optimizer's copy or a state of it: the range that this rank owns
  std::string prefix;  // "" or "optimizer.exp_avg."
};

// What a checkpoint calls the parameters and each state of the optimizer: "", "optimizer.exp_avg.", ...
std::vector<std::string> saved_prefixes(const CheckpointedTensors& tensors);

// What this rank holds: parameters, then the optimizer's states of trainable ones.
std::vector<SavedFlat> saved_flats(const CheckpointedTensors& tensors);

// A rank's file: what it holds, in the order it is written.
struct RankFile {
  struct Part {
    std::size_t flat = 0;  // of the rank's saved_flats()
    Piece piece;
    TensorEntry entry;   // in the file
    std::string tensor;  // in the manifest
  };
  std::string name;
  std::vector<Part> parts;  // none: there is no such file
};
RankFile plan_file(const CheckpointedTensors& tensors, int rank);

// Adds the tensors and pieces of the files, not their sizes and hashes.
void add_pieces(Manifest& manifest, const CheckpointedTensors& tensors, const std::vector<RankFile>& files);

// What the files of one checkpoint are tagged with. Without a key there are no tags.
struct CheckpointSeal {
  std::shared_ptr<const TagKey> key = {};
  std::string id = {};
  std::int64_t step = 0;

  std::optional<BlockTags> tags_of(const std::string& file) const;
};

// A text that lies in a checkpoint beside its tensors: its size, hashes and tags for the manifest.
ManifestFile described_text(const std::string& name, std::string_view text, const CheckpointSeal& seal);

// Writes manifest.json, and with a key its tag. What else belongs to the checkpoint must be in `folder`.
void write_manifest(const std::filesystem::path& folder, Manifest manifest, const CheckpointSeal& seal);

// Bytes that a checkpoint of these files takes on a device, `others` being what lies in it besides: a little more than
// it will be.
std::int64_t bytes_to_save(const std::vector<RankFile>& files, const std::map<std::string, std::string>& others);

// Writes this rank's file. DataError, also for values that are not finite.
WrittenFile write_rank_file(const RankFile& file, const std::vector<SavedFlat>& flats,
                            const std::filesystem::path& folder, const CheckpointSeal& seal = {});

// The same from a copy, while the training goes on. One buffer, as large as the file's tensors.
class RankCopy {
 public:
  // What the device has been asked to do by now comes before the copy; what it is asked later need not.
  void begin(const std::vector<SavedFlat>& flats);
  // In whatever thread. Waits until the copy is made.
  void take(const RankFile& file, const std::vector<SavedFlat>& flats);
  WrittenFile write(const RankFile& file, const std::filesystem::path& folder, const CheckpointSeal& seal = {}) const;

 private:
  at::Tensor bytes_;
  std::shared_ptr<c10::Event> begun_;  // on a device
  at::ScalarType type_ = at::kFloat;
};

}  // namespace orthant
