#include "orthant/data/byte_window.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "orthant/base/error.h"

namespace orthant {
namespace {

constexpr std::size_t kChunkBytes = std::size_t{1} << 20;

}  // namespace

ByteWindow::ByteWindow(const std::filesystem::path& path, std::int64_t offset)
    : file_(FileHandle::open_regular(path)), end_(offset) {
  size_ = file_.size();
  if (offset > size_) {
    throw DataError(fmt::format("{}: ends at byte {}, but byte {} was reached before", path.string(), size_, offset),
                    {.remedy = "bring the whole file back, or start anew with --force"});
  }
}

// Text of nothing but zero bytes is a sparse file, which may claim to be of any length.
void ByteWindow::refuse_hole(std::string_view loaded) const {
  if (loaded.size() < kChunkBytes || loaded.find_first_not_of('\0') != std::string_view::npos) return;
  throw DataError(fmt::format("{}: {} bytes from byte {} on are zero: the file has a hole, or is no text",
                              file_.path().string(), loaded.size(), end_),
                  {.remedy = "the file is damaged or of another kind: copy it again"});
}

std::size_t ByteWindow::fill(std::size_t bytes) {
  while (buffer_.size() - begin_ < bytes && end_ < size_) {
    if (begin_ > 0) buffer_.erase(0, begin_);
    begin_ = 0;
    const auto had = buffer_.size();
    buffer_.resize(had + static_cast<std::size_t>(std::min<std::int64_t>(kChunkBytes, size_ - end_)));
    file_.read_exactly(end_, std::as_writable_bytes(std::span(buffer_).subspan(had)));
    refuse_hole(std::string_view(buffer_).substr(had));
    end_ += static_cast<std::int64_t>(buffer_.size() - had);
  }
  return buffer_.size() - begin_;
}

void ByteWindow::consume(std::size_t bytes) {
  begin_ += bytes;
}

void ByteWindow::skip_byte_order_mark() {
  fill(3);
  if (view().starts_with("\xef\xbb\xbf")) consume(3);
}

}  // namespace orthant
