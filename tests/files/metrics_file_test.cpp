#include "orthant/files/metrics_file.h"

#include <gtest/gtest.h>

#include <memory>

#include "base/error_text.h"
#include "files/child_process.h"
#include "files/temporary_folder.h"
#include "orthant/files/whole_file.h"

namespace orthant {
namespace metrics_file_test {

using test::TemporaryFolder;

TEST(LineFile, AppendsLinesThatReadersSeeAtOnce) {
  const TemporaryFolder folder;
  LineFile file(folder / "metrics.jsonl");
  file.append(R"({"step":1})");
  EXPECT_EQ(read_file(folder / "metrics.jsonl"), "{\"step\":1}\n");
  file.append("");
  LineFile(folder / "metrics.jsonl").append(R"({"step":2})");
  EXPECT_EQ(read_file(folder / "metrics.jsonl"), "{\"step\":1}\n\n{\"step\":2}\n");
}

TEST(LineFile, DropsATornLastLineOnOpening) {
  const TemporaryFolder folder;
  for (const std::size_t torn_bytes : {1, 4095, 4096, 4097, 10000}) {
    write_file_atomically(folder / "m", "{\"step\":1}\n" + std::string(torn_bytes, 't'));
    LineFile(folder / "m").append(R"({"step":2})");
    EXPECT_EQ(read_file(folder / "m"), "{\"step\":1}\n{\"step\":2}\n") << torn_bytes << " torn bytes";
    write_file_atomically(folder / "m", std::string(torn_bytes, 't'));
    LineFile(folder / "m").append("a");
    EXPECT_EQ(read_file(folder / "m"), "a\n") << torn_bytes << " torn bytes";
  }
}

TEST(LineFile, RefusesALineBreakInsideALine) {
  const TemporaryFolder folder;
  LineFile file(folder / "m");
  EXPECT_EQ(error_text<InternalError>([&] { file.append("a\nb"); }),
            (folder / "m").string() + ": a line of 3 bytes holds a line break");
  EXPECT_EQ(read_file(folder / "m"), "");
}

TEST(LineFile, AFullDeviceIsADataError) {
  LineFile file("/dev/full");
  const std::string text = error_text<DataError>([&] { file.append("{}"); });
  EXPECT_TRUE(text.starts_with("/dev/full: write of 3 bytes after 0 bytes written failed: No space left on device"))
      << text;
}

TEST(LineFile, ALineThatDoesNotFitLeavesNothingBehindAndWaitsForRoom) {
  const TemporaryFolder folder;
  EXPECT_TRUE(test::true_with_file_limit(100, [&] {
    LineFile file(folder / "m");
    file.append(std::string(60, 'a'));
    const std::string text = error_text<DataError>([&] { file.append(std::string(60, 'b')); });
    const bool nothing_of_it = read_file(folder / "m") == std::string(60, 'a') + "\n";
    std::filesystem::resize_file(folder / "m", 0);  // room is made
    file.append("c");
    return text.find("File too large") != std::string::npos && nothing_of_it;
  }));
  EXPECT_EQ(read_file(folder / "m"), std::string(60, 'b') + "\nc\n");
}

void supersede(const TemporaryFolder& folder, std::int64_t step) {
  set_aside_lines_after_step(folder.path(), "m", step);
  cut_lines_after_step(folder.path(), "m", step);
}

TEST(SupersedeLines, KeepsStepsUpToTheResumedOneAndSetsTheOthersAside) {
  const TemporaryFolder folder;
  const auto path = folder / "m";
  const std::string text = "{\"run\":\"a\"}\n{\"step\":1}\n{\"loss\":0.5,\"step\":2}\n{\"step\":3}\n{\"step\":4";
  write_file_atomically(path, text);
  supersede(folder, 9);
  EXPECT_EQ(read_file(path), "{\"run\":\"a\"}\n{\"step\":1}\n{\"loss\":0.5,\"step\":2}\n{\"step\":3}\n");
  supersede(folder, 2);
  EXPECT_EQ(read_file(path), "{\"run\":\"a\"}\n{\"step\":1}\n{\"loss\":0.5,\"step\":2}\n");
  supersede(folder, 0);
  EXPECT_EQ(read_file(path), "{\"run\":\"a\"}\n");
  EXPECT_EQ(folder.names(), (std::vector<std::string>{"m", "m.superseded"}));
  EXPECT_EQ(read_file(folder / "m.superseded"), "{\"step\":3}\n{\"step\":1}\n{\"loss\":0.5,\"step\":2}\n");
}

TEST(SupersedeLines, LosesNoneWhenTheyCannotBeSetAside) {
  const TemporaryFolder folder;
  const std::string text = "{\"step\":1}\n{\"step\":2}\n";
  write_file_atomically(folder / "m", text);
  std::filesystem::create_directory(folder / "m.superseded");
  EXPECT_THROW(supersede(folder, 1), ConfigError);
  EXPECT_EQ(read_file(folder / "m"), text);
}

// Who can put a link there must not get to read what it leads to.
TEST(SupersedeLines, FollowsNoLink) {
  const TemporaryFolder folder;
  write_file_atomically(folder / "secret", "secret\n");
  write_file_atomically(folder / "m", "{\"step\":1}\n{\"step\":2}\n");
  std::filesystem::create_symlink(folder / "secret", folder / "m.superseded");
  EXPECT_TRUE(error_text<ConfigError>([&] { supersede(folder, 1); }).find("m.superseded: is a symbolic link") !=
              std::string::npos);
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "m.superseded"));
}

