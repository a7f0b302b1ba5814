// A file read from front to back through a window of bytes that grows as far as its reader asks. Owns the open file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "orthant/files/file_handle.h"

namespace orthant {

class ByteWindow {
 public:
  // DataError for what cannot be opened or is not a regular file, or ends before `offset`.
  ByteWindow(const std::filesystem::path& path, std::int64_t offset);

  // Reads until the window holds `bytes`, or the file ends. Returns what it holds.
  std::size_t fill(std::size_t bytes);

  // Valid until the next call of fill() or consume().
  std::string_view view() const { return std::string_view(buffer_).substr(begin_); }

  void consume(std::size_t bytes);

  // Of the first byte of the window.
  std::int64_t offset() const { return end_ - static_cast<std::int64_t>(buffer_.size() - begin_); }

  void skip_byte_order_mark();  // of UTF-8

 private:
  void refuse_hole(std::string_view loaded) const;

  FileHandle file_;
  std::int64_t size_;
  std::int64_t end_;  // of what was read
  std::string buffer_;
  std::size_t begin_ = 0;  // of what is not consumed
};

}  // namespace orthant
