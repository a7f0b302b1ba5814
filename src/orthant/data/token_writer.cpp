#include "orthant/data/token_writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>

#include "orthant/base/error.h"

namespace orthant {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{1} << 20;

FileHandle open_at(const std::filesystem::path& path, std::int64_t bytes) {
  FileHandle file(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK);
  if (file.size() < bytes) {
    throw DataError(fmt::format("{} has {} bytes, but {} says that {} were written", path.string(), file.size(),
                                kTokenIndexFile, bytes),
                    {.remedy = "start anew with --force"});
  }
  file.truncate(bytes);
  if (::lseek(file.fd(), bytes, SEEK_SET) < 0) throw_io_error(path, "lseek", errno);
  return file;
}

template <typename Number>
void append(std::vector<std::byte>& buffer, Number number) {
  const auto bytes = std::as_bytes(std::span(&number, 1));
  buffer.insert(buffer.end(), bytes.begin(), bytes.end());
}

}  // namespace

TokenWriter::TokenWriter(const std::filesystem::path& folder, const TokenIndex& index)
    : token_bytes_(index.token_bytes),
      tokens_(open_at(folder / kTokensFile, index.tokens * index.token_bytes)),
      documents_(open_at(folder / kDocumentsFile, index.documents * 8)) {
  if (index.documents == 0) return;
  std::uint64_t end = 0;
  documents_.read_exactly((index.documents - 1) * 8, std::as_writable_bytes(std::span(&end, 1)));
  first_end_ = static_cast<std::int64_t>(end);
  if (first_end_ < 0 || first_end_ > index.tokens) {
    throw DataError(
        fmt::format("{}: the last document ends at token {} of {}", documents_.path().string(), end, index.tokens),
        {.remedy = "start anew with --force"});
  }
}

void TokenWriter::add(std::span<const std::int32_t> ids) {
  for (const std::int32_t id : ids) {
    if (token_bytes_ == 2) {
      append(token_buffer_, static_cast<std::uint16_t>(id));
    } else {
      append(token_buffer_, static_cast<std::uint32_t>(id));
    }
  }
  if (token_buffer_.size() >= kBufferBytes) write(tokens_, token_buffer_);
}

void TokenWriter::end_document(std::int64_t end) {
  append(document_buffer_, static_cast<std::uint64_t>(end));
  if (document_buffer_.size() >= kBufferBytes) write(documents_, document_buffer_);
}

void TokenWriter::write(FileHandle& file, std::vector<std::byte>& buffer) {
  file.write_all(buffer);
  buffer.clear();
}

void TokenWriter::flush() {
  write(tokens_, token_buffer_);
  write(documents_, document_buffer_);
  tokens_.sync();
  documents_.sync();
}

}  // namespace orthant
