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

}  // namespace folder_lock_test
}  // namespace orthant
