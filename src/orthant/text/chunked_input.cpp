#include "orthant/text/chunked_input.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "orthant/base/error.h"
#include "orthant/files/file_handle.h"

namespace orthant {

ChunkedInput::ChunkedInput(std::string name, std::size_t chunk_bytes)
    : name_(std::move(name)), chunk_bytes_(std::max<std::size_t>(chunk_bytes, 1)) {}
ChunkedInput::ChunkedInput(ChunkedInput&&) noexcept = default;
ChunkedInput& ChunkedInput::operator=(ChunkedInput&&) noexcept = default;
ChunkedInput::~ChunkedInput() = default;

ChunkedInput ChunkedInput::of_file(const std::filesystem::path& path, std::size_t chunk_bytes) {
  ChunkedInput input(path.string(), chunk_bytes);
  input.file_ = std::make_unique<FileHandle>(FileHandle::open_regular(path));
  input.skip_byte_order_mark();
  return input;
}

ChunkedInput ChunkedInput::of_text(std::string text, std::string name, std::size_t chunk_bytes) {
  ChunkedInput input(std::move(name), chunk_bytes);
  input.memory_ = std::move(text);
  input.skip_byte_order_mark();
  return input;
}

void ChunkedInput::skip_byte_order_mark() {
  constexpr std::string_view kMark = "\xef\xbb\xbf";
  while (!at_end_ && window().size() < kMark.size()) load_more();
  if (window().starts_with(kMark)) begin_ += kMark.size();
}

std::size_t ChunkedInput::read(char* out, std::size_t bytes) {
  if (file_ == nullptr) {
    const std::size_t taken = std::min(bytes, memory_.size() - memory_read_);
    std::copy_n(memory_.data() + memory_read_, taken, out);
    memory_read_ += taken;
    return taken;
  }
  while (true) {
    const ssize_t taken = ::read(file_->fd(), out, bytes);
    if (taken >= 0) return static_cast<std::size_t>(taken);
    if (errno != EINTR) throw_io_error(file_->path(), "read", errno);
  }
}

// A sparse file would be one row of zero bytes as long as the file claims to be.
void ChunkedInput::refuse_hole(std::string_view loaded) const {
  constexpr std::size_t kHoleBytes = 4096;
  if (file_ == nullptr || loaded.size() < kHoleBytes || loaded.find_first_not_of('\0') != std::string_view::npos)
    return;
  throw DataError(
      fmt::format("{}: {} bytes in a row are zero: the file has a hole, or is no text", name_, loaded.size()),
      {.remedy = "the file is damaged or of another kind: copy it again"});
}

void ChunkedInput::load_more() {
  if (at_end_) return;
  if (begin_ > 0) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  // A record longer than a chunk makes the window double, so that looking again at its beginning stays cheap.
  std::size_t wanted = end_ + std::max(chunk_bytes_, end_);
  if (file_ == nullptr) wanted = std::min(wanted, end_ + memory_.size() - memory_read_);
  if (buffer_.size() < wanted) buffer_.resize(wanted);
  const std::size_t taken = read(buffer_.data() + end_, wanted - end_);
  refuse_hole({buffer_.data() + end_, taken});
  end_ += taken;
  at_end_ = taken == 0;
}

void ChunkedInput::consume(std::size_t bytes) {
  place_ = place_in(window(), bytes, place_);
  begin_ += bytes;
}

TextPlace place_in(std::string_view text, std::size_t offset, TextPlace start) {
  const std::string_view before = text.substr(0, offset);
  const std::size_t last = before.rfind('\n');
  if (last == std::string_view::npos) return {start.line, start.column + static_cast<std::int64_t>(before.size())};
  return {start.line + std::count(before.begin(), before.end(), '\n'), static_cast<std::int64_t>(before.size() - last)};
}

}  // namespace orthant
