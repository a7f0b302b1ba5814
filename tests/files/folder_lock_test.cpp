#include "orthant/files/folder_lock.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <memory>

#include "base/error_text.h"
#include "files/child_process.h"
#include "files/temporary_folder.h"

namespace orthant {
namespace folder_lock_test {

using test::ChildThatStays;
using test::TemporaryFolder;

std::string refusal(const TemporaryFolder& folder, pid_t holder) {
  std::array<char, 256> host{};
  EXPECT_EQ(gethostname(host.data(), host.size() - 1), 0);
  return "output folder " + folder.path().string() + " is in use by process " + std::to_string(holder) + " (host " +
         host.data() + ")\n  fix: wait until it has ended, or choose another output folder";
}

TEST(FolderLock, ASecondProcessIsToldWhoHoldsIt) {
  const TemporaryFolder folder;
  ChildThatStays child([&] { return std::make_unique<FolderLock>(folder.path()); });
  EXPECT_EQ(error_text<ConfigError>([&] { FolderLock(folder.path()); }), refusal(folder, child.pid()));
  EXPECT_EQ(error_text<ConfigError>([&] { FolderLock(folder.path()); }), refusal(folder, child.pid()));
}

TEST(FolderLock, IsFreeOnceItsHolderWasKilled) {
  const TemporaryFolder folder;
  ChildThatStays child([&] { return std::make_unique<FolderLock>(folder.path()); });
  child.end();
  const FolderLock lock(folder.path());
  EXPECT_EQ(error_text<ConfigError>([&] { FolderLock(folder.path()); }), refusal(folder, getpid()));
}

TEST(FolderLock, LookingTakesAndMakesNothing) {
  const TemporaryFolder folder;
  FolderLock::check_free(folder.path());
  EXPECT_TRUE(folder.names().empty());
  ChildThatStays child([&] { return std::make_unique<FolderLock>(folder.path()); });
  EXPECT_EQ(error_text<ConfigError>([&] { FolderLock::check_free(folder.path()); }), refusal(folder, child.pid()));
  child.end();
  FolderLock::check_free(folder.path());
  EXPECT_NO_THROW(FolderLock(folder.path()));
}

TEST(FolderLock, IsFreeAfterItsScope) {
  const TemporaryFolder folder;
  for (int round = 0; round < 3; ++round) EXPECT_NO_THROW(FolderLock(folder.path())) << "round " << round;
}

TEST(FolderLock, AFolderThatDoesNotExistIsADataError) {
  const TemporaryFolder folder;
  EXPECT_EQ(error_text<DataError>([&] { FolderLock(folder / "none"); }),
            (folder / "none").string() +
                ": open failed: No such file or directory\n  fix: check the path, and that its folder exists");
}

ChildThatStays holder_of_first_attempt(const TemporaryFolder& folder) {
  return ChildThatStays([&] { return std::make_unique<FolderLock>(folder.path(), FolderWriter{"ab", 0}); });
}

TEST(FolderLock, ALaterAttemptOfTheSameJobTakesItFromAStoppedOne) {
  const TemporaryFolder folder;
  const auto child = holder_of_first_attempt(folder);
  kill(child.pid(), SIGSTOP);
  EXPECT_EQ(error_text<ConfigError>([&] { FolderLock(folder.path(), {"cd", 1}); }), refusal(folder, child.pid()));
  EXPECT_EQ(error_text<ConfigError>([&] { FolderLock(folder.path(), {"ab", 0}); }), refusal(folder, child.pid()));
  FolderLock::check_free(folder.path(), {"ab", 1});
  const FolderLock lock(folder.path(), {"ab", 1});
  EXPECT_TRUE(lock.follows_earlier_attempt());
  EXPECT_EQ(error_text<ConfigError>([&] { FolderLock(folder.path(), {"cd", 1}); }), refusal(folder, getpid()));
  EXPECT_EQ(folder.names(), std::vector<std::string>{".lock"});
}

TEST(FolderLock, IsNotTakenByAnAttemptThatAnotherHasFollowed) {
  const TemporaryFolder folder;
  {
    const FolderLock lock(folder.path(), {"ab", 2});
  }
  const auto text = error_text<CommError>([&] { FolderLock(folder.path(), {"ab", 1}); });
  EXPECT_TRUE(text.starts_with("output folder " + folder.path().string() +
                               " belongs to attempt 2 of this job now, "
                               "process " +
                               std::to_string(getpid()) + " (host "))
      << text;
  EXPECT_NE(text.find("): attempt 1 writes nothing there any more\n  fix: nothing is lost"), std::string::npos) << text;
  EXPECT_EQ(error_text<CommError>([&] { FolderLock::check_free(folder.path(), {"ab", 1}); }), text);
  EXPECT_FALSE(FolderLock(folder.path(), {"ab", 2}).follows_earlier_attempt());
  EXPECT_TRUE(FolderLock(folder.path(), {"ab", 3}).follows_earlier_attempt());
  EXPECT_FALSE(FolderLock(folder.path(), {"cd", 4}).follows_earlier_attempt());
}

TEST(WriteFence, LetsTheAttemptPassThatHasTheFolder) {
  const TemporaryFolder folder;
  const WriteFence first(folder.path(), {"ab", 0});
  {
    const FolderLock lock(folder.path(), {"ab", 0});
  }
  first.check();
  EXPECT_EQ(writer_of(folder.path())->attempt, 0);
  {
    const FolderLock lock(folder.path(), {"ab", 1});
  }
  EXPECT_NE(error_text<CommError>([&] { first.check(); }).find("belongs to attempt 1 of this job now"),
            std::string::npos);
  WriteFence(folder.path(), {"ab", 1}).check();
  {
    const FolderLock lock(folder.path());
  }
  EXPECT_FALSE(writer_of(folder.path()));
  EXPECT_NE(error_text<CommError>([&] { first.check(); }).find("this job writes nothing there any more"),
            std::string::npos);
  WriteFence(folder.path(), {}).check();
}

}  // namespace folder_lock_test
}  // namespace orthant
