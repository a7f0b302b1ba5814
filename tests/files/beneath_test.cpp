#include "orthant/files/beneath.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "base/error_text.h"
#include "files/temporary_folder.h"
#include "orthant/files/event_file.h"
#include "orthant/files/folder_lock.h"
#include "orthant/files/metrics_file.h"
#include "orthant/files/whole_file.h"

namespace orthant {
namespace beneath_test {

namespace fs = std::filesystem;
using test::TemporaryFolder;

constexpr int kWriting = O_RDWR | O_CREAT;
const std::string kLink =
    ": is a symbolic link, and a run follows none in its output folder\n"
    "  fix: put the file or folder itself there, remove the link, or name another --output-dir";
const std::string kMove = "\n  fix: move it away, or name another --output-dir";

TEST(Beneath, FilesAreMadeAndOpenedInAFolderThatMayBeALinkItself) {
  const TemporaryFolder folder;
  fs::create_directory(folder / "real");
  fs::create_directory_symlink("real", folder / "named");
  make_folder_beneath(folder / "named", "log");
  make_folder_beneath(folder / "named", "log");
  LineFile(folder / "named", "log/a").append("line");
  EXPECT_EQ(read_file(folder / "real/log/a"), "line\n");
}

TEST(Beneath, ALinkIsNamedWhereverItIsAndItsTargetStays) {
  const TemporaryFolder folder;
  fs::create_directory(folder / "run");
  fs::create_directory(folder / "elsewhere");
  write_file_atomically(folder / "elsewhere/a", "mine");
  fs::create_directory_symlink(folder / "elsewhere", folder / "run/log");
  fs::create_symlink(folder / "elsewhere/a", folder / "run/a");
  fs::create_symlink(folder / "elsewhere/none", folder / "run/none");
  const auto refusal = [&](const char* name) {
    return error_text<ConfigError>([&] { open_beneath(folder / "run", name, kWriting | O_TRUNC); });
  };
  EXPECT_EQ(refusal("log/a"), (folder / "run/log").string() + kLink);
  EXPECT_EQ(refusal("a"), (folder / "run/a").string() + kLink);
  EXPECT_EQ(refusal("none"), (folder / "run/none").string() + kLink);
  EXPECT_EQ(error_text<ConfigError>([&] { make_folder_beneath(folder / "run", "log"); }),
            (folder / "run/log").string() + kLink);
  EXPECT_EQ(read_file(folder / "elsewhere/a"), "mine");
  EXPECT_FALSE(fs::exists(folder / "elsewhere/none"));
}

TEST(Beneath, WhatIsNoFileIsNamedAtOnce) {
  const TemporaryFolder folder;
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  fs::create_directory(folder / "folder");
  write_file_atomically(folder / "file", "");
  const auto refusal = [&](const char* name, int flags) {
    return error_text<ConfigError>([&] { open_beneath(folder.path(), name, flags); });
  };
  EXPECT_EQ(refusal("pipe", kWriting),
            (folder / "pipe").string() + ": is a named pipe, and a run has a file there" + kMove);
  EXPECT_EQ(refusal("pipe", O_WRONLY),
            (folder / "pipe").string() + ": is a named pipe, and a run has a file there" + kMove);
  EXPECT_EQ(refusal("folder", kWriting),
            (folder / "folder").string() + ": is a folder, and a run has a file there" + kMove);
  EXPECT_EQ(refusal("file/a", kWriting),
            (folder / "file").string() + ": is a file, and a run has a folder there" + kMove);
}

TEST(Beneath, EntriesOfARunAreCheckedBeforeAnythingIsWritten) {
  const TemporaryFolder folder;
  const std::vector<FolderEntry> entries = {{"metrics.jsonl"}, {"checkpoints", true}};
  check_run_entries(folder / "none", entries);
  check_run_entries(folder.path(), entries);
  write_file_atomically(folder / "metrics.jsonl", "");
  fs::create_directory(folder / "checkpoints");
  check_run_entries(folder.path(), entries);
  fs::remove(folder / "checkpoints");
  fs::create_directory_symlink("/tmp", folder / "checkpoints");
  EXPECT_EQ(error_text<ConfigError>([&] { check_run_entries(folder.path(), entries); }),
            (folder / "checkpoints").string() + kLink);
}

TEST(Beneath, LockMetricsAndEventsFollowNoLink) {
  const TemporaryFolder folder;
  const auto run = folder / "run";
  fs::create_directory(run);
  write_file_atomically(folder / "mine", "torn");
  for (const char* name : {".lock", "metrics.jsonl"}) fs::create_symlink(folder / "mine", run / name);
  EXPECT_EQ(error_text<ConfigError>([&] { FolderLock{run}; }), (run / ".lock").string() + kLink);
  EXPECT_EQ(error_text<ConfigError>([&] { LineFile(run, "metrics.jsonl"); }), (run / "metrics.jsonl").string() + kLink);
  EXPECT_TRUE(
      error_text<DataError>([&] { LineFile{run / "metrics.jsonl"}; }).starts_with((run / "metrics.jsonl").string()));
  fs::create_symlink(folder / "mine", run / "events.out.tfevents.0000000007.host.9");
  EXPECT_TRUE(error_text<ConfigError>([&] { EventFile(run, "host", 9, 7); }).ends_with(kLink));
  EXPECT_EQ(read_file(folder / "mine"), "torn");
}

}  // namespace beneath_test
}  // namespace orthant
