#include "orthant/files/tag_key.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "orthant/base/error.h"
#include "orthant/files/file_handle.h"
#include "orthant/files/path_facts.h"
#include "orthant/files/xxhash.h"

namespace orthant {
namespace {

constexpr std::int64_t kMostBytes = 4096;

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

}  // namespace

std::shared_ptr<const TagKey> TagKey::load(const std::filesystem::path& path) {
  const auto refuse = [&](const std::string& what, const std::string& remedy) {
    throw ConfigError(fmt::format("key file {}: {}", path.string(), what), {.remedy = remedy});
  };
  // Never onto a file that is there: it may be the key of other checkpoints, or no key at all.
  const std::string make_one = "name a key file; a new one: head -c 32 /dev/urandom > NEW && chmod 600 NEW";
  if (!is_there(path)) refuse("there is no such file", make_one);
  const FileHandle file(path, O_RDONLY | O_NONBLOCK);
  struct stat status{};
  if (::fstat(file.fd(), &status) != 0) throw_io_error(path, "fstat", errno);
  if (!S_ISREG(status.st_mode)) refuse("is no regular file", make_one);
  if (status.st_uid != ::geteuid()) {
    refuse(fmt::format("belongs to user {}, not to {}", status.st_uid, ::geteuid()),
           fmt::format("chown {} {}", ::geteuid(), path.string()));
  }
  if ((status.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    refuse(fmt::format("others may use it (mode {:03o})", status.st_mode & 0777U),
           fmt::format("chmod 600 {}", path.string()));
  }
  if (status.st_size < static_cast<std::int64_t>(kLeastBytes) || status.st_size > kMostBytes) {
    refuse(fmt::format("holds {} bytes; a key has {} to {}", status.st_size, kLeastBytes, kMostBytes), make_one);
  }
  std::vector<std::byte> bytes(static_cast<std::size_t>(status.st_size));
  file.read_exactly(0, bytes);
  return std::make_shared<const TagKey>(std::move(bytes), path);
}

BlockTags::BlockTags(std::shared_ptr<const TagKey> key, TaggedFile file, std::int64_t first_block)
    : key_(std::move(key)), file_(std::move(file)), first_block_(first_block), last_(begun(first_block)) {}

// Every field says its length or ends in a line break that it cannot hold: no two files begin alike.
HmacSha256 BlockTags::begun(std::int64_t block) const {
  HmacSha256 tag(key_->bytes());
  tag.update(bytes_of(fmt::format("orthant checkpoint file\n{}:{}\n{}\n{}:{}\n{}\n", file_.checkpoint.size(),
                                  file_.checkpoint, file_.step, file_.name.size(), file_.name, block)));
  return tag;
}

void BlockTags::update(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    if (last_bytes_ == kHashedBlockBytes) {
      whole_blocks_.push_back(digest_text(last_.digest()));
      last_ = begun(first_block_ + static_cast<std::int64_t>(whole_blocks_.size()));
      last_bytes_ = 0;
    }
    const auto room = static_cast<std::size_t>(kHashedBlockBytes - last_bytes_);
    const auto part = bytes.first(std::min(bytes.size(), room));
    last_.update(part);
    last_bytes_ += static_cast<std::int64_t>(part.size());
    bytes = bytes.subspan(part.size());
  }
}

std::vector<std::string> BlockTags::digests() const {
  auto all = whole_blocks_;
  all.push_back(digest_text(last_.digest()));
  return all;
}

std::string manifest_tag(const TagKey& key, std::string_view text) {
  HmacSha256 tag(key.bytes());
  tag.update(bytes_of("orthant checkpoint manifest\n"));
  tag.update(bytes_of(text));
  return digest_text(tag.digest());
}

std::string new_checkpoint_id() {
  std::array<unsigned char, 16> drawn{};
  for (std::size_t have = 0; have < drawn.size();) {
    const auto got = ::getrandom(drawn.data() + have, drawn.size() - have, 0);
    if (got < 0 && errno != EINTR) throw InternalError("the system gives no random numbers");
    if (got > 0) have += static_cast<std::size_t>(got);
  }
  std::string text;
  for (const unsigned char byte : drawn) text += fmt::format("{:02x}", byte);
  return text;
}

bool equal_tags(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned char different = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    different =
        static_cast<unsigned char>(different | (static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i])));
  }
  return different == 0;
}

}  // namespace orthant
