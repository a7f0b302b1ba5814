#include "orthant/trace/recorder.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <stdexcept>
#include <thread>

#include "orthant/base/error.h"

namespace recorder_test {
namespace {

using namespace orthant;
using namespace orthant::trace;

class Recorder : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = std::filesystem::temp_directory_path() / "orthant-trace-XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    run_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(run_); }

  std::string run_;
};

Event action(trace::Recorder& recorder, const std::string& text) {
  Event event;
  event.kind = EventKind::action;
  event.name = recorder.name(text);
  return event;
}

TEST_F(Recorder, KeepsWhatARankDidWhenItIsKilled) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    trace::Recorder recorder(3, 4);
    {
      const Span early(&recorder, action(recorder, "before the file"));
    }
    recorder.keep_in(run_);
    recorder.begin_step(7);
    {
      const Span done(&recorder, action(recorder, "F layers.3"));
    }
    auto waiting = action(recorder, "all_reduce");
    waiting.kind = EventKind::wait;
    waiting.group = recorder.name("tp/activations@2 2,3");
    waiting.sequence = 12;
    const Span open(&recorder, waiting);
    kill(getpid(), SIGKILL);
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  const auto records = read_flight(run_);
  ASSERT_EQ(records.size(), 1U);
  const auto& record = records[0];
  EXPECT_EQ(record.header.rank, 3);
  EXPECT_EQ(record.header.world_size, 4);
  EXPECT_EQ(record.header.process, child);
  EXPECT_EQ(record.header.step, 7);
  EXPECT_EQ(record.end(), RankEnd::running);
  ASSERT_EQ(record.events.size(), 3U);
  EXPECT_EQ(record.events[0].text, "before the file");
  EXPECT_EQ(record.events[1].text, "F layers.3");
  EXPECT_EQ(record.events[1].step, 7);
  EXPECT_FALSE(record.events[1].is_open());
  EXPECT_TRUE(record.events[2].is_open());
  EXPECT_EQ(record.events[2].group_text, "tp/activations@2 2,3");
  EXPECT_EQ(record.events[2].sequence, 12U);
}

TEST_F(Recorder, KeepsTheLastTenThousandEvents) {
  trace::Recorder recorder(0, 1);
  recorder.keep_in(run_);
  const auto what = action(recorder, "F");
  {
    const Span outer(&recorder, action(recorder, "outer"));  // overwritten before it ends
    for (std::uint64_t i = 0; i < kFlightCapacity + 5; ++i) const Span span(&recorder, what);
  }
  const auto record = read_flight_file(flight_path(run_, 0));
  ASSERT_EQ(record.events.size(), kFlightCapacity);
  EXPECT_EQ(record.events.front().number, 7U);
  EXPECT_EQ(record.events.back().number, kFlightCapacity + 6);
  for (const auto& event : record.events) ASSERT_EQ(event.text, "F");
}

TEST_F(Recorder, ThreadsRecordSideBySide) {
  trace::Recorder recorder(0, 1);
  recorder.keep_in(run_);
  const auto what = action(recorder, "F");
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 1000; ++i) const Span span(&recorder, what);
    });
  }
  for (auto& thread : threads) thread.join();
  const auto record = read_flight_file(flight_path(run_, 0));
  ASSERT_EQ(record.events.size(), 4000U);
  for (std::size_t i = 0; i < record.events.size(); ++i) {
    EXPECT_EQ(record.events[i].number, i + 1);
    EXPECT_FALSE(record.events[i].is_open());
  }
}

TEST_F(Recorder, MarksWhatAnErrorEnded) {
  trace::Recorder recorder(0, 1);
  Capture capture(recorder);
  try {
    const Span span(&recorder, action(recorder, "F"));
    throw std::runtime_error("no");
  } catch (const std::runtime_error&) {
  }
  ASSERT_EQ(capture.events().size(), 1U);
  EXPECT_EQ(capture.events()[0].failed, 1);
}

