#include "orthant/files/whole_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <array>

#include "base/error_text.h"
#include "files/child_process.h"
#include "files/temporary_folder.h"
#include "orthant/files/file_handle.h"
#include "orthant/files/xxhash.h"

namespace orthant {
namespace whole_file_test {

using test::TemporaryFolder;
using Names = std::vector<std::string>;

TEST(WholeFile, ReadsBackWhatWasWritten) {
  const TemporaryFolder folder;
  std::string text(3'000'000, 'x');
  text[1'500'000] = '\0';
  write_file_atomically(folder / "a", text);
  EXPECT_EQ(read_file(folder / "a"), text);
  EXPECT_EQ(xxh64_of_block(folder / "a", 0, static_cast<std::int64_t>(text.size())), xxh64_of_file(folder / "a"));
  EXPECT_THROW(xxh64_of_block(folder / "a", 0, static_cast<std::int64_t>(text.size()) + 1), DataError);
  EXPECT_EQ(xxh64_of_file(folder / "a"), xxh64(std::as_bytes(std::span(text))));
  write_file_atomically(folder / "a", "");
  EXPECT_EQ(read_file(folder / "a"), "");
  EXPECT_EQ(folder.names(), (Names{"a"}));
}

TEST(WholeFile, ReadsFilesWithoutASize) {
  EXPECT_FALSE(read_file("/proc/self/status").empty());
}

TEST(WholeFile, AFailedReplacementLeavesTheOldFileAndNothingElse) {
  const TemporaryFolder folder;
  write_file_atomically(folder / "a", "old");
  EXPECT_TRUE(test::true_with_file_limit(1000, [&] {
    const std::string text =
        error_text<DataError>([&] { write_file_atomically(folder / "a", std::string(5000, 'n')); });
    return text.find("write of 4000 bytes after 1000 bytes written failed: File too large") != std::string::npos;
  }));
  EXPECT_EQ(read_file(folder / "a"), "old");
  EXPECT_EQ(folder.names(), (Names{"a"}));
}

TEST(WholeFile, AFailedRenameRemovesTheTemporaryFile) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / "a");
  const std::string text = error_text<DataError>([&] { write_file_atomically(folder / "a", "text"); });
  EXPECT_NE(text.find("rename to " + (folder / "a").string() + " failed: Is a directory"), std::string::npos) << text;
  EXPECT_EQ(folder.names(), (Names{"a"}));
}

TEST(WholeFile, ErrorsNamePathOperationAndReason) {
  const TemporaryFolder folder;
  const std::string missing = (folder / "none/a").string();
  EXPECT_EQ(error_text<DataError>([&] { read_file(missing); }),
            missing + ": open failed: No such file or directory\n  fix: check the path, and that its folder exists");
  EXPECT_EQ(error_text<DataError>([&] { read_file(folder / "a\northant: error: b"); }),
            folder.path().string() +
                "/a\\x0aorthant: error: b: open failed: No such file or directory\n"
                "  fix: check the path, and that its folder exists");
  EXPECT_EQ(error_text<DataError>([&] { read_file(folder.path()); }),
            folder.path().string() + ": it is a folder\n  fix: name a regular file");
  EXPECT_EQ(error_text<DataError>([&] { fsync_path(missing); }),
            missing + ": open failed: No such file or directory\n  fix: check the path, and that its folder exists");
  EXPECT_EQ(error_text<DataError>([] { write_file_atomically("/", "x"); }),
            "\"/\" does not name a file or folder that can be made");
}

TEST(FileHandle, AFullDeviceIsToldWithTheBytes) {
  FileHandle file("/dev/full", O_WRONLY);
  const std::string text =
      error_text<DataError>([&] { file.write_all(std::as_bytes(std::span(std::string_view("twelve bytes")))); });
  EXPECT_TRUE(text.starts_with(
      "/dev/full: write of 12 bytes after 0 bytes written failed: No space left on device\n  fix: free space"))
      << text;
}

TEST(FileHandle, ReadingPastTheEndIsAnError) {
  const TemporaryFolder folder;
  write_file_atomically(folder / "a", "12345");
  const FileHandle file(folder / "a", O_RDONLY);
  std::array<std::byte, 4> out;
  file.read_exactly(1, out);
  EXPECT_EQ(out[3], std::byte{'5'});
  const std::string text = error_text<DataError>([&] { file.read_exactly(2, out); });
  EXPECT_NE(text.find("ends at byte 5, but 1 more bytes were expected"), std::string::npos) << text;
}

TEST(WholeFile, OnlyRegularFilesOfABoundedSizeAreRead) {
  const TemporaryFolder folder;
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  const std::string pipe =
      (folder / "pipe").string() + ": it is a named pipe, not a regular file\n  fix: name a regular file";
  EXPECT_EQ(error_text<DataError>([&] { read_file(folder / "pipe"); }), pipe);
  EXPECT_EQ(error_text<DataError>([&] { xxh64_of_file(folder / "pipe"); }), pipe);
  EXPECT_EQ(error_text<DataError>([&] { xxh64_of_block(folder / "pipe", 0, 1); }), pipe);
  write_file_atomically(folder / "file", std::string(2, '\0'));
  EXPECT_EQ(read_file(folder / "file", 2), std::string(2, '\0'));
  EXPECT_EQ(error_text<DataError>([&] { read_file(folder / "file", 1); }),
            (folder / "file").string() +
                ": it has 2 B, and such a file has at most 1 B\n"
                "  fix: name the right file: this one is damaged or of another kind");
  EXPECT_EQ(error_text<DataError>([&] { read_text_file(folder / "file"); }),
            (folder / "file").string() +
                ": byte 0 is zero, and no text has such a byte\n"
                "  fix: the file is damaged, has holes or is of another kind: copy it again");
}

}  // namespace whole_file_test
}  // namespace orthant
