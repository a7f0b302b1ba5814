#include "orthant/report/diagnosis.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "orthant/base/error.h"
#include "orthant/trace/recorder.h"

namespace diagnosis_test {
namespace {

using namespace orthant;
using namespace orthant::report;
using trace::EventKind;
using trace::NamedEvent;

// Folders with texts alone, and records of ranks made by hand.
class Diagnosis : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = std::filesystem::temp_directory_path() / "orthant-report-XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    run_ = name;
    std::filesystem::create_directories(run_ + "/log");
    write("config.json", "{}");
  }
  void TearDown() override { std::filesystem::remove_all(run_); }

  void write(const std::string& file, const std::string& text) { std::ofstream(run_ + "/" + file) << text; }

  Finding first() { return diagnose(read_run_folder(run_), {}).front(); }

  std::string run_;
};

// Steps of some ranks as they might have been, in milliseconds from one moment.
class Steps {
 public:
  explicit Steps(int ranks) {
    for (int r = 0; r < ranks; ++r) {
      auto& record = run_.ranks.emplace_back();
      record.header.rank = r;
      record.header.world_size = ranks;
      record.header.end = static_cast<std::uint32_t>(trace::RankEnd::done);
      record.header.cores = 64;
      record.header.threads = 1;
    }
    run_.path = "somewhere";
  }

  NamedEvent& add(int rank, EventKind kind, const std::string& text, int step, double begin, double end) {
    NamedEvent event;
    event.kind = kind;
    event.text = text;
    event.step = step;
    event.begin_ns = ns(begin);
    event.end_ns = end < 0 ? 0 : ns(end);
    auto& events = run_.ranks[static_cast<std::size_t>(rank)].events;
    event.number = events.size() + 1;
    events.push_back(event);
    return events.back();
  }

  // A call on all ranks, at the moments they come to it; all leave when the last has come.
  void collective(int rank, int step, std::uint32_t sequence, double comes, double ends) {
    for (const auto kind : {EventKind::exchange, EventKind::wait}) {
      auto& event = add(rank, kind, "all_reduce", step, comes, kind == EventKind::wait ? ends : comes + 0.01);
      if (kind == EventKind::wait) event.begin_ns = ns(comes + 0.01);
      event.group_text = "world/control@0 0,1,2,3";
      event.sequence = sequence;
    }
  }

  RunFolder& run() { return run_; }