TEST_F(Recorder, CapturesOperationsWithoutKeepingThem) {
  trace::Recorder recorder(0, 1);
  recorder.keep_in(run_);
  EXPECT_FALSE(recorder.captures_operations());
  {
    Capture capture(recorder);
    EXPECT_TRUE(recorder.captures_operations());
    EXPECT_THROW(Capture second(recorder), ConfigError);
    {
      const Span outer(&recorder, action(recorder, "F layers.0"));
      auto operation = action(recorder, "linear");
      operation.kind = EventKind::operation;
      const Span inner(&recorder, operation);
    }
    const auto events = capture.events();
    ASSERT_EQ(events.size(), 2U);
    EXPECT_EQ(events[0].text, "F layers.0");
    EXPECT_EQ(events[1].text, "linear");
    EXPECT_GE(events[1].begin_ns, events[0].begin_ns);
    EXPECT_LE(events[1].end_ns, events[0].end_ns);
  }
  EXPECT_EQ(read_flight_file(flight_path(run_, 0)).events.size(), 1U);
}

TEST_F(Recorder, GivesEqualTextsOneNameAndStopsWhenThereIsNoRoom) {
  trace::Recorder recorder(0, 1);
  EXPECT_EQ(recorder.name("F"), recorder.name("F"));
  EXPECT_NE(recorder.name("F"), recorder.name("B"));
  EXPECT_EQ(recorder.name(""), 0U);
  const std::string long_text(1000, 'x');
  std::uint32_t last = 1;
  for (int i = 0; i < 400 && last != 0; ++i) last = recorder.name(long_text + std::to_string(i));
  EXPECT_EQ(last, 0U);
  EXPECT_EQ(recorder.text_of(recorder.name("F")), "F");
}

TEST_F(Recorder, ShiftsTimesByTheClockOffset) {
  trace::Recorder recorder(1, 2);
  recorder.keep_in(run_);
  const auto before = now_ns();
  {
    const Span span(&recorder, action(recorder, "F"));
  }
  recorder.set_clock(3'000'000'000, 40'000);
  const auto record = read_flight_file(flight_path(run_, 1));
  EXPECT_GE(record.events[0].begin_ns, before + 3'000'000'000);
  EXPECT_EQ(record.header.clock_error_ns, 40'000);
}

// An event is two looks at the clock and a cache line or two; docs/profile.md has the figure. The bound is loose: other
// programs run beside a test.
TEST_F(Recorder, TakesLessThanAMicrosecondAnEvent) {
  trace::Recorder recorder(0, 1);
  recorder.keep_in(run_);
  const auto what = action(recorder, "F");
  constexpr int kEvents = 20'000;
  double least = 1e9;
  for (int round = 0; round < 15; ++round) {
    const auto began = now_ns();
    for (int i = 0; i < kEvents; ++i) const Span span(&recorder, what);
    least = std::min(least, static_cast<double>(now_ns() - began) / kEvents);
  }
  RecordProperty("nanoseconds_per_event", fmt::format("{:.1f}", least));
  std::cout << fmt::format("{:.1f} ns an event\n", least);
  EXPECT_LT(least, 1000);
}

TEST_F(Recorder, RefusesFilesThatAreNone) {
  std::filesystem::create_directories(run_ + "/flight");
  const auto path = flight_path(run_, 0);
  const auto says = [&](const std::string& words) {
    try {
      read_flight_file(path);
    } catch (const DataError& error) {
      EXPECT_NE(error.message().find(words), std::string::npos) << error.message();
      return;
    }
    ADD_FAILURE() << "no error: " << words;
  };
  says("No such file");
  std::ofstream(path) << std::string(5000, 'x');
  says("its first bytes are not those of one");
  {
    trace::Recorder(0, 1).keep_in(run_);
  }
  std::fstream(path, std::ios::in | std::ios::out)
      .seekp(offsetof(FlightHeader, clock_offset_ns))
      .write("\x7f\x7f\x7f\x7f\x7f\x7f\x7f\x7f", 8);
  says("its times make no sense");
  std::fstream(path, std::ios::in | std::ios::out)
      .seekp(offsetof(FlightHeader, clock_offset_ns))
      .write("\0\0\0\0\0\0\0\0", 8);
  std::filesystem::resize_file(path, 100'000);
  says("it has 100000 of");
  std::vector<std::string> complaints;
  EXPECT_TRUE(read_flight(run_, &complaints).empty());
  EXPECT_EQ(complaints.size(), 1U);
  EXPECT_TRUE(std::filesystem::exists(path + ".previous"));
}

}  // namespace
}  // namespace recorder_test
