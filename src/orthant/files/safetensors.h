// Files of named tensors in the safetensors format: a length, a JSON header, and the tensors' bytes without gaps.
// Written as a stream and read through a memory map; other programs' files are read too, and nothing in them is
// trusted. A malformed file is a DataError that names the file, the tensor and the numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "orthant/files/file_handle.h"
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
  std::uint64_t xxh64 = 0;  // of the whole file
};

// Creates or empties the file; destroyed without finish(), it removes the file. The tensors lie in the order declared:
// declare wide elements first where readers want them aligned.
class SafetensorsWriter {
 public:
  SafetensorsWriter(const std::filesystem::path& path, std::vector<TensorEntry> entries,
                    const SafetensorsMetadata& metadata = {});
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
  Xxh64 hash_;
  std::int64_t bytes_ = 0;
  std::size_t current_ = 0;          // index of the tensor being written
  std::int64_t current_bytes_ = 0;   // of it so far
  std::int64_t expected_bytes_ = 0;  // of it in all
  bool finished_ = false;
};

// A handle on an open file: copies share the map. The whole header is checked by open(); contents are read when
// touched.
class SafetensorsFile {
 public:
  static SafetensorsFile open(const std::filesystem::path& path);

  const std::filesystem::path& path() const;
  const std::vector<TensorEntry>& entries() const;  // in order of their place in the file
  const SafetensorsMetadata& metadata() const;
  bool contains(std::string_view name) const;

  // DataError naming the nearest tensor when there is none of that name; so do all below.
  const TensorEntry& entry(std::string_view name) const;

  // The tensor's bytes in the map, valid while a copy of this handle lives; as aligned as the file's writer left them.
  // A file that somebody cuts short while it is mapped kills the reader (SIGBUS).
  std::span<const std::byte> bytes(std::string_view name) const;

  // Copies a part of a tensor, from its byte `offset` on, through a plain read whose failures are DataErrors.
  void read(std::string_view name, std::int64_t offset, std::span<std::byte> out) const;

 private:
  struct State;
  explicit SafetensorsFile(std::shared_ptr<const State> state);

  std::shared_ptr<const State> state_;
};

}  // namespace orthant
