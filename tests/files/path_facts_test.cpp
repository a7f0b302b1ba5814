#include "orthant/files/path_facts.h"

#include <gtest/gtest.h>

#include <fstream>

#include "files/temporary_folder.h"
#include "orthant/base/error.h"

namespace orthant {
namespace path_facts_test {

using test::TemporaryFolder;
namespace fs = std::filesystem;

TEST(PathFacts, AFolderThatIsNotThereHoldsNothing) {
  const TemporaryFolder folder;
  EXPECT_TRUE(names_in_folder(folder / "none").empty());
  fs::create_directory(folder / "b");
  std::ofstream(folder / "a") << "text";
  EXPECT_EQ(names_in_folder(folder / ""), (std::vector<std::string>{"a", "b"}));
}

TEST(PathFacts, WhatCannotBeListedIsAnError) {
  const TemporaryFolder folder;
  std::ofstream(folder / "file") << "text";
  try {
    names_in_folder(folder / "file");
    ADD_FAILURE() << "no error";
  } catch (const IoError& error) {
    EXPECT_EQ(error.error_number(), ENOTDIR);
    EXPECT_EQ(error.message(), (folder / "file").string() + ": listing failed: Not a directory");
  }
  fs::create_symlink("loop", folder / "loop");
  EXPECT_THROW(is_there(folder / "loop"), IoError);
  EXPECT_TRUE(is_taken(folder / "loop"));
}

TEST(PathFacts, TellWhatLiesUnderAName) {
  const TemporaryFolder folder;
  std::ofstream(folder / "file") << "text";
  fs::create_symlink("nothing", folder / "link");
  EXPECT_TRUE(is_there(folder / "file") && orthant::is_regular_file(folder / "file") && !is_folder(folder / "file"));
  EXPECT_TRUE(is_folder(folder / "") && !orthant::is_regular_file(folder / ""));
  EXPECT_FALSE(is_there(folder / "file" / "below"));
  EXPECT_FALSE(is_there(folder / "link"));
  EXPECT_TRUE(is_taken(folder / "link"));
}

TEST(PathFacts, AFreeNameIsOneThatNothingHas) {
  const TemporaryFolder folder;
  const auto path = folder / "step-4";
  EXPECT_EQ(free_name(path, ".refused"), folder / "step-4.refused");
  fs::create_directory(folder / "step-4.refused");
  EXPECT_EQ(free_name(path, ".refused"), folder / "step-4.refused-2");
  fs::create_directory(folder / "step-4.refused-2");
  EXPECT_EQ(free_name(path, ".refused"), folder / "step-4.refused-3");
}

TEST(PathFacts, ARenameReplacesNothing) {
  const TemporaryFolder folder;
  fs::create_directory(folder / "a");
  fs::create_directory(folder / "b");
  EXPECT_THROW(rename_to_new(folder / "a", folder / "b"), DataError);
  rename_to_new(folder / "a", folder / "c");
  EXPECT_EQ(names_in_folder(folder / ""), (std::vector<std::string>{"b", "c"}));
}

TEST(PathFacts, CountBytes) {
  const TemporaryFolder folder;
  fs::create_directory(folder / "inside");
  std::ofstream(folder / "inside" / "file") << std::string(10000, 'x');
  EXPECT_GE(bytes_on_disk(folder / ""), 10000);
  EXPECT_EQ(bytes_on_disk(folder / "none"), 0);
  EXPECT_GT(free_bytes(folder / ""), 0);
}

}  // namespace path_facts_test
}  // namespace orthant
