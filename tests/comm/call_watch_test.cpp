// Calls that return before they have run, without a card: what is looked at is a flag.
#include "orthant/comm/call_watch.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>

#include "comm/ranks.h"

namespace orthant::comm {
namespace call_watch_test {

using namespace std::chrono_literals;

const ChannelMembers kMembers{.name = "pp", .ranks = {0, 4}, .index = 0, .purpose = Purpose::activations};

CallWords receive_words(uint64_t sequence) {
  return {.what = "receive #" + std::to_string(sequence) + " (tag 0, float32 [4])",
          .subjects = {},
          .line = "1-0/0",
          .sequence = sequence,
          .peer = 1};
}

// Waits for it, with the patience of a busy machine.
std::string noticed_text(const NoticedFailure& noticed) {
  for (int i = 0; i < 2000; ++i) {
    try {
      noticed.throw_if_set();
    } catch (const CommError& error) {
      return error.message();
    }
    std::this_thread::sleep_for(10ms);
  }
  return "nothing was noticed";
}

class Watched : public testing::Test {
 protected:
  std::shared_ptr<NoticedFailure> noticed = std::make_shared<NoticedFailure>();
  std::promise<void> ended;
};

TEST_F(Watched, ACallThatIsLateIsNamedWithItsPeerAndEndsItsQueue) {
  CallWatch watch(noticed, nullptr);
  const int queue = watch.add_queue(kMembers, std::nullopt, [&] { ended.set_value(); });
  watch.add(queue, receive_words(7), 0.05, [] { return false; });
  const auto text = noticed_text(*noticed);
  EXPECT_NE(text.find("receive #7 (tag 0, float32 [4]) on group pp [0, 4] for activations failed after"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("peer: rank 4"), std::string::npos) << text;
  EXPECT_NE(text.find("timed out after 0.05 s"), std::string::npos) << text;
  EXPECT_EQ(ended.get_future().wait_for(20s), std::future_status::ready);
  EXPECT_FALSE(watch.remove_queue(queue));
}

TEST_F(Watched, ACallThatFailsIsToldAtOnce) {
  CallWatch watch(noticed, nullptr);
  const int queue = watch.add_queue(kMembers, std::nullopt, [&] { ended.set_value(); });
  watch.add(queue, receive_words(0), 1e6, []() -> bool { throw std::runtime_error("remote process exited"); });
  EXPECT_NE(noticed_text(*noticed).find("remote process exited"), std::string::npos);
  EXPECT_EQ(ended.get_future().wait_for(20s), std::future_status::ready);
}

TEST_F(Watched, CallsBehindTheFirstOfAQueueAreNotLate) {
  std::atomic<bool> first_done = false;
  CallWatch watch(noticed, nullptr);
  const int queue = watch.add_queue(kMembers, std::nullopt, [] {});
  watch.add(queue, receive_words(0), 1e6, [&] { return first_done.load(); });
  watch.add(queue, receive_words(1), 0.05, [] { return true; });
  std::this_thread::sleep_for(200ms);
  EXPECT_NO_THROW(noticed->throw_if_set());
  first_done = true;
  EXPECT_TRUE(watch.remove_queue(queue));
}

TEST_F(Watched, CallsThatAreRecordedAreNotLookedAt) {
  CallWatch watch(noticed, nullptr);
  const int queue = watch.add_queue(kMembers, std::nullopt, [] {});
  watch.record(true);
  watch.add(queue, receive_words(0), 0.01, [] { return false; });
  watch.record(false);
  EXPECT_TRUE(watch.wait_until_done(20));
  EXPECT_TRUE(watch.remove_queue(queue));
}

// Their communicators are left as they are.
TEST_F(Watched, QueuesWhoseCallsARecordingHoldsAreGivenUp) {
  CallWatch watch(noticed, nullptr);
  const int done = watch.add_queue(kMembers, std::nullopt, [] {}),
            held = watch.add_queue(kMembers, std::nullopt, [] {});
  EXPECT_TRUE(watch.remove_queue(done));
  watch.give_up();
  EXPECT_FALSE(watch.remove_queue(held));
  EXPECT_NO_THROW(noticed->throw_if_set());
}

TEST_F(Watched, ARankThatPartsWaitsForItsOwnCalls) {
  std::atomic<int> looks = 0;
  CallWatch watch(noticed, nullptr);
  const int queue = watch.add_queue(kMembers, std::nullopt, [] {});
  watch.add(queue, receive_words(0), 1e6, [&] { return ++looks > 3; });
  EXPECT_TRUE(watch.wait_until_done(20));
  EXPECT_GT(looks, 3);
  watch.add(queue, receive_words(1), 1e6, [] { return false; });
  EXPECT_FALSE(watch.wait_until_done(0.05));
  EXPECT_FALSE(watch.remove_queue(queue));
}

TEST_F(Watched, ARankThatNobodyCanTellIsLeft) {
  std::promise<std::string> left;
  CallWatch watch(noticed, [&](const CommError& error) { left.set_value(error.message()); }, /*patience_seconds=*/0.05);
  const int queue = watch.add_queue(kMembers, std::nullopt, [] {});
  watch.add(queue, receive_words(3), 0.05, [] { return false; });
  auto text = left.get_future();
  ASSERT_EQ(text.wait_for(20s), std::future_status::ready);
  EXPECT_NE(text.get().find("receive #3"), std::string::npos);
}

// Whose device still runs calls that wait: it leaves after a second, not never.
TEST_F(Watched, ARankWhoseQueuesDoNotEndLeaves) {
  std::promise<void> never;
  const auto waits = never.get_future().share();
  const auto began = CallWatch::Chronometer::now();
  {
    CallWatch watch(noticed, nullptr);
    const int queue = watch.add_queue(kMembers, std::nullopt, [waits] { waits.wait(); });
    watch.add(queue, receive_words(3), 0.05, [] { return false; });
    noticed_text(*noticed);
  }
  EXPECT_LT(CallWatch::Chronometer::now() - began, 10s);
  never.set_value();
}

TEST_F(Watched, ARankLeavesAfterItsQueuesHaveEnded) {
  std::atomic<bool> has_ended = false;
  {
    CallWatch watch(noticed, nullptr);
    const int queue = watch.add_queue(kMembers, std::nullopt, [&] {
      std::this_thread::sleep_for(100ms);  // as long as a device takes to let go
      has_ended = true;
    });
    watch.add(queue, receive_words(3), 0.05, [] { return false; });
    noticed_text(*noticed);
  }
  EXPECT_TRUE(has_ended);
}

// On a device a queue may end only after the calls of another one have, which stand before its own.
TEST_F(Watched, NoQueueWaitsForTheEndOfAnotherToBeEnded) {
  std::promise<void> last_ended;
  const auto last = last_ended.get_future().share();
  CallWatch watch(noticed, nullptr);
  const int queue = watch.add_queue(kMembers, std::nullopt, [this, last] {
    last.wait();
    ended.set_value();
  });
  watch.add_queue(kMembers, std::nullopt, [&] { last_ended.set_value(); });
  watch.add(queue, receive_words(3), 0.05, [] { return false; });
  EXPECT_EQ(ended.get_future().wait_for(20s), std::future_status::ready);
}

TEST_F(Watched, MoreQueuesThanTheDeviceKeepsApartAreRefused) {
  CallWatch watch(noticed, nullptr);
  for (int i = 0; i < CallWatch::kMostQueues; ++i) watch.add_queue(kMembers, std::nullopt, [] {});
  try {
    watch.add_queue(kMembers, std::nullopt, [] {});
    FAIL() << "not refused";
  } catch (const ConfigError& error) {
    EXPECT_NE(error.message().find("group pp of ranks [0, 4] needs one more stream of the device than the 32"),
              std::string::npos)
        << error.message();
    EXPECT_NE(error.remedy().find("--backend gloo"), std::string::npos);
  }
}

// It was told, and waits for its device on its way out.
TEST_F(Watched, ARankThatDoesNotComeToItsEndIsLeft) {
  std::promise<void> left;
  CallWatch watch(noticed, [&](const CommError&) { left.set_value(); }, /*patience_seconds=*/0.2);
  const int queue = watch.add_queue(kMembers, std::nullopt, [] {});
  watch.add(queue, receive_words(3), 0.05, [] { return false; });
  noticed_text(*noticed);
  EXPECT_EQ(left.get_future().wait_for(20s), std::future_status::ready);
}

TEST_F(Watched, ARankThatWasToldMayLeaveByItself) {
  std::atomic<bool> left = false;
  {
    CallWatch watch(noticed, [&](const CommError&) { left = true; }, /*patience_seconds=*/1e6);
    const int queue = watch.add_queue(kMembers, std::nullopt, [] {});
    watch.add(queue, receive_words(3), 0.05, [] { return false; });
    noticed_text(*noticed);
  }
  EXPECT_FALSE(left);
}

// The next call of any group of the rank throws what was noticed.
TEST(NoticedFailure, IsTheFirstThatWasSet) {
  NoticedFailure noticed;
  EXPECT_NO_THROW(noticed.throw_if_set());
  EXPECT_FALSE(noticed.was_told());
  noticed.set(CommError("first"));
  noticed.set(CommError("second"));
  EXPECT_THROW(noticed.throw_if_set(), CommError);
  EXPECT_TRUE(noticed.was_told());
}

}  // namespace call_watch_test
}  // namespace orthant::comm
