#include "orthant/files/file_map.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cerrno>

namespace orthant {

FileMap::FileMap(const FileHandle& file, std::int64_t bytes) : bytes_(static_cast<std::size_t>(bytes)) {
  if (bytes_ == 0) return;
  void* const memory = ::mmap(nullptr, bytes_, PROT_READ, MAP_PRIVATE, file.fd(), 0);
  if (memory == MAP_FAILED) throw_io_error(file.path(), fmt::format("mmap of {} bytes", bytes_), errno);
  data_ = static_cast<const std::byte*>(memory);
}

FileMap::~FileMap() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), bytes_);
}

}  // namespace orthant
