#include "orthant/train/rank_log.h"

#include <gtest/gtest.h>

#include <regex>

#include "base/error_text.h"
#include "orthant/files/whole_file.h"
#include "train/training_ranks.h"

namespace orthant {
namespace rank_log_test {

TEST(RankLog, WritesEveryLineWithTheTimeAndWhatWasSaidBeforeItWasOpened) {
  const TestFolder folder("orthant-rank-log");
  for (const char* text : {"first", "again"}) {
    RankLog log;
    log.say(text);
    log.open(folder.path.string(), 3);
    log.say("two\nlines\n");
  }
  const std::string time = "\\d{4}-\\d\\d-\\d\\dT\\d\\d:\\d\\d:\\d\\dZ ";
  std::string expected;
  for (const char* line : {"first", "two", "lines", "again", "two", "lines"}) expected += time + line + "\n";
  const auto found = read_file(folder.path / "log" / "rank-3.log");
  EXPECT_TRUE(std::regex_match(found, std::regex(expected))) << found;
}

TEST(RankLog, AFolderThatCannotBeMadeIsRefused) {
  const TestFolder folder("orthant-rank-log");
  write_file_atomically(folder.path / "log", "");
  RankLog log;
  EXPECT_EQ(error_text<ConfigError>([&] { log.open(folder.path.string(), 2); }),
            (folder.path / "log").string() +
                ": is a file, and a run has a folder there\n  fix: move it away, or name another --output-dir");
  const auto gone = error_text<DataError>([&] { log.open((folder.path / "none").string(), 2); });
  EXPECT_EQ(gone,
            "rank 2: " + (folder.path / "none").string() +
                ": open failed: No such file or directory\n  fix: name an --output-dir that every rank can write");
}

// A link in the way is named; what it points to keeps every byte.
TEST(RankLog, NoLinkIsFollowed) {
  const TestFolder folder("orthant-rank-log");
  const TestFolder elsewhere("orthant-rank-log-elsewhere");
  RankLog log;
  const auto refusal = [&] { return error_text<ConfigError>([&] { log.open(folder.path.string(), 0); }); };
  const std::string why =
      ": is a symbolic link, and a run follows none in its output folder\n"
      "  fix: put the file or folder itself there, remove the link, or name another --output-dir";
  std::filesystem::create_directory_symlink(elsewhere.path, folder.path / "log");
  EXPECT_EQ(refusal(), (folder.path / "log").string() + why);
  EXPECT_TRUE(std::filesystem::is_empty(elsewhere.path));
  std::filesystem::remove(folder.path / "log");
  std::filesystem::create_directory(folder.path / "log");
  write_file_atomically(elsewhere.path / "mine", "torn");
  std::filesystem::create_symlink(elsewhere.path / "mine", folder.path / "log" / "rank-0.log");
  EXPECT_EQ(refusal(), (folder.path / "log" / "rank-0.log").string() + why);
  EXPECT_EQ(read_file(elsewhere.path / "mine"), "torn");
}

TEST(RankLog, BeginsWithWhereTheRankIs) {
  const auto line = start_line(Mesh::parse("dp=2,fsdp=2"), 3, "cpu");
  EXPECT_TRUE(line.starts_with("rank 3 of 4 started: host ")) << line;
  EXPECT_TRUE(
      line.ends_with(", process " + std::to_string(getpid()) + ", at dp=1,fsdp=1 of mesh dp=2,fsdp=2, device cpu"))
      << line;
  EXPECT_NE(start_line(Mesh(), 0, "cpu").find(", at dp=0 of mesh dp=1,"), std::string::npos);
}

}  // namespace rank_log_test
}  // namespace orthant
