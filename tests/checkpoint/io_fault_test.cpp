// A file system that fails in the middle of a save: every rank gets the same error, what was saved before stays,
// nothing is left, and the next save works. A sample of the calls; ORTHANT_EXHAUSTIVE=1 takes all.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <iostream>
#include <random>

#include "checkpoint/forked_saves.h"
#include "orthant/comm/control_group.h"
#include "orthant/files/path_facts.h"

namespace orthant::test {
namespace io_fault_test {

using Kind = FileFault::Kind;
using Contents = std::map<std::string, std::string>;

struct FaultCase {
  const char* name;
  bool four_ranks;
  bool asynchronous;
  bool replaces;
};

void PrintTo(const FaultCase& fault, std::ostream* out) {
  *out << fault.name;
}

// One after another on the ranks of a mesh. Every rank makes the same calls; rank 0 judges.
class FaultyRank {
 public:
  FaultyRank(ForkedSaves& saves, int rank, Trainer& trainer, CheckpointSaver& saver, RankReport& report)
      : saves_(saves), rank_(rank), ranks_(control_group(trainer.options())), saver_(saver), report_(report) {
    before_ = contents_of(saves_.before());
    if (const auto error = save({}); !error.empty()) blame({}, error);
    after_ = contents_of(saves_.folder());
    ranks_.together([] {});
  }

  const std::vector<FileCall>& calls() const { return calls_; }
  const ControlGroup& ranks() const { return ranks_; }
  std::int64_t new_bytes() const {
    std::int64_t bytes = 0;
    for (const auto& [name, text] : after_) {
      if (name.starts_with("step-3/")) bytes += static_cast<std::int64_t>(text.size());
    }
    return bytes;
  }

  // All ranks have it: saved in spite of the fault, with the same bytes.
  void must_save(const FileFault& fault) {
    begin();
    const auto error = save(fault);
    if (!error.empty()) return blame(fault, "not saved: " + error);
    if (rank_ == 0 && contents_of(saves_.folder()) != after_) blame(fault, "other bytes were saved");
  }

  // `victim` has it, or all ranks when that is -1. Nothing of the fault but its kind is asked for: what failed may not
  // matter to the checkpoint; `must_fail` says that it does.
  void must_survive(int victim, const FileFault& fault, bool must_fail, const std::string& in_message) {
    begin();
    const auto error = save(victim < 0 || victim == rank_ ? fault : FileFault{});
    const auto all = ranks_.gather_texts(error);
    if (rank_ == 0) {
      judge(all, victim, fault, must_fail, in_message);
    }
    ranks_.together([] {});
    const auto next = save({});
    if (!next.empty()) return blame(fault, "the next save: " + next);
    if (rank_ == 0) {
      prune_checkpoints(saves_.folder().string(), {.last = 9});
      if (contents_of(saves_.folder()) != after_) blame(fault, "after the next save: " + difference(after_));
    }
  }

  int failed() const { return failed_; }
  int saved() const { return saved_; }

 private:
  void begin() {
    ranks_.together([&] {
      if (rank_ != 0) return;
      std::filesystem::remove_all(saves_.folder());
      std::filesystem::copy(saves_.before(), saves_.folder(), std::filesystem::copy_options::recursive);
    });
  }

  // What was thrown; empty when it was saved.
  std::string save(const FileFault& fault) {
    watch_files(saves_.folder(), fault);
    saver_.begin(saves_.new_path(), beside_of(kNewMark));
    const auto outcome = saver_.finish();
    ranks_.together([] {});  // rank 0 has removed what it must
    calls_ = watched_calls();
    unwatch_files();
    if (!outcome->failed) return "";
    try {
      std::rethrow_exception(outcome->failed);
    } catch (const DataError& error) {
      return error.what();
    } catch (const std::exception& error) {
      return std::string("no DataError: ") + error.what();
    }
  }

