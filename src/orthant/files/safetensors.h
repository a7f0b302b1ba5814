// Files of named tensors in the safetensors format: a length, a JSON header, and the tensors' bytes without gaps.
// Written as a stream, read by parts or through a memory map; other programs' files are read too, and nothing in them
// is trusted. A malformed file is a DataError that names the file, the tensor and the numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "orthant/files/file_handle.h"
#include "orthant/files/tag_key.h"
#include "orthant/files/xxhash.h"

namespace orthant {

struct TensorEntry {
  std::string name;
  std::string dtype;  // "F32", see element_type.h
  std::vector<std::int64_t> shape;
  friend bool operator==(const TensorEntry&, const TensorEntry&) = default;
};

// Free text about the file, kept in its header.
using SafetensorsMetadata = std::map<std::string, std::string>;

// The size of the tensor's contents; DataError for an unknown dtype, a negative dimension, or a size beyond 63 bits.
std::int64_t tensor_bytes(const TensorEntry& entry);

// What a checkpoint's manifest says of a file.
struct WrittenFile {
  std::int64_t bytes = 0;
  std::vector<std::uint64_t> xxh64;  // of its hashed blocks, see xxhash.h
  std::vector<std::string> hmac;     // the tags of these blocks, where there is a key
};

// Creates or empties the file; destroyed without finish(), it removes the file. The tensors lie in the order declared:
// declare wide elements first where readers want them aligned.
class SafetensorsWriter {
 public:
  SafetensorsWriter(const std::filesystem::path& path, std::vector<TensorEntry> entries,
                    const SafetensorsMetadata& metadata = {}, std::optional<BlockTags> tags = {},
                    bool must_be_new = false);
  ~SafetensorsWriter();
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;

  // Tensors in the order declared, each in one or more chunks; InternalError when the caller strays from that. A tensor
  // of no bytes may be left out.
  void write(std::string_view name, std::span<const std::byte> bytes);

  // Blocks until the file is on the device. InternalError when bytes are missing. Once.
  WrittenFile finish();

 private:
  void put(std::span<const std::byte> bytes);
  void skip_full();
  void remove_file() noexcept;

  std::vector<TensorEntry> entries_;
  std::string header_;
  FileHandle file_;
  BlockHashes hashes_;
  std::optional<BlockTags> tags_;
  std::int64_t bytes_ = 0;
  std::size_t current_ = 0;          // index of the tensor being written
  std::int64_t current_bytes_ = 0;   // of it so far
  std::int64_t expected_bytes_ = 0;  // of it in all
  bool finished_ = false;
};

// A handle on an open file: copies share everything. The whole header is checked by open(); contents are read when
// asked for. Functions may be called from several threads at once.
//
// Every file that this accepts the PyPI package `safetensors` accepts. Of what the package accepts, these are refused:
// a header that begins with white space, a name or metadata key given twice, `"__metadata__": null`, a tensor's
// description as an array, as a type other than a string, or with unknown keys, more than 64 dimensions, a shape whose
// dimensions other than 0 multiply beyond 63 bits (which only a tensor without bytes can have), and element types of 4
// and 6 bits (F4, F6_E2M3, F6_E3M2).
class SafetensorsFile {
 public:
  static SafetensorsFile open(const std::filesystem::path& path);

  const std::filesystem::path& path() const;
  const std::vector<TensorEntry>& entries() const;  // in order of their place in the file
  const SafetensorsMetadata& metadata() const;
  bool contains(std::string_view name) const;

  // DataError naming the nearest tensor when there is none of that name; so do all below.
  const TensorEntry& entry(std::string_view name) const;

  // The tensor's bytes in a memory map, made by the first call; valid while a copy of this handle lives; as aligned as
  // the file's writer left them. A file that somebody cuts short while it is mapped kills the reader (SIGBUS).
  std::span<const std::byte> bytes(std::string_view name) const;

  // Copies a part of a tensor, from its byte `offset` on, through a plain read whose failures are DataErrors. No map
  // and no buffer in between: one call of the system for up to 2 GiB.
  void read(std::string_view name, std::int64_t offset, std::span<std::byte> out) const;

  // Copies the box [offsets, offsets + lengths) of a tensor, row-major, likewise: one read for each contiguous run of
  // the box, and no byte besides. InternalError when the box leaves the tensor or `out` is not of its size.
  void read_slice(std::string_view name, std::span<const std::int64_t> offsets, std::span<const std::int64_t> lengths,
                  std::span<std::byte> out) const;

  // By read() and read_slice() of this handle and its copies. The header, 8 bytes and its length, and what is touched
  // through bytes() are not counted.
  std::int64_t bytes_read() const;

 private:
  struct State;
  explicit SafetensorsFile(std::shared_ptr<const State> state);

  std::shared_ptr<const State> state_;
};

}  // namespace orthant
