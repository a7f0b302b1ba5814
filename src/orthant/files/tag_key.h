// A secret key that lies in a file, and the tags that it makes: HMAC-SHA-256 of a text, and of the blocks of a file
// with what the file is. Who does not have the key can neither make a tag nor move one to another file, block or
// checkpoint. The hashes in xxhash.h find damage; these find forgery.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "orthant/base/sha256.h"

namespace orthant {

class TagKey {
 public:
  static constexpr std::size_t kLeastBytes = 32;

  explicit TagKey(std::vector<std::byte> bytes, std::filesystem::path path = {})
      : bytes_(std::move(bytes)), path_(std::move(path)) {}

  // ConfigError, with what to run, for a file that is not there, that others may read or own, that is too short or no
  // regular file; IoError when it cannot be read.
  static std::shared_ptr<const TagKey> load(const std::filesystem::path& path);

  std::span<const std::byte> bytes() const { return bytes_; }
  const std::filesystem::path& path() const { return path_; }  // it was read from

 private:
  std::vector<std::byte> bytes_;
  std::filesystem::path path_;
};

// What a file of a checkpoint is, which its tags vouch for.
struct TaggedFile {
  std::string checkpoint;  // the id in its manifest
  std::int64_t step = 0;
  std::string name;  // in the checkpoint's folder
};

// The tags of a file's blocks (kHashedBlockBytes, see xxhash.h), taken in chunks of any size.
class BlockTags {
 public:
  BlockTags(std::shared_ptr<const TagKey> key, TaggedFile file, std::int64_t first_block = 0);

  void update(std::span<const std::byte> bytes);

  // 64 lower-case hexadecimal digits each.
  std::vector<std::string> digests() const;

 private:
  HmacSha256 begun(std::int64_t block) const;

  std::shared_ptr<const TagKey> key_;
  TaggedFile file_;
  std::int64_t first_block_;
  std::vector<std::string> whole_blocks_;
  HmacSha256 last_;
  std::int64_t last_bytes_ = 0;
};

// Of a whole manifest.
std::string manifest_tag(const TagKey& key, std::string_view text);

// 32 hexadecimal digits that no other checkpoint has.
std::string new_checkpoint_id();

// In a time that does not tell where they differ.
bool equal_tags(std::string_view a, std::string_view b);

}  // namespace orthant