  void judge(const std::vector<std::string>& all, int victim, const FileFault& fault, bool must_fail,
             const std::string& in_message) {
    const auto& text = all.front();
    ++(text.empty() ? saved_ : failed_);
    for (const auto& other : all) {
      if (other != text) blame(fault, "ranks differ: " + text + " / " + other);
    }
    if (text.empty()) {
      if (must_fail) return blame(fault, "the error was swallowed");
      if (!holds(after_)) blame(fault, "saved, but " + difference(after_));
      return;
    }
    if (text.starts_with("no DataError")) return blame(fault, text);
    if (text.find(saves_.folder().string()) == std::string::npos) blame(fault, "no path: " + text);
    if (text.find(in_message) == std::string::npos) blame(fault, "no \"" + in_message + "\": " + text);
    if (all.size() > 1 && victim >= 0 && !text.starts_with(fmt::format("rank {}: ", victim)))
      blame(fault, "no rank: " + text);
    // Where nothing works any more, the names cannot change back either: the new one is complete then.
    const bool as_before = fault.lasting ? holds(before_) || holds(after_) : contents_of(saves_.folder()) == before_;
    if (!as_before) blame(fault, text + ", and " + difference(before_));
  }

  // Whatever else is there: a file system that has gone bad lets nobody clean up.
  bool holds(const Contents& wanted) const {
    const auto found = contents_of(saves_.folder());
    return std::ranges::all_of(wanted, [&](const auto& file) {
      const auto same = found.find(file.first);
      return same != found.end() && same->second == file.second;
    });
  }

  std::string difference(const Contents& wanted) const {
    const auto found = contents_of(saves_.folder());
    for (const auto& [name, text] : found) {
      if (!wanted.contains(name)) return name + " is left behind";
      if (wanted.at(name) != text) return name + " has changed";
    }
    for (const auto& [name, text] : wanted) {
      if (!found.contains(name)) return name + " is gone";
    }
    return "all is the same";
  }

  void blame(const FileFault& fault, const std::string& text) {
    std::string told = report_.found.data();
    told += fmt::format("kind {} at call {} error {}{}: {}\n", static_cast<int>(fault.kind), fault.call, fault.error,
                        fault.lasting ? " lasting" : "", text);
    put_text(report_.found, told);
  }

  ForkedSaves& saves_;
  int rank_;
  ControlGroup ranks_;
  CheckpointSaver& saver_;
  RankReport& report_;
  Contents before_;
  Contents after_;
  std::vector<FileCall> calls_;
  int failed_ = 0;
  int saved_ = 0;
};

class IoFault : public testing::TestWithParam<FaultCase> {
 protected:
  IoFault() : saves_(GetParam().four_ranks, GetParam().asynchronous, GetParam().replaces) {}

  void run(const std::function<void(FaultyRank&, int rank)>& body) {
    const auto outcome = saves_.run([&](int rank, Trainer& trainer, CheckpointSaver& saver, RankReport& report) {
      FaultyRank faulty(saves_, rank, trainer, saver, report);
      body(faulty, rank);
      if (rank == 0) counts_->failed = faulty.failed();
      if (rank == 0) counts_->saved = faulty.saved();
      return 0;
    });
    EXPECT_EQ(outcome.exit_code, 0) << outcome.report;
    for (int rank = 0; rank < saves_.num_ranks(); ++rank) EXPECT_STREQ(saves_.report(rank).found.data(), "") << rank;
    EXPECT_EQ(saves_.wrong(), "");
    std::cout << GetParam().name << ": " << counts_->failed << " saves failed, " << counts_->saved << " did not mind\n";
  }

