// Limits of memory and what they leave, by the files of a made-up system.
#include "orthant/launch/memory_group.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

namespace orthant::launch::memory_group_test {

namespace fs = std::filesystem;

class FreeMemoryHere : public ::testing::Test {
 protected:
  void SetUp() override {
    char pattern[] = "/tmp/orthant-memory-XXXXXX";
    root_ = mkdtemp(pattern);
    write("proc/meminfo", "MemTotal:       2000 kB\nMemFree:         100 kB\nMemAvailable:   1000 kB\n");
  }
  void TearDown() override { fs::remove_all(root_); }

  void write(const fs::path& name, const std::string& text) const {
    fs::create_directories((root_ / name).parent_path());
    std::ofstream(root_ / name) << text;
  }
  void in_group(const std::string& line) const {
    write(fs::path("proc") / std::to_string(getpid()) / "cgroup", line + "\n");
  }

  std::int64_t free_bytes() const {
    const auto found = free_memory(root_);
    return found ? found->bytes : -1;
  }

  fs::path root_;
};

TEST_F(FreeMemoryHere, IsWhatTheHostHasWithoutALimit) {
  EXPECT_EQ(free_bytes(), 1000 * 1024);
  in_group("0::/job");
  write("sys/fs/cgroup/job/memory.max", "max\n");
  EXPECT_EQ(free_bytes(), 1000 * 1024);
  fs::remove(root_ / "proc/meminfo");
  EXPECT_FALSE(free_memory(root_));
}

TEST_F(FreeMemoryHere, IsWhatTheTightestGroupLeaves) {
  in_group("0::/job/rank");
  write("sys/fs/cgroup/job/rank/memory.max", "900000\n");
  write("sys/fs/cgroup/job/rank/memory.current", "100000\n");
  EXPECT_EQ(free_bytes(), 800000);
  write("sys/fs/cgroup/job/memory.max", "700000\n");
  write("sys/fs/cgroup/job/memory.current", "500000\n");
  EXPECT_EQ(free_bytes(), 200000);
  EXPECT_EQ(free_memory(root_)->group, (root_ / "sys/fs/cgroup/job").string());
  // Files in memory that nobody needs are dropped first.
  write("sys/fs/cgroup/job/memory.stat", "anon 1\ninactive_file 150000\nactive_file 7\n");
  EXPECT_EQ(free_bytes(), 350000);
  write("sys/fs/cgroup/job/memory.current", "900000\n");
  EXPECT_EQ(free_bytes(), 0);
}

TEST_F(FreeMemoryHere, KnowsGroupsOfTheFirstVersion) {
  in_group("4:memory:/rank");
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  write("sys/fs/cgroup/memory/rank/memory.limit_in_bytes", "500000\n");
  write("sys/fs/cgroup/memory/rank/memory.usage_in_bytes", "200000\n");
  write("sys/fs/cgroup/memory/rank/memory.stat", "inactive_file 1\ntotal_inactive_file 50000\n");
  EXPECT_EQ(free_bytes(), 350000);
}

}  // namespace orthant::launch::memory_group_test
