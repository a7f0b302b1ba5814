// Deaths for lack of memory, by the files of a made-up system; a real control group is in tests/system.
#include "orthant/launch/out_of_memory.h"

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <fstream>

#include "orthant/launch/failure.h"

namespace orthant::launch {
namespace out_of_memory_test {

namespace fs = std::filesystem;

constexpr pid_t kPid = 17;

class OutOfMemory : public ::testing::Test {
 protected:
  void SetUp() override {
    char pattern[] = "/tmp/orthant-memory-XXXXXX";
    root_ = mkdtemp(pattern);
    write("proc/vmstat", "nr_free_pages 5\noom_kill 7\n");
  }
  void TearDown() override { fs::remove_all(root_); }

  void write(const fs::path& name, const std::string& text) const {
    fs::create_directories((root_ / name).parent_path());
    std::ofstream(root_ / name) << text;
  }

  void in_group(const std::string& lines) const { write(fs::path("proc") / std::to_string(kPid) / "cgroup", lines); }

  fs::path root_;
};

TEST_F(OutOfMemory, IsSeenInTheRanksGroupWithTheSmallestLimitAboveIt) {
  in_group("0::/job/rank\n");
  write("sys/fs/cgroup/job/memory.max", "536870912\n");
  write("sys/fs/cgroup/job/rank/memory.max", "max\n");
  write("sys/fs/cgroup/job/rank/memory.events", "low 0\noom 1\noom_kill 2\n");
  OutOfMemoryWatch watch(root_);
  watch.note(kPid);
  EXPECT_EQ(watch.why_killed(kPid), "");
  write("proc/vmstat", "oom_kill 8\n");  // somebody else's
  EXPECT_EQ(watch.why_killed(kPid), "");
  write("sys/fs/cgroup/job/rank/memory.events", "low 0\noom 2\noom_kill 3\n");
  EXPECT_EQ(watch.why_killed(kPid),
            "out of memory: its control group may use 512 MiB (oom_kill in memory.events rose)");
}

TEST_F(OutOfMemory, IsSeenInGroupsOfTheFirstVersionWhoseDeadAreShownElsewhere) {
  in_group("5:cpu,cpuacct:/\n4:memory:/rank\n0::/init\n");
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  write("sys/fs/cgroup/memory/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 9\n");
  write("sys/fs/cgroup/memory/rank/memory.limit_in_bytes", "943718400\n");
  write("sys/fs/cgroup/memory/rank/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n");
  OutOfMemoryWatch watch(root_);
  watch.note(kPid);
  in_group("5:cpu,cpuacct:/\n4:memory:/\n0::/init\n");
  watch.note(kPid);
  write("sys/fs/cgroup/memory/rank/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n");
  EXPECT_EQ(watch.why_killed(kPid),
            "out of memory: its control group may use 900 MiB (oom_kill in memory.oom_control rose)");
}

TEST_F(OutOfMemory, IsSeenInAGroupThatARankEnteredAfterItsStart) {
  in_group("0::/\n");
  OutOfMemoryWatch watch(root_);
  watch.note(kPid);
  in_group("0::/late\n");
  write("sys/fs/cgroup/late/memory.max", "1048576\n");
  write("sys/fs/cgroup/late/memory.events", "oom_kill 1\n");
  EXPECT_EQ(watch.why_killed(kPid), "out of memory: its control group may use 1 MiB (oom_kill in memory.events rose)");
}

TEST_F(OutOfMemory, OfTheHostIsSaidToBeLikelyWhereNoGroupTellsMore) {
  in_group("0::/\n");
  OutOfMemoryWatch watch(root_);
  watch.note(kPid);
  EXPECT_EQ(watch.why_killed(kPid), "");
  write("proc/vmstat", "oom_kill 8\n");
  EXPECT_EQ(watch.why_killed(kPid),
            "probably out of memory: the kernel has just killed a process of this host for that (oom_kill in "
            "/proc/vmstat rose)");
}

TEST_F(OutOfMemory, IsNotGuessedWithoutFiles) {
  fs::remove_all(root_ / "proc");
  OutOfMemoryWatch watch(root_);
  watch.note(kPid);
  EXPECT_EQ(watch.why_killed(kPid), "");
}

TEST_F(OutOfMemory, FollowsTheSignalInTheReport) {
  RankExit exit{.rank = 2, .status = SIGKILL, .turn = 1};
  exit.reason = "out of memory: its control group may use 512 MiB";
  EXPECT_EQ(describe(exit), "rank 2: killed by SIGKILL: out of memory: its control group may use 512 MiB");
  exit.held = "300 MiB in tensors, in: step 3, F layers.2 m0";
  EXPECT_EQ(
      describe(exit),
      "rank 2: killed by SIGKILL: out of memory: its control group may use 512 MiB; it held 300 MiB in tensors, in: "
      "step 3, F layers.2 m0");
  EXPECT_EQ(job_exit_code(exit), 4);
  exit.reason = "";
  EXPECT_EQ(job_exit_code(exit), 3);
}

}  // namespace out_of_memory_test
}  // namespace orthant::launch
