// The bytes of a file, mapped for reading. An empty file has no memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "orthant/files/file_handle.h"

namespace orthant {

class FileMap {
 public:
  // The first `bytes` of the file, which may be closed afterwards. DataError.
  FileMap(const FileHandle& file, std::int64_t bytes);
  FileMap(const FileMap&) = delete;
  FileMap& operator=(const FileMap&) = delete;
  ~FileMap();

  const std::byte* data() const { return data_; }

 private:
  std::size_t bytes_;
  const std::byte* data_ = nullptr;
};

}  // namespace orthant
