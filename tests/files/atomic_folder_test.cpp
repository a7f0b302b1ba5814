#include "orthant/files/atomic_folder.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <memory>

#include "base/error_text.h"
#include "files/child_process.h"
#include "files/temporary_folder.h"

namespace orthant {
namespace atomic_folder_test {

using test::ChildThatStays;
using test::TemporaryFolder;
using Names = std::vector<std::string>;
using Paths = std::vector<std::filesystem::path>;

std::string own_partial(const std::string& name) {
  return name + ".partial-" + std::to_string(getpid());
}

TEST(AtomicFolder, AppearsUnderItsNameOnCommit) {
  const TemporaryFolder parent;
  AtomicFolder folder(parent / "step-5/");
  EXPECT_EQ(folder.path(), parent / own_partial("step-5"));
  std::filesystem::create_directory(folder.path() / "deep");
  write_file_atomically(folder.path() / "deep" / "a", "text");
  EXPECT_EQ(parent.names(), (Names{own_partial("step-5")}));
  folder.commit();
  EXPECT_EQ(parent.names(), (Names{"step-5"}));
  EXPECT_EQ(folder.path(), parent / "step-5");
  EXPECT_EQ(read_file(parent / "step-5/deep/a"), "text");
  EXPECT_THROW(folder.commit(), InternalError);
}

TEST(AtomicFolder, DisappearsWithoutCommit) {
  const TemporaryFolder parent;
  {
    const AtomicFolder folder(parent / "step-5");
    write_file_atomically(folder.path() / "a", "text");
  }
  EXPECT_EQ(parent.names(), Names{});
}

TEST(AtomicFolder, LivesOnWhenAForkedProcessEndsWithoutIt) {
  const TemporaryFolder parent;
  auto folder = std::make_unique<AtomicFolder>(parent / "step-5");
  EXPECT_TRUE(test::true_with_file_limit(1 << 20, [&] {
    folder.reset();
    return true;
  }));
  EXPECT_EQ(parent.names(), (Names{own_partial("step-5")}));
  folder->commit();
  EXPECT_EQ(parent.names(), (Names{"step-5"}));
}

TEST(AtomicFolder, LeavesAloneWhatExists) {
  const TemporaryFolder parent;
  std::filesystem::create_directory(parent / own_partial("step-5"));
  write_file_atomically(parent / own_partial("step-5") / "theirs", "text");
  AtomicFolder folder(parent / "step-5");
  EXPECT_EQ(folder.path(), parent / (own_partial("step-5") + "-2"));
  folder.commit();
  EXPECT_EQ(parent.names(), (Names{"step-5", own_partial("step-5")}));
  EXPECT_EQ(read_file(parent / own_partial("step-5") / "theirs"), "text");
}

TEST(AtomicFolder, RefusesANameThatIsTaken) {
  const TemporaryFolder parent;
  AtomicFolder early(parent / "step-5");
  AtomicFolder late(parent / "step-5");
  early.commit();
  const std::string expected =
      (parent / "step-5").string() + ": exists already and is not replaced\n  fix: remove it, or choose another name";
  EXPECT_EQ(error_text<DataError>([&] { late.commit(); }), expected);
  EXPECT_EQ(error_text<DataError>([&] { AtomicFolder(parent / "step-5"); }), expected);
}

TEST(AtomicFolder, RefusesAParentThatDoesNotExist) {
  const TemporaryFolder parent;
  EXPECT_EQ(error_text<DataError>([&] { AtomicFolder(parent / "none/step-5"); }),
            (parent / own_partial("none/step-5")).string() +
                ": mkdir failed: No such file or directory\n  fix: check the path, and that its folder exists");
}

TEST(StalePartials, AreThoseOfDeadProcessesOnly) {
  const TemporaryFolder parent;
  const AtomicFolder own(parent / "mine");
  ChildThatStays child([&] { return std::make_unique<AtomicFolder>(parent / "step-5"); });
  const auto theirs = parent / ("step-5.partial-" + std::to_string(child.pid()));
  EXPECT_TRUE(std::filesystem::exists(theirs));
  EXPECT_EQ(stale_partials(parent.path()), Paths{});
  child.end();
  EXPECT_EQ(stale_partials(parent.path()), (Paths{theirs}));
  EXPECT_TRUE(std::filesystem::exists(theirs));
}

// A process number that has come round, here our own, does not protect what its former owner left.
TEST(StalePartials, IncludeThoseWhoseProcessNumberLivesAgain) {
  const TemporaryFolder parent;
  std::filesystem::create_directory(parent / own_partial("step-5"));
  std::filesystem::create_directory(parent / (own_partial("step-6") + "-2"));
  EXPECT_EQ(stale_partials(parent.path()),
            (Paths{parent / own_partial("step-5"), parent / (own_partial("step-6") + "-2")}));
}

TEST(StalePartials, LeaveOtherNamesAlone) {
  const TemporaryFolder parent;
  for (const char* name : {"step-5", "step-5.partial", "a.partial-", "a.partial-x", "a.partial-12x", "a.partial-12-",
                           "a.partial--5", ".partial-12", "a.partial-12-3-4"}) {
    std::filesystem::create_directory(parent / name);
  }
  EXPECT_EQ(stale_partials(parent.path()), Paths{});
  EXPECT_EQ(error_text<DataError>([&] { stale_partials(parent / "none"); }),
            (parent / "none").string() +
                ": listing failed: No such file or directory\n  fix: check the path, and that its folder exists");
}

TEST(LeftPartials, OfOneNameAreRemovedWhenTheirProcessIsDead) {
  const TemporaryFolder parent;
  ChildThatStays child([&] {
    auto folder = std::make_unique<AtomicFolder>(parent / "step-5");
    write_file_atomically(folder->path() / "a", "text");
    return folder;
  });
  const auto theirs = "step-5.partial-" + std::to_string(child.pid());
  for (const char* other : {"step-5", "step-5.partial-x", "step-55.partial-1", "a-step-5.partial-1"}) {
    std::filesystem::create_directory(parent / other);
  }
  write_file_atomically(parent / "step-5.partial-1-2", "a file of a process that is no more");
  remove_left_partials(parent / "step-5");
  EXPECT_EQ(parent.names(), (Names{"a-step-5.partial-1", "step-5", theirs, "step-5.partial-x", "step-55.partial-1"}));
  child.end();
  remove_left_partials(parent / "step-5/");
  EXPECT_EQ(parent.names(), (Names{"a-step-5.partial-1", "step-5", "step-5.partial-x", "step-55.partial-1"}));
  remove_left_partials(parent / "none/step-5");
  remove_left_partials("");
}

}  // namespace atomic_folder_test
}  // namespace orthant
