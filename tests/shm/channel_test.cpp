// What a channel does when peers leave, are late, or make other calls, and that waiting costs nothing.
#include "orthant/shm/channel.h"

#include <gtest/gtest.h>
#include <time.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <string>

#include "shm/thread_ranks.h"

namespace orthant::shm {
namespace channel_test {

using Kind = CollectiveRequest::Kind;
using test::all_ranks;
using test::errors_of_ranks;

CollectiveRequest sum_of(std::vector<float>& values) {
  CollectiveRequest request;
  request.kind = Kind::all_reduce;
  request.dtype = Dtype::f32;
  request.output = reinterpret_cast<std::byte*>(values.data());
  request.count = static_cast<int64_t>(values.size());
  return request;
}

double seconds_since(std::chrono::steady_clock::time_point then) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - then).count();
}

TEST(Channel, APeerThatLeavesIsNamedAtOnceInCollectivesAndMessages) {
  for (const size_t elements : {10U, 1000000U}) {  // one slot, many slots
    const auto began = std::chrono::steady_clock::now();
    const auto errors = errors_of_ranks(3, [&](Endpoint& endpoint) {
      Channel channel(endpoint, "c", all_ranks(3), endpoint.rank(), 60);
      std::vector<float> values(elements, 1.0F);
      channel.collective(sum_of(values)).wait();
      if (endpoint.rank() == 1) return;
      if (endpoint.rank() == 0)
        channel.receive(reinterpret_cast<std::byte*>(values.data()), values.size() * 4, 1, 0).wait();
      if (endpoint.rank() == 2) channel.collective(sum_of(values)).wait();
    });
    EXPECT_EQ(errors, (std::vector<std::string>{"rank 1 is gone", "", "rank 1 is gone"}));
    EXPECT_LT(seconds_since(began), 1.0);
  }
}

TEST(Channel, ALatePeerIsNamedAfterTheTimeout) {
  const auto errors = errors_of_ranks(2, [&](Endpoint& endpoint) {
    Channel first(endpoint, "first", all_ranks(2), endpoint.rank(), 0.3);
    Channel second(endpoint, "second", all_ranks(2), endpoint.rank(), 0.6);
    std::vector<float> values(10, 1.0F);
    (endpoint.rank() == 0 ? first : second).collective(sum_of(values)).wait();
  });
  EXPECT_EQ(errors[0], "rank 1 did not come within 0.3 s");
}

TEST(Channel, ACallUnlikeTheOthersIsNoticed) {
  for (const size_t elements : {11U, 1000000U}) {
    const auto errors = errors_of_ranks(2, [&](Endpoint& endpoint) {
      Channel channel(endpoint, "c", all_ranks(2), endpoint.rank(), 60);
      std::vector<float> values(endpoint.rank() == 0 ? 10 : elements, 1.0F);
      channel.collective(sum_of(values)).wait();
    });
    EXPECT_NE(errors[0].find("rank 1 made another call than this all_reduce"), std::string::npos) << errors[0];
  }
}

TEST(Channel, AMessageOfAnotherSizeIsTheReceiversError) {
  const auto errors = errors_of_ranks(2, [&](Endpoint& endpoint) {
    Channel channel(endpoint, "c", all_ranks(2), endpoint.rank(), 60);
    std::byte data[64] = {};
    if (endpoint.rank() == 0) channel.send(data, 64, 1, 7).wait();
    if (endpoint.rank() == 1) channel.receive(data, 32, 0, 7).wait();
  });
  EXPECT_EQ(errors[0], "");
  EXPECT_EQ(errors[1], "rank 0 sent 64 bytes with tag 7, 32 were expected");
}

TEST(Channel, LargeMessagesOfOtherTagsAreSetAside) {
  const auto errors = errors_of_ranks(2, [&](Endpoint& endpoint) {
    Channel channel(endpoint, "c", all_ranks(2), endpoint.rank(), 60);
    constexpr size_t kBytes = 3 << 20;
    std::vector<std::byte> first(kBytes, std::byte{1});
    std::vector<std::byte> second(kBytes, std::byte{2});
    if (endpoint.rank() == 0) {
      auto a = channel.send(first.data(), kBytes, 1, 1);
      auto b = channel.send(second.data(), kBytes, 1, 2);
      a.wait();
      b.wait();
    } else {
      channel.receive(first.data(), kBytes, 0, 2).wait();
      channel.receive(second.data(), kBytes, 0, 1).wait();
      EXPECT_EQ(first.back(), std::byte{2});
      EXPECT_EQ(second.back(), std::byte{1});
    }
  });
  EXPECT_EQ(errors, (std::vector<std::string>{"", ""}));
}

TEST(Channel, AnAsynchronousLargeCallFinishesWhileTheProgramComputes) {
  std::atomic<bool> peer_is_done = false;
  const auto errors = errors_of_ranks(2, [&](Endpoint& endpoint) {
    Channel channel(endpoint, "c", all_ranks(2), endpoint.rank(), 60);
    std::vector<float> values(4000000, 1.0F);
    auto ticket = channel.collective(sum_of(values));
    if (endpoint.rank() == 0) {
      // Rank 0 does not wait before rank 1 is done: only its progress thread can have helped.
      const auto began = std::chrono::steady_clock::now();
      while (!peer_is_done && seconds_since(began) < 20) std::this_thread::yield();
      EXPECT_TRUE(peer_is_done);
    }
    ticket.wait();
    peer_is_done = true;
    EXPECT_EQ(values.back(), 2.0F);
  });
  EXPECT_EQ(errors, (std::vector<std::string>{"", ""}));
}

TEST(Channel, WaitingCostsNoProcessorTime) {
  const auto processor_seconds = [] {
    timespec now{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
  };
  const auto errors = errors_of_ranks(2, [&](Endpoint& endpoint) {
    Channel channel(endpoint, "c", all_ranks(2), endpoint.rank(), 60);
    std::vector<std::byte> data(4 << 20);
    if (endpoint.rank() == 0) {
      // An early receive keeps the progress thread waiting, and a blocking one this thread.
      auto early = channel.receive(data.data(), data.size(), 1, 1);
      std::byte go{};
      channel.receive(&go, 1, 1, 2).wait();
      early.wait();
    } else {
      const double before = processor_seconds();
      std::this_thread::sleep_for(std::chrono::milliseconds(500));  // the time in which nothing may spin
      EXPECT_LT(processor_seconds() - before, 0.1);
      std::byte go{};
      channel.send(&go, 1, 0, 2).wait();
      channel.send(data.data(), data.size(), 0, 1).wait();
    }
  });
  EXPECT_EQ(errors, (std::vector<std::string>{"", ""}));
}

}  // namespace channel_test
}  // namespace orthant::shm
