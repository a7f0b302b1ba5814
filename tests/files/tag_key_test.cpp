#include "orthant/files/tag_key.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "base/error_text.h"
#include "files/temporary_folder.h"
#include "orthant/files/whole_file.h"
#include "orthant/files/xxhash.h"

namespace orthant {
namespace tag_key_test {

using test::TemporaryFolder;

std::shared_ptr<const TagKey> key_of(char letter) {
  return std::make_shared<const TagKey>(std::vector<std::byte>(32, static_cast<std::byte>(letter)));
}

std::vector<std::string> tags_of(const std::shared_ptr<const TagKey>& key, const TaggedFile& file,
                                 const std::string& text, std::size_t chunk = 1000) {
  BlockTags tags(key, file);
  const auto bytes = std::as_bytes(std::span(text));
  for (std::size_t begin = 0; begin < bytes.size(); begin += chunk) {
    tags.update(bytes.subspan(begin, std::min(chunk, bytes.size() - begin)));
  }
  return tags.digests();
}

TEST(TagKey, IsRefusedWhenOthersMayReadIt) {
  const TemporaryFolder folder;
  const auto path = folder / "key";
  write_file_atomically(path, std::string(32, 'k'));
  for (const mode_t mode : {0640, 0604, 0660, 0610}) {
    ::chmod(path.c_str(), mode);
    EXPECT_NE(error_text<ConfigError>([&] { TagKey::load(path); }).find("\n  fix: chmod 600 " + path.string()),
              std::string::npos);
  }
  for (const mode_t mode : {0600, 0400}) {
    ::chmod(path.c_str(), mode);
    EXPECT_EQ(TagKey::load(path)->bytes().size(), 32U);
  }
}

TEST(TagKey, IsRefusedWhenItIsShortOrNoFile) {
  const TemporaryFolder folder;
  write_file_atomically(folder / "short", std::string(31, 'k'));
  ::chmod((folder / "short").c_str(), 0600);
  EXPECT_TRUE(error_text<ConfigError>([&] {
                TagKey::load(folder / "short");
              }).starts_with("key file " + (folder / "short").string() + ": holds 31 bytes; a key has 32 to 4096"));
  std::filesystem::create_directory(folder / "folder");
  EXPECT_THROW(TagKey::load(folder / "folder"), ConfigError);
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_THROW(TagKey::load(folder / "pipe"), ConfigError);
  const auto text = error_text<ConfigError>([&] { TagKey::load(folder / "none"); });
  EXPECT_TRUE(text.starts_with("key file " + (folder / "none").string() + ": there is no such file")) << text;
}

TEST(TagKey, NeverSaysToOverwriteAFile) {
  const TemporaryFolder folder;
  write_file_atomically(folder / "notes.txt", "short");
  ::chmod((folder / "notes.txt").c_str(), 0600);
  const auto text = error_text<ConfigError>([&] { TagKey::load(folder / "notes.txt"); });
  EXPECT_NE(text.find("head -c 32 /dev/urandom > NEW && chmod 600 NEW"), std::string::npos) << text;
  EXPECT_EQ(text.find("> " + (folder / "notes.txt").string()), std::string::npos) << text;
}

TEST(BlockTags, VouchForEverythingTheFileIs) {
  const TaggedFile file{"a1", 4, "rank-0.safetensors"};
  const auto tags = tags_of(key_of('k'), file, "contents");
  ASSERT_EQ(tags.size(), 1U);
  EXPECT_EQ(tags.front().size(), 64U);
  EXPECT_EQ(tags_of(key_of('k'), file, "contents", 1), tags);
  EXPECT_NE(tags_of(key_of('l'), file, "contents"), tags);
  EXPECT_NE(tags_of(key_of('k'), {"a2", 4, file.name}, "contents"), tags);
  EXPECT_NE(tags_of(key_of('k'), {"a1", 5, file.name}, "contents"), tags);
  EXPECT_NE(tags_of(key_of('k'), {"a1", 4, "rank-1.safetensors"}, "contents"), tags);
  EXPECT_NE(tags_of(key_of('k'), file, "contentz"), tags);
}

TEST(BlockTags, OfALongFileAreOfItsBlocks) {
  const TaggedFile file{"a1", 4, "rank-0.safetensors"};
  const auto size = static_cast<std::size_t>(kHashedBlockBytes);
  const std::string text(size + 5, 'x');
  const auto tags = tags_of(key_of('k'), file, text, 700'001);
  ASSERT_EQ(tags.size(), 2U);
  BlockTags second(key_of('k'), file, /*first_block=*/1);
  second.update(std::as_bytes(std::span(text).subspan(size)));
  EXPECT_EQ(second.digests(), std::vector<std::string>{tags[1]});
  EXPECT_EQ(tags_of(key_of('k'), file, text.substr(0, size)), std::vector<std::string>{tags[0]});
}

TEST(ManifestTag, IsOfTheWholeText) {
  const auto tag = manifest_tag(*key_of('k'), "{}");
  EXPECT_NE(manifest_tag(*key_of('k'), "{ }"), tag);
  EXPECT_TRUE(equal_tags(tag, manifest_tag(*key_of('k'), "{}")));
  EXPECT_FALSE(equal_tags(tag, tag.substr(1)));
  EXPECT_NE(new_checkpoint_id(), new_checkpoint_id());
  EXPECT_EQ(new_checkpoint_id().size(), 32U);
}

}  // namespace tag_key_test
}  // namespace orthant
