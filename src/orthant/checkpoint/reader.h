// A checkpoint's tensors by their global names, whatever pieces they lie in: the one place that opens the files of a
// manifest and reads from them. Parameters and optimizer state; hashes are open_checkpoint()'s matter.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "orthant/checkpoint/weight_reader.h"
#include "orthant/files/io_patience.h"
#include "orthant/files/tag_key.h"
#include "orthant/layout/manifest.h"
#include "orthant/layout/pieces.h"

namespace orthant {

inline constexpr const char* kManifestFile = "manifest.json";
inline constexpr const char* kManifestTagFile = "manifest.hmac";  // beside it where there is a key
inline constexpr const char* kOptimizerPrefix = "optimizer.";     // of the names of its state

// How a checkpoint is read.
struct CheckpointAccess {
  IoPatience patience = IoPatience();
  std::shared_ptr<const TagKey> key = {};  // null: tags are not looked at
};

// DataError that says what to name instead for a folder that is not there or no checkpoint, and for a damaged manifest.
// With a key: AuthenticityError unless its tag proves the manifest.
Manifest read_manifest(const std::filesystem::path& folder, const TagKey* key = nullptr);

// What is to be told when a checkpoint has tags and nobody gave a key; empty otherwise.
std::string unchecked_tags_note(const std::filesystem::path& folder, const Manifest& manifest,
                                const CheckpointAccess& access);

class CheckpointReader : public WeightReader {
 public:
  // Opens the tensor files (those that end in .safetensors; a manifest lists others too) and proves that every piece is
  // in its file with the dtype and the number of elements that the manifest promises. DataError.
  CheckpointReader(const std::filesystem::path& folder, Manifest manifest);

  const std::filesystem::path& folder() const { return folder_; }
  const Manifest& manifest() const { return manifest_; }
  const ManifestTensor* find(std::string_view name) const;  // null when there is none

  // Parameters only.
  const std::vector<TensorEntry>& entries() const override { return entries_; }
  void read(const std::string& tensor, std::int64_t offset, std::span<std::byte> out) const override;

  // By read(), of tensors. What open_checkpoint() hashed is not in it.
  std::int64_t bytes_read() const;

  // A piece of a tensor of this checkpoint, in the order of its elements; `out` is of its size.
  void read(const Piece& wanted, std::span<std::byte> out) const;

 private:
  void check(const ManifestTensor& tensor) const;

  std::filesystem::path folder_;
  Manifest manifest_;
  std::map<std::string, SafetensorsFile, std::less<>> files_;
  std::map<std::string, std::size_t, std::less<>> index_;  // into manifest_.tensors
  std::vector<TensorEntry> entries_;
};

}  // namespace orthant
