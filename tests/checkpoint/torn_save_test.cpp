// A process that is killed in the middle of a save leaves the old or the new checkpoint, never a mix or nothing. Every
// call that touches a file is a place to die: before it, after it, and halfway through a write. A sample of them;
// ORTHANT_EXHAUSTIVE=1 takes all.
#include <gtest/gtest.h>

#include <chrono>
#include <iostream>

#include "checkpoint/forked_saves.h"

namespace orthant::test {
namespace torn_save_test {

using Kind = FileFault::Kind;

struct SaveCase {
  const char* name;
  bool four_ranks;
  bool asynchronous;
  bool replaces;
  bool plain_renames = false;  // a file system that cannot exchange two names
};

void PrintTo(const SaveCase& save, std::ostream* out) {
  *out << save.name;
}

// A save and the removal of older checkpoints. Killed by the fault on the way, when there is one.
ForkedSaves::Body saving(const ForkedSaves& saves, int victim, FileFault fault) {
  return [&saves, victim, fault](int rank, Trainer&, CheckpointSaver& saver, RankReport& report) {
    auto own = fault;
    if (rank != victim) own.kind = Kind::none;
    watch_files(saves.folder(), own);
    saver.begin(saves.new_path(), beside_of(kNewMark));
    if (const auto outcome = saver.finish(); outcome->failed) std::rethrow_exception(outcome->failed);
    if (rank == 0) prune_checkpoints(saves.folder().string(), kKept);
    report.tell_calls();
    unwatch_files();
    return 0;
  };
}

struct CutPoint {
  int rank;
  Kind kind;
  std::int64_t call;
};

std::vector<CutPoint> cut_points(ForkedSaves& saves) {
  std::vector<CutPoint> all;
  for (int rank = 0; rank < saves.num_ranks(); ++rank) {
    const auto& report = saves.report(rank);
    for (std::int64_t call = 1; call <= report.num_calls; ++call) {
      all.push_back({rank, Kind::die_before, call});
      if (report.is_write.at(static_cast<std::size_t>(call - 1)) != 0) all.push_back({rank, Kind::die_halfway, call});
      all.push_back({rank, Kind::die_after, call});
    }
  }
  return all;
}

class TornSave : public testing::TestWithParam<SaveCase> {};

TEST_P(TornSave, LeavesTheOldOrTheNewCheckpoint) {
  const auto& param = GetParam();
  ForkedSaves saves(param.four_ranks, param.asynchronous, param.replaces);
  const auto began = std::chrono::steady_clock::now();
  const auto whole = saves.run(saving(saves, -1, {.plain_renames = param.plain_renames}));
  ASSERT_EQ(whole.exit_code, 0) << whole.report << saves.report(0).found.data();
  ASSERT_EQ(saves.wrong(), "");
  ASSERT_EQ(names_in(saves.folder()), (std::set<std::string>{"step-2", "step-3"}));
  const auto all = cut_points(saves);
  ASSERT_GT(all.size(), 100U);
  const std::size_t stride = exhaustive() ? 1 : param.four_ranks ? 61 : 17;
  int cuts = 0;
  int torn = 0;
  for (std::size_t i = 0; i < all.size(); i += stride, ++cuts) {
    const auto [rank, kind, call] = all[i];
    const auto outcome =
        saves.run(saving(saves, rank, {.kind = kind, .call = call, .plain_renames = param.plain_renames}));
    ASSERT_EQ(outcome.exit_code, 3) << outcome.report;
    ASSERT_EQ(outcome.failed_rank, rank) << outcome.report;
    auto wrong = saves.wrong(/*without=*/param.plain_renames);
    if (wrong.empty()) wrong = saves.wrong_after_next_save();
    torn += wrong.empty() ? 0 : 1;
    EXPECT_EQ(wrong, "") << "rank " << rank << " died at call " << call << ", kind " << static_cast<int>(kind);
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - began;
  std::cout << param.name << ": " << cuts << " cut points of " << all.size() << ", " << torn << " torn, "
            << seconds.count() << " s\n";
}

INSTANTIATE_TEST_SUITE_P(Saves, TornSave,
                         testing::Values(SaveCase{"OneRankBeside", false, false, false},
                                         SaveCase{"OneRankReplacing", false, false, true},
                                         SaveCase{"OneRankBesideInTheBackground", false, true, false},
                                         SaveCase{"OneRankReplacingInTheBackground", false, true, true},
                                         SaveCase{"OneRankReplacingByPlainRenames", false, false, true, true},
                                         SaveCase{"FourRanksBeside", true, false, false},
                                         SaveCase{"FourRanksReplacing", true, false, true},
                                         SaveCase{"FourRanksBesideInTheBackground", true, true, false},
                                         SaveCase{"FourRanksReplacingInTheBackground", true, true, true}),
                         [](const auto& info) { return info.param.name; });

// What a loss of power may undo: contents since the last fsync of a file, new names since the last of their folder.
class Device {
 public:
  void see(const FileCall& call) {
    const std::filesystem::path path(call.path);
    if (call.name == "fsync") return void(unsafe_.erase(call.path));
    if (call.name == "write" || call.name == "ftruncate") unsafe_.insert(call.path);
    const bool made = call.name == "open" && call.for_writing;
    if (made || call.name == "mkdir") unsafe_.insert(path.parent_path());
    if (!call.name.starts_with("rename")) return;
    if (unsafe_.erase(call.path) > 0) unsafe_.insert(call.to);
    unsafe_.insert(path.parent_path());
    unsafe_.insert(std::filesystem::path(call.to).parent_path());
  }

  // The path itself, or something in it.
  bool unsafe(const std::string& path) const {
    return std::ranges::any_of(unsafe_, [&](const auto& item) { return item == path || item.starts_with(path + "/"); });
  }
  bool unsafe_itself(const std::string& path) const { return unsafe_.contains(path); }

 private:
  std::set<std::string> unsafe_;
};

// Empty when a loss of power at any moment leaves the old or the new checkpoint.
std::string order_mistake(const std::vector<FileCall>& calls, const std::string& parent) {
  Device device;
  for (const auto& call : calls) {
    const bool names_checkpoint =
        call.name.starts_with("rename") && std::filesystem::path(call.path).parent_path() == parent;
    if (names_checkpoint && device.unsafe(call.path)) return call.path + " gets its name before it is on the device";
    if (call.name == "unlinkat" && device.unsafe_itself(parent)) {
      return call.path + " goes before the new name is on the device";
    }
    device.see(call);
  }
  return device.unsafe_itself(parent) ? "the name is not brought to the device" : "";
}

TEST(SaveOrder, BringsContentsToTheDeviceBeforeNamesAndNamesBeforeTheOldOneGoes) {
  for (const bool replaces : {false, true}) {
    ForkedSaves saves(false, false, replaces);
    const auto outcome = saves.run([&](int, Trainer&, CheckpointSaver& saver, RankReport& report) {
      watch_files(saves.folder());
      saver.begin(saves.new_path(), beside_of(kNewMark));
      saver.finish();
      put_text(report.found, order_mistake(watched_calls(), saves.folder().string()));
      unwatch_files();
      return 0;
    });
    EXPECT_EQ(outcome.exit_code, 0) << outcome.report;
    EXPECT_STREQ(saves.report(0).found.data(), "") << "replaces: " << replaces;
  }
}

TEST(FileFaults, ReachTheCallsOfTheStandardLibrary) {
  const QuickFolder scratch("orthant-file-faults");
  watch_files(scratch.path);
  std::filesystem::create_directories(scratch.path / "a");
  write_file_atomically(scratch.path / "a" / "b", "text");
  std::filesystem::rename(scratch.path / "a", scratch.path / "c");
  std::filesystem::remove(scratch.path / "c" / "b");
  write_file_atomically(scratch.path / "c" / "d", "text");
  std::filesystem::remove_all(scratch.path / "c");
  std::map<std::string, int> counts;
  for (const auto& call : watched_calls()) ++counts[call.name];
  unwatch_files();
  std::filesystem::create_directories(scratch.path / "unseen");
  EXPECT_EQ(watched_calls().size(), 0U);
  EXPECT_EQ(counts["mkdir"], 1);
  EXPECT_EQ(counts["rename"], 3);  // two of whole files, one of the folder
  EXPECT_EQ(counts["write"], 2);
  EXPECT_EQ(counts["fsync"], 4);                                          // each file and its folder
  EXPECT_EQ(counts["remove"] + counts["unlinkat"] + counts["rmdir"], 3);  // two files and the folder
  EXPECT_GE(counts["unlinkat"], 1);
  EXPECT_EQ(counts["open"], 4);
  EXPECT_GE(counts["close"], 4);
}

}  // namespace torn_save_test
}  // namespace orthant::test