TEST(SupersedeLines, AreSetAsideOnceHoweverOftenItIsTried) {
  const TemporaryFolder folder;
  write_file_atomically(folder / "m", "{\"step\":1}\n{\"step\":2}\n");
  for (int i = 0; i < 3; ++i) set_aside_lines_after_step(folder.path(), "m", 1);
  EXPECT_EQ(read_file(folder / "m.superseded"), "{\"step\":2}\n");
  cut_lines_after_step(folder.path(), "m", 1);
  EXPECT_EQ(read_file(folder / "m"), "{\"step\":1}\n");
}

TEST(LastLine, IsTheLastWholeOne) {
  const TemporaryFolder folder;
  EXPECT_EQ(last_line(folder.path(), "m"), "");
  for (const std::size_t length : {0, 1, 4095, 4096, 10000}) {
    const std::string line(length, 'b');
    write_file_atomically(folder / "m", "a\n" + line + "\ntorn");
    EXPECT_EQ(last_line(folder.path(), "m"), line);
    write_file_atomically(folder / "m", line + "\n");
    EXPECT_EQ(last_line(folder.path(), "m"), line);
  }
}

TEST(HoldsLines, CountsWholeOnes) {
  const TemporaryFolder folder;
  EXPECT_FALSE(holds_lines(folder.path(), "m"));
  write_file_atomically(folder / "m", "{\"step\":1");
  EXPECT_FALSE(holds_lines(folder.path(), "m"));
  write_file_atomically(folder / "m", "{\"step\":1}\n");
  EXPECT_TRUE(holds_lines(folder.path(), "m"));
}

TEST(SupersedeLines, LeavesAMissingFileMissing) {
  const TemporaryFolder folder;
  supersede(folder, 3);
  EXPECT_TRUE(folder.names().empty());
}

TEST(SupersedeLines, NamesALineItCannotRead) {
  const TemporaryFolder folder;
  const std::string remedy = "\n  fix: remove that line, or move the file away";
  const auto error_of = [&](const std::string& line) {
    write_file_atomically(folder / "m", "{\"step\":1}\n" + line + "\n{\"step\":3}\n");
    return error_text<DataError>([&] { supersede(folder, 1); });
  };
  const std::string place = (folder / "m").string() + ":2: ";
  EXPECT_EQ(error_of("{\"step\":2"), place + "not a JSON object" + remedy);
  EXPECT_EQ(error_of("[2]"), place + "not a JSON object" + remedy);
  EXPECT_EQ(error_of(std::string(100'000, '[')), place + "not a JSON object" + remedy);
  EXPECT_EQ(error_of("{\"step\":2.5}"), place + "\"step\" is not a whole number" + remedy);
  EXPECT_EQ(error_of("{\"step\":18446744073709551615}"), place + "\"step\" is not a whole number" + remedy);
}

TEST(LineFile, IsNotWrittenByAnAttemptThatAnotherHasFollowed) {
  const TemporaryFolder folder;
  const auto lock = std::make_unique<FolderLock>(folder.path(), FolderWriter{"ab", 0});
  {
    LineFile file(folder.path(), "m", {folder.path(), {"ab", 0}});
    file.append("first");
    const FolderLock next(folder.path(), {"ab", 1});
    EXPECT_NE(error_text<CommError>([&] { file.append("late"); }).find("belongs to attempt 1"), std::string::npos);
    EXPECT_NE(error_text<CommError>([&] { file.flush(); }).find("belongs to attempt 1"), std::string::npos);
  }
  EXPECT_EQ(read_file(folder / "m"), "first\n");
  EXPECT_THROW(LineFile(folder.path(), "m", {folder.path(), {"ab", 0}}), CommError);
}

TEST(LineFile, LosesItsReadersToOneThatReplacesIt) {
  const TemporaryFolder folder;
  LineFile file(folder.path(), "m");
  file.append("first");
  replace_lines(folder.path(), "m");
  file.append("late");
  EXPECT_EQ(read_file(folder / "m"), "first\n");
  replace_lines(folder.path(), "none");
  EXPECT_EQ(folder.names(), std::vector<std::string>{"m"});
}

}  // namespace metrics_file_test
}  // namespace orthant
