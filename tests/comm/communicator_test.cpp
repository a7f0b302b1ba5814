// Groups of whole meshes, sub-groups, fake worlds, and what survivors are told when a rank is missing.
#include "orthant/comm/communicator.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <latch>
#include <memory>
#include <numeric>
#include <thread>

#include "comm/ranks.h"
#include "orthant/base/error.h"

namespace orthant::comm {
namespace communicator_test {

using test::errors_of_ranks;
using test::on_ranks;
using test::quick;

class CommunicatorOn : public testing::TestWithParam<BackendKind> {};

TEST_P(CommunicatorOn, EveryGroupOfAMeshSumsOverItsOwnRanks) {
  const auto mesh = Mesh::parse("pp=2,dp=2,tp=2");
  const std::vector<GroupRequest> requests{{Axis::pp}, {Axis::dp}, {Axis::tp}, {AxisSet{Axis::dp, Axis::tp}}};
  on_ranks(mesh, quick(true, GetParam()), requests, [&](Communicator& communicator) {
    for (const auto& request : requests) {
      auto group = communicator.group(request.axes);
      EXPECT_EQ(group.ranks(), mesh.group_of(communicator.rank(), request.axes));
      auto tensor = at::full({10}, communicator.rank(), at::kDouble);
      group.all_reduce(tensor).wait();
      EXPECT_EQ(tensor[0].item<double>(), std::accumulate(group.ranks().begin(), group.ranks().end(), 0.0));
      EXPECT_EQ(communicator.counters(request.axes).of(Op::all_reduce).bytes, 80);
    }
  });
}

TEST_P(CommunicatorOn, SubgroupsHoldTheRanksTheyWereAskedFor) {
  const auto mesh = Mesh::parse("pp=2,tp=2");
  run_thread_ranks(4, [&](int rank, Store store) {
    Communicator communicator(mesh, rank, store, quick(false, GetParam()), {},
                              {{"tied", {{0, 3}}, Purpose::gradients}});
    auto group = communicator.subgroup("tied");
    auto tensor = at::full({2}, rank + 1);
    group.all_reduce(tensor).wait();
    EXPECT_EQ(tensor[0].item<int64_t>(), rank == 0 || rank == 3 ? 5 : rank + 1);
    communicator.close();
  });
}

TEST(Communicator, CountsByNameWhatGroupsAndSubgroupsDid) {
  run_thread_ranks(2, [&](int rank, Store store) {
    Communicator communicator(Mesh::parse("tp=2"), rank, store, quick(),
                              {{Axis::tp, Purpose::activations}, {Axis::tp, Purpose::gradients}, {Axis::dp}},
                              {{"tied", {{0, 1}}, Purpose::gradients}});
    const auto tensor = at::zeros({10}, at::kDouble);
    communicator.world().all_reduce(tensor).wait();
    communicator.group(Axis::tp, Purpose::activations).all_reduce(tensor).wait();
    communicator.group(Axis::tp, Purpose::gradients).all_reduce(tensor).wait();
    communicator.subgroup("tied").all_reduce(tensor.narrow(0, 0, 4)).wait();
    auto found = communicator.counters_by_name();
    ASSERT_EQ(found.size(), 3U);  // not the world's
    EXPECT_EQ(found.at("tp").of(Op::all_reduce).calls, 2);
    EXPECT_EQ(found.at("tp").of(Op::all_reduce).bytes, 160);
    EXPECT_EQ(found.at("tied").of(Op::all_reduce).bytes, 32);
    EXPECT_EQ(found.at("dp").total().calls, 0);
    communicator.close();
  });
}

TEST(Communicator, GroupsWithinAHostShareMemoryByDefault) {
  auto options = quick();
  options.backend = BackendKind::automatic;
  on_ranks(2, options, [](Communicator& communicator) { EXPECT_STREQ(communicator.backend_name(), "shm"); });
}

TEST(Communicator, BuffersOfSharingRanksArePlaced) {
  // Every collective on whole buffers and on views of them, large enough for the way without staging.
  on_ranks(3, quick(false, BackendKind::shm), [](Communicator& communicator) {
    auto group = communicator.world();
    const int64_t count = 300007;
    auto sum = communicator.allocate(count + 5, at::kFloat).narrow(0, 5, count);
    sum.fill_(group.index() + 1);
    group.all_reduce(sum).wait();
    EXPECT_TRUE(sum.eq(6).all().item<bool>());

    auto whole = communicator.allocate(3 * count, at::kFloat);
    auto own = whole.narrow(0, group.index() * count, count);
    own.fill_(group.index());
    group.all_gather(whole, own).wait();
    EXPECT_TRUE(at::equal(whole, at::arange(3).repeat_interleave(count).to(at::kFloat)));
    group.reduce_scatter(own, whole).wait();
    EXPECT_TRUE(own.eq(3 * group.index()).all().item<bool>());

    auto message = communicator.allocate(count, at::kFloat);
    message.fill_(7);
    auto received = at::zeros({count});
    auto work = group.send(message, (group.index() + 1) % 3);
    group.receive(received, (group.index() + 2) % 3).wait();
    work.wait();
    EXPECT_TRUE(at::equal(received, message));
  });
}

TEST(Communicator, BuffersAreAligned) {
  CommOptions options;
  options.backend = BackendKind::fake;
  Communicator communicator(Mesh::parse("dp=2"), 0, std::nullopt, options);
  for (const auto dtype : {at::kFloat, at::kByte, at::kDouble}) {
    const auto buffer = communicator.allocate(1001, dtype);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data_ptr()) % 64, 0U);
    EXPECT_EQ(buffer.numel(), 1001);
  }
}

