// The tensors of a Hugging Face folder as one set of names: `model.safetensors`, or the shards that
// `model.safetensors.index.json` lists, or one .safetensors file given directly. Nothing in it is trusted, and pickles
// are never read. Errors are DataErrors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "orthant/files/safetensors.h"

namespace orthant {

struct FolderTensor {
  TensorEntry entry;
  std::string file;  // inside the folder
};

// A handle: copies share everything. open() checks every file's header and the index against each other; a few files
// are kept open at a time, however many there are. Functions may be called from several threads at once.
class TensorFolder {
 public:
  // A folder or a .safetensors file. Where a folder has both forms the single file counts, as in transformers.
  static TensorFolder open(const std::filesystem::path& path);

  const std::filesystem::path& path() const;         // as given
  const std::vector<FolderTensor>& tensors() const;  // in order of name; all that the files hold
  const std::vector<std::string>& files() const;     // in order of name
  bool contains(std::string_view name) const;

  // DataError naming the nearest tensor when there is none of that name; so do all below.
  const FolderTensor& tensor(std::string_view name) const;

  // All of a tensor into the caller's memory, without a copy in between; InternalError when `out` is not of its size.
  void read(std::string_view name, std::span<std::byte> out) const;

  // A part of it, from byte `offset` on; a box of it. As in SafetensorsFile.
  void read(std::string_view name, std::int64_t offset, std::span<std::byte> out) const;
  void read_slice(std::string_view name, std::span<const std::int64_t> offsets, std::span<const std::int64_t> lengths,
                  std::span<std::byte> out) const;

  // By all reads of this handle and its copies, headers not counted.
  std::int64_t bytes_read() const;

 private:
  struct State;
  explicit TensorFolder(std::shared_ptr<State> state);

  std::shared_ptr<State> state_;
};

struct TensorFolderOptions {
  std::int64_t max_shard_bytes = 5'000'000'000;       // of tensors; one that is larger has a shard of its own
  SafetensorsMetadata metadata = {{"format", "pt"}};  // transformers refuses files without it
  // Several writers share the shards in turn: this one of `writers` writes each that comes to its number, and the first
  // one the index as well.
  int writer = 0;
  int writers = 1;
};

// Gives the tensor's bytes to `put`, in order, in one or more chunks. Called once for each tensor that has bytes, in
// the writer's order: by file, wide elements first.
using PutBytes = std::function<void(std::span<const std::byte> bytes)>;
using TensorSource = std::function<void(const TensorEntry& entry, const PutBytes& put)>;

// Writes model.safetensors, or shards `model-00001-of-00003.safetensors` and their index, into a folder that exists,
// for callers who put more into an AtomicFolder (config.json) before they commit it. Gives the names of all files,
// whoever writes them.
std::vector<std::string> write_tensor_files(const std::filesystem::path& folder,
                                            const std::vector<TensorEntry>& entries, const TensorSource& source,
                                            const TensorFolderOptions& options = {});

// The same as a folder that appears complete or not at all; refuses a path that exists.
std::vector<std::string> write_tensor_folder(const std::filesystem::path& path, const std::vector<TensorEntry>& entries,
                                             const TensorSource& source, const TensorFolderOptions& options = {});

}  // namespace orthant