  struct Counts {
    int failed = 0;
    int saved = 0;
  };
  ForkedSaves saves_;
  launch::SharedMemory<Counts> counts_;
};

// Those without which there is no checkpoint. Names that must only go away, and descriptors that were read from, are
// not among them.
bool matters(const FileCall& call) {
  const std::set<std::string> always = {"write", "fsync", "rename", "renameat2", "mkdir"};
  return always.contains(call.name) || ((call.name == "open" || call.name == "close") && call.for_writing);
}

// Of the rank that `all` counts off: [matters, is a write] of every call of every rank.
std::vector<at::Tensor> facts_of_calls(const FaultyRank& faulty) {
  std::vector<std::int64_t> facts;
  for (const auto& call : faulty.calls()) facts.push_back((matters(call) ? 1 : 0) + (call.name == "write" ? 2 : 0));
  return faulty.ranks().gather(at::tensor(facts, at::kLong));
}

TEST_P(IoFault, AtAnyCallIsToldByAllRanksAndLosesNothing) {
  run([](FaultyRank& faulty, int) {
    const auto all = facts_of_calls(faulty);
    const std::int64_t stride = exhaustive() ? 1 : all.size() > 1 ? 29 : 11;
    std::int64_t turn = 0;
    for (int victim = 0; victim < static_cast<int>(all.size()); ++victim) {
      const auto* facts = all[static_cast<std::size_t>(victim)].const_data_ptr<std::int64_t>();
      for (std::int64_t call = 1; call <= all[static_cast<std::size_t>(victim)].numel(); ++call) {
        for (const int error : {EIO, ENOSPC, EDQUOT, EROFS}) {
          for (const bool lasting : {false, true}) {
            if (turn++ % stride != 0) continue;
            const FileFault fault{.kind = Kind::fail, .call = call, .error = error, .lasting = lasting};
            const bool must_fail = (facts[call - 1] & 1) != 0;
            const auto written = (facts[call - 1] & 2) != 0 ? " bytes after " : "";
            faulty.must_survive(victim, fault, must_fail, std::string(written));
          }
        }
      }
    }
  });
}

TEST_P(IoFault, ADiskOfAnySizeThatIsTooSmallLosesNothing) {
  auto& room = saves_.room();
  run([&](FaultyRank& faulty, int rank) {
    const std::int64_t step = exhaustive() ? 512 : 4096;
    for (std::int64_t size = 0; size < faulty.new_bytes(); size += step) {
      if (rank == 0) room = size;
      faulty.ranks().together([] {});
      faulty.must_survive(-1, {.kind = Kind::full_disk, .room = &room}, /*must_fail=*/true, "No space left on device");
    }
    if (rank == 0) room = faulty.new_bytes();
    faulty.ranks().together([] {});
    faulty.must_save({.kind = Kind::full_disk, .room = &room});
  });
}

TEST_P(IoFault, ShortWritesAndInterruptionsChangeNothing) {
  run([](FaultyRank& faulty, int) {
    for (const std::int64_t most : {1, 2, 7, 100, 4096}) {
      if (most == 1 && !exhaustive()) continue;
      faulty.must_save({.kind = Kind::short_writes, .bytes = most});
    }
    faulty.must_save({.kind = Kind::interrupted});
  });
}

// A disk that takes the save only after room was made in the middle of it.
TEST_P(IoFault, AFullDiskIsTriedAgainOnceThereIsRoom) {
  const auto& fault = GetParam();
  ForkedSaves saves(fault.four_ranks, fault.asynchronous, fault.replaces);
  for (const bool makes_room : {true, false}) {
    saves.room() = 3000;
    const auto outcome = saves.run([&](int rank, Trainer&, CheckpointSaver& saver, RankReport& report) {
      watch_files(saves.folder(), {.kind = Kind::full_disk, .room = &saves.room()});
      auto beside = beside_of(kNewMark);
      std::int64_t bytes = 0;
      int asked = 0;
      beside.make_room = [&](std::int64_t needed, bool) {
        bytes = needed;
        if (++asked == 1) return SaveRoom{true};
        if (makes_room) saves.room() = std::int64_t{1} << 30;
        return SaveRoom{makes_room, "asked again"};
      };
      saver.begin(saves.new_path(), std::move(beside));
      const auto ended = saver.finish();
      unwatch_files();
      const auto told = rank == 0 ? std::vector<std::string>{"asked again"} : std::vector<std::string>{};
      if (ended->room_notes != told || (rank == 0 && asked != 2))
        put_text(report.found, "room was asked for otherwise");
      if ((ended->failed == nullptr) != makes_room) put_text(report.found, "another end");
      if (rank == 0 && makes_room && bytes < bytes_on_disk(saves.new_path())) put_text(report.found, "it needs more");
      return 0;
    });
    EXPECT_EQ(outcome.exit_code, 0) << outcome.report;
    for (int rank = 0; rank < saves.num_ranks(); ++rank) EXPECT_STREQ(saves.report(rank).found.data(), "") << rank;
    EXPECT_EQ(saves.wrong(), "");
    const bool there = std::filesystem::exists(saves.new_path());
    EXPECT_EQ(there, makes_room || fault.replaces);
    if (makes_room) EXPECT_EQ(verify_checkpoint(saves.new_path()).samples_seen, kNewMark);
  }
}

// What is written then is of the save's own moment, not of the save before it.
TEST_P(IoFault, AFolderThatCannotBeMadeIsTriedAgainWithItsOwnStep) {
  const auto& fault = GetParam();
  if (fault.replaces) return;
  ForkedSaves saves(fault.four_ranks, fault.asynchronous, false);
  const auto path_of = [&](std::int64_t step) { return (saves.folder() / fmt::format("step-{}", step)).string(); };
  const auto outcome = saves.run([&](int rank, Trainer& trainer, CheckpointSaver& saver, RankReport& report) {
    std::int64_t mkdir_call = 0;
    for (std::int64_t step = kNewStep; step <= kNewStep + 1; ++step) {
      set_mark(trainer, step, step == kNewStep ? 0 : 1);
      const bool fails = mkdir_call > 0 && rank == 0;
      watch_files(saves.folder(), {.kind = fails ? Kind::fail : Kind::none, .call = mkdir_call, .error = EDQUOT});
      auto beside = beside_of(static_cast<int>(step));
      int asked = 0;
      beside.make_room = [&](std::int64_t, bool) { return SaveRoom{++asked > 0}; };
      saver.begin(path_of(step), std::move(beside));
      const auto ended = saver.finish();
      const auto calls = watched_calls();
      unwatch_files();
      if (ended->failed) put_text(report.found, "not saved");
      if (rank == 0 && asked != (fails ? 2 : 1)) put_text(report.found, "room was asked for otherwise");
      mkdir_call = std::ranges::find(calls, "mkdir", &FileCall::name) - calls.begin() + 1;
    }
    const auto hash = trainer.weights_hash();
    load_checkpoint(trainer, path_of(kNewStep + 1));
    if (trainer.weights_hash() != hash) put_text(report.found, "other values");
    return 0;
  });
  EXPECT_EQ(outcome.exit_code, 0) << outcome.report;
  for (int rank = 0; rank < saves.num_ranks(); ++rank) EXPECT_STREQ(saves.report(rank).found.data(), "") << rank;
  for (const auto step : {kNewStep, kNewStep + 1}) {
    const auto found = verify_checkpoint(path_of(step));
    EXPECT_EQ(found.step, step);
    EXPECT_EQ(found.samples_seen, step);
  }
}

INSTANTIATE_TEST_SUITE_P(Saves, IoFault,
                         testing::Values(FaultCase{"OneRankBeside", false, false, false},
                                         FaultCase{"OneRankReplacing", false, false, true},
                                         FaultCase{"OneRankBesideInTheBackground", false, true, false},
                                         FaultCase{"OneRankReplacingInTheBackground", false, true, true},
                                         FaultCase{"FourRanksBeside", true, false, false},
                                         FaultCase{"FourRanksReplacing", true, false, true},
                                         FaultCase{"FourRanksBesideInTheBackground", true, true, false},
                                         FaultCase{"FourRanksReplacingInTheBackground", true, true, true}),
                         [](const auto& info) { return info.param.name; });

TEST(Retention, ThatFailsAtAnyCallNamesWhatStaysAndLosesNothingItKeeps) {
  ForkedSaves saves(false, false, /*replaces=*/true);
  const auto outcome = saves.run([&](int, Trainer&, CheckpointSaver&, RankReport& report) {
    const auto wanted = contents_of(saves.folder() / "step-3");
    std::int64_t calls = 1;
    for (std::int64_t call = 0; call <= calls; ++call) {
      for (const bool lasting : {false, true}) {
        std::filesystem::remove_all(saves.folder());
        std::filesystem::copy(saves.before(), saves.folder(), std::filesystem::copy_options::recursive);
        std::filesystem::create_directories(saves.folder() / "step-2.new");
        watch_files(saves.folder(), {.kind = Kind::fail, .call = call, .error = EIO, .lasting = lasting && call > 0});
        try {
          prune_checkpoints(saves.folder().string(), {.last = 1});
        } catch (const DataError& error) {
          const auto named = error.message().find("checkpoints/step-") != std::string::npos ||
                             error.message().find("/checkpoints: listing failed: ") != std::string::npos;
          if (!named) put_text(report.found, error.message());
        } catch (const std::exception& error) {
          put_text(report.found, fmt::format("{}call {}: {}\n", report.found.data(), call, error.what()));
        }
        if (call == 0) calls = static_cast<std::int64_t>(watched_calls().size());
        unwatch_files();
        if (contents_of(saves.folder() / "step-3") != wanted) put_text(report.found, "the newest has changed");
        prune_checkpoints(saves.folder().string(), {.last = 1});
        if (names_in(saves.folder()) != std::set<std::string>{"step-3"}) put_text(report.found, "names are left");
      }
    }
    return calls > 10 ? 0 : 1;
  });
  EXPECT_EQ(outcome.exit_code, 0) << outcome.report;
  EXPECT_STREQ(saves.report(0).found.data(), "");
}

}  // namespace io_fault_test
}  // namespace orthant::test
