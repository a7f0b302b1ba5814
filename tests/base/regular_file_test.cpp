#include "orthant/base/regular_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>

namespace orthant {
namespace regular_file_test {

namespace fs = std::filesystem;

class RegularFile : public testing::Test {
 protected:
  void SetUp() override { fs::create_directories(folder_); }
  void TearDown() override { fs::remove_all(folder_); }

  fs::path written(const std::string& text) const {
    std::ofstream(folder_ / "x") << text;
    return folder_ / "x";
  }

  static std::string problem(const fs::path& path, std::int64_t max_bytes = 1 << 20) {
    return read_regular_file(path, {.max_bytes = max_bytes}).problem.text;
  }

  const fs::path folder_ = fs::path(testing::TempDir()) / ("orthant_regular_" + std::to_string(getpid()));
};

TEST_F(RegularFile, IsReadWhole) {
  const std::string text(200'000, 'a');
  EXPECT_EQ(read_regular_file(written(text), {.max_bytes = 200'000}).text, text);
  EXPECT_EQ(read_regular_file(written(""), {.max_bytes = 0}).text, "");
  EXPECT_FALSE(read_regular_file(written(""), {.max_bytes = 0}).problem);
  EXPECT_NE(read_regular_file("/proc/self/stat", {.max_bytes = 1 << 16}).text, "") << "a file of no size yet";
}

TEST_F(RegularFile, IsRefusedBySizeBeforeItIsRead) {
  EXPECT_EQ(problem(written("12345"), 4), "it has 5 B, and such a file has at most 4 B");
  const auto sparse = written("{");
  ASSERT_EQ(::truncate(sparse.c_str(), off_t{1} << 42), 0);
  EXPECT_EQ(problem(sparse), "it has 4 TiB, and such a file has at most 1 MiB");
  EXPECT_TRUE(problem("/proc/self/smaps", 10).ends_with(", and such a file has at most 10 B")) << "it tells no size";
}

TEST_F(RegularFile, WithHolesIsNoText) {
  const auto sparse = written("{");
  ASSERT_EQ(::truncate(sparse.c_str(), off_t{1} << 30), 0);
  const auto read = read_regular_file(sparse, {.max_bytes = std::int64_t{1} << 31});
  EXPECT_EQ(read.problem.text, "byte 1 is zero, and no text has such a byte");
  EXPECT_LT(read.text.capacity(), 100u) << "memory was taken for the holes";
  EXPECT_EQ(read_regular_file(written(std::string(3, '\0')), {.max_bytes = 9, .only_text = false}).text.size(), 3u);
}

TEST_F(RegularFile, IsNoPipeDeviceFolderOrSocket) {
  ASSERT_EQ(mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  EXPECT_EQ(problem(folder_ / "pipe"), "it is a named pipe, not a regular file");
  EXPECT_EQ(problem("/dev/zero"), "it is a device, not a regular file");
  fs::create_symlink("/dev/zero", folder_ / "link");
  EXPECT_EQ(problem(folder_ / "link"), "it is a device, not a regular file");
  EXPECT_EQ(problem(folder_), "it is a folder");
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const auto name = (folder_ / "socket").string();
  ASSERT_LT(name.size(), sizeof address.sun_path);
  std::copy(name.begin(), name.end(), address.sun_path);
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  ASSERT_EQ(::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  EXPECT_EQ(problem(name), "it is a socket, not a regular file");
  ::close(fd);
}

TEST_F(RegularFile, NamesWhatTheSystemRefused) {
  const auto missing = read_regular_file(folder_ / "none", {.max_bytes = 1}).problem;
  EXPECT_EQ(missing.text, "No such file or directory");
  EXPECT_EQ(missing.error_number, ENOENT);
  EXPECT_EQ(missing.operation, "open");
  const auto below_a_file = read_regular_file(written("a") / "b", {.max_bytes = 1}).problem;
  EXPECT_EQ(below_a_file.text, "Not a directory");
  EXPECT_EQ(below_a_file.remedy, "check the path: a part of it is a file, not a folder");
  const auto too_long = read_regular_file(folder_ / std::string(300, 'n'), {.max_bytes = 1}).problem;
  EXPECT_EQ(too_long.text, "File name too long");
  EXPECT_EQ(too_long.remedy, "use a shorter path");
}

}  // namespace regular_file_test
}  // namespace orthant