TEST(Communicator, AFakeWorldOfAnySizeRunsInOneProcess) {
  const auto mesh = Mesh::parse("pp=8,dp=16,tp=8");
  CommOptions options;
  options.backend = BackendKind::fake;
  Communicator communicator(mesh, 777, std::nullopt, options, {{AxisSet{Axis::dp, Axis::tp}}});
  auto group = communicator.group(AxisSet{Axis::dp, Axis::tp});
  EXPECT_EQ(group.size(), 128);
  auto output = at::empty({128 * 2});
  group.all_gather(output, at::ones({2})).wait();
  EXPECT_TRUE(output.eq(1).all().item<bool>());
  auto received = at::ones({3});
  group.receive(received, 5).wait();
  EXPECT_EQ(received.sum().item<float>(), 0.0F);
  communicator.close();
}

TEST(Communicator, RefusesAMeshThatDoesNotFillTheWorld) {
  launch::Job job;
  job.world_size = 6;
  EXPECT_THROW(make_communicator(Mesh::parse("dp=4"), job, quick()), ConfigError);
}

TEST(Communicator, NamesARankThatNeverArrives) {
  const auto mesh = Mesh::parse("dp=3");
  auto options = quick();
  options.timeout_seconds = 0.5;
  const auto errors = try_thread_ranks(3, [&](int rank, Store store) {
    if (rank != 1) Communicator communicator(mesh, rank, store, options);
  });
  EXPECT_EQ(errors[1], nullptr);
  for (const int rank : {0, 2}) {
    try {
      std::rethrow_exception(errors[static_cast<size_t>(rank)]);
    } catch (const CommError& error) {
      EXPECT_NE(std::string(error.what()).find("2 of 3 ranks arrived within 0.5 s; missing: rank 1"), std::string::npos)
          << error.what();
    }
  }
}

TEST_P(CommunicatorOn, APeerThatLeavesIsNamedWithGroupCallAndTimeout) {
  const auto texts = errors_of_ranks(Mesh::parse("dp=3"), quick(false, GetParam()), {}, [](Communicator& communicator) {
    auto tensor = at::ones({1 << 18});
    communicator.world().all_reduce(tensor).wait();
    if (communicator.rank() == 1) return;
    constexpr std::array<std::string_view, 2> kSubject = {"layers.3", "layers.3.mlp.w2.weight"};
    communicator.world().all_reduce(tensor, Reduction::sum, kSubject).wait();
  });
  EXPECT_EQ(texts[1], "");
  for (const int rank : {0, 2}) {
    const auto& text = texts[static_cast<size_t>(rank)];
    for (const auto& part : {"all_reduce #1", "group world [0, 1, 2] for control of layers.3 failed", "peer: rank 1",
                             "timeout 20 s", "communicator_test.cpp"}) {
      EXPECT_NE(text.find(part), std::string::npos) << part << " not in: " << text;
    }
  }
}

TEST_P(CommunicatorOn, APeerThatIsLateIsNamedAfterTheTimeout) {
  auto options = quick(false, GetParam());
  options.timeout_seconds = 1;
  const auto texts = errors_of_ranks(Mesh::parse("dp=2"), options, {}, [](Communicator& communicator) {
    auto world = communicator.world();
    auto tensor = at::ones({4});
    if (communicator.rank() == 0) world.receive(tensor, 1, 7).wait();
    if (communicator.rank() == 1) world.barrier().wait();  // waits for rank 0, which never comes
  });
  for (const auto& part : {"receive #0", "tag 7", "peer: rank 1", "timeout 1 s"}) {
    EXPECT_NE(texts[0].find(part), std::string::npos) << part << " not in: " << texts[0];
  }
  EXPECT_NE(texts[1].find("barrier #0"), std::string::npos) << texts[1];
}

TEST_P(CommunicatorOn, HowLongCallsWaitDependsOnThePhaseOfTheJob) {
  for (const bool check : {false, true}) {
    auto options = quick(check, GetParam());
    options.phases = Timeouts{.start_seconds = 20, .step_seconds = 0.15, .save_seconds = 20};
    std::latch gave_up(1);
    const auto texts = errors_of_ranks(Mesh::parse("dp=2"), options, {}, [&](Communicator& communicator) {
      auto tensor = at::ones({4});
      communicator.enter(JobPhase::save);
      if (communicator.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(250));
      communicator.world().all_reduce(tensor).wait();  // though it is longer than in a step
      communicator.enter(JobPhase::step);
      if (communicator.rank() == 1) return gave_up.wait();  // it does not come while rank 0 waits
      const std::shared_ptr<void> at_end(nullptr, [&](void*) { gave_up.count_down(); });
      communicator.world().all_reduce(tensor).wait();
    });
    EXPECT_NE(texts[0].find("all_reduce #1"), std::string::npos) << texts[0];
    EXPECT_NE(texts[0].find(check ? "within 0.15 s" : "timeout 0.15 s"), std::string::npos) << texts[0];
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, CommunicatorOn, testing::ValuesIn(test::backends()), test::backend_test_name);

}  // namespace communicator_test
}  // namespace orthant::comm