  static std::int64_t ns(double milliseconds) { return 1'000'000'000 + std::llround(milliseconds * 1e6); }

 private:
  RunFolder run_;
};

std::vector<ProcessState> all(std::size_t ranks, ProcessState state) {
  return std::vector<ProcessState>(ranks, state);
}

TEST_F(Diagnosis, RefusesWhatIsNoRun) {
  EXPECT_THROW(read_run_folder(run_ + "/none"), ConfigError);
  std::filesystem::remove(run_ + "/config.json");
  try {
    read_run_folder(run_);
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_NE(error.message().find("holds nothing of a run"), std::string::npos);
  }
}

TEST_F(Diagnosis, BelievesTheLauncherFirst) {
  write("log/launcher.jsonl",
        R"({"exit_code":3,"failed_rank":1,"stop_asked":false,"report":"rank 1: killed by SIGKILL; it held 3 MiB"})"
        "\n");
  write("log/rank-0.log", "2026-01-31T12:00:00Z error: all_reduce failed after 3 s, peer: rank 1\n");
  const auto finding = first();
  EXPECT_EQ(finding.cause, "killed");
  EXPECT_GE(finding.confidence, 0.9);
  EXPECT_NE(finding.answer.find("rank 1: killed by SIGKILL"), std::string::npos);
  EXPECT_NE(finding.fix.find("--resume auto"), std::string::npos);
}

TEST_F(Diagnosis, FindsTheErrorBehindAnExitCode) {
  write("log/launcher.jsonl", R"({"exit_code":4,"failed_rank":2,"stop_asked":false,"report":"rank 2: exit code 4"})"
                              "\n");
  write("log/rank-0.log", "2026-01-31T12:00:01Z error: all_reduce failed after 3 s\n");
  write("log/rank-2.log", "2026-01-31T12:00:00Z error: out of memory at dp=2: 3 GiB in use\n");
  const auto finding = first();
  EXPECT_EQ(finding.cause, "out of memory");
  EXPECT_NE(finding.answer.find("rank 2 ended with an error: out of memory at dp=2"), std::string::npos);
}

TEST_F(Diagnosis, TellsCrashesFromKills) {
  const auto cause_of = [&](const std::string& signal) {
    write("log/launcher.jsonl",
          "{\"exit_code\":3,\"failed_rank\":1,\"report\":\"rank 1: killed by " + signal + "\"}\n");
    return first().cause;
  };
  for (const auto* signal : {"SIGSEGV", "SIGABRT", "SIGBUS", "SIGFPE", "SIGILL", "SIGSYS"}) {
    EXPECT_EQ(cause_of(signal), "crashed") << signal;
  }
  EXPECT_EQ(cause_of("SIGKILL"), "killed");
}

// What a hostile or broken program may have left: entries of other kinds, numbers without room, endless brackets.
TEST_F(Diagnosis, PassesOverWhatNoRunWrites) {
  write("log/launcher.jsonl",
        "{\"exit_code\":\"x\",\"failed_rank\":1.5,\"stop_asked\":3,\"report\":[1]}\n"
        "{\"exit_code\":99999999999,\"report\":\"rank 1: killed by SIGKILL\"}\n");
  write("config.json", std::string(100'000, '[') + std::string(100'000, ']'));
  write("eval.jsonl", "{\"step\":[" + std::string(100'000, '[') + std::string(100'000, ']') + "]}\n");
  write("metrics.jsonl", "{\"step\":1e300,\"loss\":2.0}\n{\"step\":1,\"loss\":2.0}\n");
  const auto run = read_run_folder(run_);
  ASSERT_EQ(run.verdicts.size(), 2U);
  EXPECT_EQ(run.verdicts[0].exit_code, 0);
  EXPECT_EQ(run.verdicts[0].failed_rank, -1);
  EXPECT_TRUE(run.config.is_null());
  EXPECT_TRUE(run.evals.empty());
  EXPECT_EQ(run.metrics.steps, std::vector<std::int64_t>{1});
  EXPECT_EQ(run.complaints.size(), 2U);
  EXPECT_FALSE(diagnose(run, {}).empty());
}

TEST_F(Diagnosis, ForgetsErrorsOfEarlierAttempts) {
  write("log/rank-0.log",
        "2026-01-31T12:00:00Z error: out of memory at dp=0\n2026-01-31T12:01:00Z rank 0 of 1 started: host a, process "
        "1\n");
  EXPECT_NE(first().cause, "out of memory");
}

TEST_F(Diagnosis, NamesStepsThatAreNotFinite) {
  write("log/rank-0.log",
        "2026-01-31T12:00:00Z step 5: loss nan, gradient norm nan; the update was left out; unit layers.1 on rank 0\n");
  const auto finding = first();
  EXPECT_EQ(finding.cause, "not finite");
  EXPECT_NE(finding.answer.find("unit layers.1"), std::string::npos);
}

TEST_F(Diagnosis, TellsOfARunWithoutFaults) {
  write("metrics.jsonl", "{\"step\":1,\"loss\":2.0}\n{\"step\":2,\"loss\":1.5}\n");
  const auto finding = first();
  EXPECT_EQ(finding.cause, "nothing wrong");
  EXPECT_EQ(finding.answer, "nothing wrong was found in 2 steps");
}

TEST(DiagnosisOfProcesses, NamesThoseThatEndedWithoutAWord) {
  Steps steps(2);
  steps.run().ranks[1].header.end = static_cast<std::uint32_t>(trace::RankEnd::running);
  steps.add(1, EventKind::action, "F layers.0", 3, 0, -1);
  const auto finding = diagnose(steps.run(), {.processes = all(2, ProcessState::gone), .now_ns = 0}).front();
  EXPECT_EQ(finding.cause, "killed");
  EXPECT_NE(finding.answer.find("rank 1 ended without a word"), std::string::npos);
  EXPECT_NE(finding.evidence.at(0).find("is in F layers.0, step 3"), std::string::npos);
}

TEST(DiagnosisOfProcesses, NamesAStoppedRank) {
  Steps steps(2);
  auto states = all(2, ProcessState::running);
  states[1] = ProcessState::stopped;
  const auto finding = diagnose(steps.run(), {.processes = states, .now_ns = Steps::ns(9000)}).front();
  EXPECT_EQ(finding.cause, "stopped rank");
  EXPECT_NE(finding.answer.find("rank 1 is stopped"), std::string::npos);
  EXPECT_NE(finding.fix.find("kill -CONT"), std::string::npos);
}

// Three wait for a call that the fourth has not come to.
TEST(DiagnosisOfProcesses, NamesWhoDoesNotCome) {
  Steps steps(4);
  for (const int rank : {0, 1, 3}) steps.collective(rank, 3, 7, 10, -1);
  steps.add(2, EventKind::action, "F layers.0", 3, 5, -1);
  const auto finding =
      diagnose(steps.run(), {.processes = all(4, ProcessState::running), .now_ns = Steps::ns(30'000)}).front();
  EXPECT_EQ(finding.cause, "hang");
  EXPECT_NE(finding.answer.find("rank 2 is the one that does not come: it is in F layers.0, step 3"), std::string::npos)
      << finding.answer;
  EXPECT_NE(finding.evidence.at(0).find("to which rank 2 never came"), std::string::npos) << finding.evidence.at(0);
}

TEST(DiagnosisOfProcesses, NamesTwoThatWaitForEachOther) {
  Steps steps(2);
  for (const int rank : {0, 1}) {
    for (const auto kind : {EventKind::exchange, EventKind::wait}) {
      auto& event = steps.add(rank, kind, "all_reduce", 3, 10, kind == EventKind::wait ? -1 : 11);
      event.group_text = rank == 0 ? "dp/gradients@0 0,1" : "tp/activations@0 0,1";
    }
  }
  const auto finding =
      diagnose(steps.run(), {.processes = all(2, ProcessState::running), .now_ns = Steps::ns(30'000)}).front();
  EXPECT_EQ(finding.cause, "deadlock");
  EXPECT_NE(finding.answer.find("ranks 0 and 1 wait for each other"), std::string::npos) << finding.answer;
}

// Four ranks, 8 steps of 10 ms each.
Finding slow(const std::function<void(Steps&, int rank, int step, double at)>& fill) {
  Steps steps(4);
  for (int step = 1; step <= 10; ++step) {
    for (int rank = 0; rank < 4; ++rank) {
      const double at = 10.0 * step;
      steps.add(rank, EventKind::phase, "step", step, at, at + 10);
      steps.add(rank, EventKind::phase, "work", step, at, at + 10);
      fill(steps, rank, step, at);
    }
  }
  return diagnose(steps.run(), {.processes = all(4, ProcessState::gone), .now_ns = 0}).front();
}

void work(Steps& steps, int rank, int step, double begin, double end, int stage = 0) {
  auto& event = steps.add(rank, EventKind::action, "F layers.0", step, begin, end);
  event.stage = static_cast<std::int16_t>(stage);
  event.microbatch = 0;
}

TEST(DiagnosisOfTimes, NamesASlowRank) {
  const auto finding = slow([](Steps& steps, int rank, int step, double at) {
    const double ends = rank == 2 ? 9 : 4;
    work(steps, rank, step, at, at + ends);
    steps.collective(rank, step, static_cast<std::uint32_t>(step), at + ends, at + 10);
  });
  EXPECT_EQ(finding.cause, "slow rank");
  EXPECT_NE(finding.answer.find("rank 2 is slower"), std::string::npos);
}

TEST(DiagnosisOfTimes, NamesSlowData) {
  const auto finding = slow([](Steps& steps, int rank, int step, double at) {
    steps.add(rank, EventKind::phase, "data", step, at, at + 6);
    work(steps, rank, step, at + 6, at + 10);
  });
  EXPECT_EQ(finding.cause, "slow data");
  EXPECT_NE(finding.answer.find("60% of a step"), std::string::npos) << finding.answer;
}

TEST(DiagnosisOfTimes, NamesAnUnevenSplit) {
  const auto finding = slow([](Steps& steps, int rank, int step, double at) {
    const bool heavy = rank >= 2;
    work(steps, rank, step, at, at + (heavy ? 8 : 2), heavy ? 1 : 0);
    if (heavy) return;
    steps.add(rank, EventKind::wait, "receive", step, at + 2, at + 10).group_text = "pp/activations@0 0,2";
  });
  EXPECT_EQ(finding.cause, "uneven split");
  EXPECT_NE(finding.answer.find("stage 1"), std::string::npos);
}

TEST(DiagnosisOfTimes, NamesExchangeThatNothingHides) {
  const auto finding = slow([](Steps& steps, int rank, int step, double at) {
    work(steps, rank, step, at, at + 3);
    steps.collective(rank, step, static_cast<std::uint32_t>(step), at + 3, at + 10);
  });
  EXPECT_EQ(finding.cause, "exposed exchange");
}

TEST(DiagnosisOfTimes, HasNothingAgainstEvenSteps) {
  const auto finding = slow([](Steps& steps, int rank, int step, double at) { work(steps, rank, step, at, at + 9.9); });
  EXPECT_EQ(finding.cause, "nothing wrong");
}

TEST(Metrics, AreReadInOneSweep) {
  std::string name = std::filesystem::temp_directory_path() / "orthant-metrics-XXXXXX";
  const int file = mkstemp(name.data());
  ASSERT_GE(file, 0);
  close(file);
  std::ofstream(name) << R"({"step":1,"loss":2.5,"grad_norm":null,"text":"a","expert_loads":{"x":[1,2]},"lr":1e-3})"
                      << "\n{\"step\":2,\"loss\":2.25,\"lr\":2e-3}\n{\"step\":3,\"lo";
  MetricTable table;
  MetricReader reader;
  reader.read(name, table);
  std::filesystem::remove(name);
  EXPECT_EQ(table.steps, (std::vector<std::int64_t>{1, 2}));
  EXPECT_EQ(table.columns.at("loss"), (std::vector<double>{2.5, 2.25}));
  EXPECT_EQ(table.columns.at("lr"), (std::vector<double>{1e-3, 2e-3}));
  EXPECT_TRUE(std::isnan(table.columns.at("grad_norm")[0]));
  EXPECT_TRUE(std::isnan(table.columns.at("grad_norm")[1]));
}

TEST(Metrics, AreReadOnWhereTheFileGoesOnAndAnewWhereItDoesNot) {
  std::string name = std::filesystem::temp_directory_path() / "orthant-metrics-XXXXXX";
  const int file = mkstemp(name.data());
  ASSERT_GE(file, 0);
  close(file);
  MetricTable table;
  MetricReader reader;
  const auto steps_after = [&](const std::string& text, bool append) {
    std::ofstream(name, append ? std::ios::app : std::ios::trunc) << text;
    reader.read(name, table);
    EXPECT_EQ(table.columns.contains("loss") ? table.columns.at("loss").size() : 0U, table.steps.size());
    return table.steps;
  };
  using Steps = std::vector<std::int64_t>;
  EXPECT_EQ(steps_after("", false), Steps());
  EXPECT_EQ(steps_after("{\"step\":1,\"loss\":1}\n{\"step\":2,\"lo", true), Steps({1}));
  EXPECT_EQ(steps_after("ss\":2}\n", true), Steps({1, 2}));
  EXPECT_EQ(steps_after("{\"step\":3,\"lr\":2}\n{\"step\":4,\"loss\":5}\n", true), Steps({1, 2, 3, 4}));
  EXPECT_TRUE(std::isnan(table.columns.at("loss")[2]));
  EXPECT_EQ(table.columns.at("loss")[3], 5);
  // A run that was resumed from step 1 goes another way, and has come as far.
  EXPECT_EQ(
      steps_after(
          "{\"step\":1,\"loss\":1}\n{\"step\":2,\"loss\":7}\n{\"step\":3,\"loss\":8}\n{\"step\":4,\"loss\":9,\"more\":"
          "12345}\n",
          false),
      Steps({1, 2, 3, 4}));
  EXPECT_EQ(table.columns.at("loss"), (std::vector<double>{1, 7, 8, 9}));
  EXPECT_FALSE(table.columns.contains("lr"));
  std::filesystem::remove(name);
}

}  // namespace
}  // namespace diagnosis_test
