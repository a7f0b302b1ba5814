#include "orthant/files/whole_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

#include "orthant/base/error.h"
#include "orthant/files/file_handle.h"
#include "orthant/files/partial.h"
#include "orthant/files/xxhash.h"

namespace orthant {
namespace {

std::string read_with(const std::filesystem::path& path, const ReadLimits& limits) {
  auto [text, problem] = read_regular_file(path, limits);
  if (problem) throw_file_problem(path, problem);
  return std::move(text);
}

// Calls take(bytes) with one chunk after another until the file ends.
template <typename Take>
void read_chunks(const std::filesystem::path& path, const Take& take) {
  constexpr std::size_t kChunkBytes = std::size_t{1} << 20;
  const FileHandle file = FileHandle::open_regular(path);
  std::vector<std::byte> chunk(kChunkBytes);
  std::int64_t done = 0;
  while (true) {
    const ssize_t count = ::read(file.fd(), chunk.data(), chunk.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw_io_error(path, fmt::format("read at byte {}", done), errno);
    if (count == 0) return;
    take(std::span<const std::byte>(chunk).first(static_cast<std::size_t>(count)));
    done += count;
  }
}

}  // namespace

std::string read_file(const std::filesystem::path& path, std::int64_t max_bytes) {
  return read_with(path, {.max_bytes = max_bytes, .only_text = false});
}

std::string read_text_file(const std::filesystem::path& path, std::int64_t max_bytes) {
  return read_with(path, {.max_bytes = max_bytes});
}

std::uint64_t xxh64_of_file(const std::filesystem::path& path) {
  Xxh64 hash;
  read_chunks(path, [&](std::span<const std::byte> bytes) { hash.update(bytes); });
  return hash.digest();
}

std::uint64_t xxh64_of_block(const std::filesystem::path& path, std::int64_t block, std::int64_t file_bytes,
                             const TakeBytes& take) {
  const FileHandle file = FileHandle::open_regular(path);
  const auto end = std::min(file_bytes, (block + 1) * kHashedBlockBytes);
  std::vector<std::byte> chunk(std::size_t{256} << 10);  // stays in a cache between its reading and its hashing
  Xxh64 hash;
  for (auto place = block * kHashedBlockBytes; place < end;) {
    const auto part = std::span(chunk).first(
        static_cast<std::size_t>(std::min(end - place, static_cast<std::int64_t>(chunk.size()))));
    file.read_exactly(place, part);
    hash.update(part);
    if (take) take(part);
    place += static_cast<std::int64_t>(part.size());
  }
  return hash.digest();
}

void fsync_path(const std::filesystem::path& path) {
  FileHandle(path, O_RDONLY).sync();
}

void write_file_atomically(const std::filesystem::path& path, std::string_view text) {
  const std::filesystem::path target = final_path_of(path);
  FileHandle file = make_partial_file(target);
  try {
    file.write_all(std::as_bytes(std::span(text)));
    file.sync();
    if (::rename(file.path().c_str(), target.c_str()) != 0) {
      throw_io_error(file.path(), fmt::format("rename to {}", target.string()), errno);
    }
    file.close();
  } catch (const DataError&) {
    std::error_code ignored;
    std::filesystem::remove(file.path(), ignored);
    throw;
  }
  fsync_path(target.parent_path());
}

}  // namespace orthant
