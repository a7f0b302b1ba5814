// What groups promise besides the operations themselves: order, independence, counting, bits.
#include "orthant/comm/group.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "comm/ranks.h"

namespace orthant::comm {
namespace group_test {

using test::like;
using test::on_ranks;
using test::quick;

class GroupOn : public testing::TestWithParam<BackendKind> {};

TEST_P(GroupOn, ReduceScatterAddsHalfTypesInFloat32) {
  on_ranks(4, quick(false, GetParam()), [](Communicator& communicator) {
    auto group = communicator.world();
    // 256 + 1 + 1 + 1 is 256 when each sum is rounded to bfloat16, and 259 rounds to 260.
    const auto input = at::full({group.size()}, group.index() == 0 ? 256.0 : 1.0, like(at::kBFloat16));
    auto output = at::empty({1}, like(at::kBFloat16));
    group.reduce_scatter(output, input).wait();
    EXPECT_EQ(output.item<float>(), 260.0F);
  });
}

TEST_P(GroupOn, ResultsHaveTheSameBitsOnEveryRankAndInEveryRun) {
  std::vector<at::Tensor> results(3);
  for (auto& result : results) {
    on_ranks(4, quick(false, GetParam()), [&](Communicator& communicator) {
      auto group = communicator.world();
      auto tensor = at::sin(at::arange(10007, like(at::kFloat)) + group.index() * 0.37F);
      const auto scattered = at::empty({2501}, like(at::kFloat));
      group.reduce_scatter(scattered, tensor.narrow(0, 0, 10004)).wait();
      group.all_reduce(tensor).wait();
      const auto all = at::empty({4 * 10007}, like(at::kFloat));
      group.all_gather(all, tensor).wait();
      for (int r = 0; r < 4; ++r) EXPECT_TRUE(at::equal(all.narrow(0, r * 10007, 10007), tensor));
      if (group.index() == 0) result = at::cat({tensor, scattered});
    });
  }
  EXPECT_TRUE(at::equal(results[0], results[1]));
  EXPECT_TRUE(at::equal(results[0], results[2]));
}

TEST_P(GroupOn, ViewsAtAnOffsetTravel) {
  on_ranks(2, quick(false, GetParam()), [](Communicator& communicator) {
    auto group = communicator.world();
    auto buffer = at::zeros({101}, like(at::kFloat));
    auto view = buffer.narrow(0, 3, 7);
    view.fill_(group.index() + 1);
    group.all_reduce(view).wait();
    EXPECT_EQ(buffer.sum().item<float>(), 21.0F);
  });
}

TEST_P(GroupOn, AMessagePassesACollectiveThatWaits) {
  // Rank 1 joins the all-reduce only after the message that rank 0 sends behind it has arrived.
  for (const bool check : {false, true}) {
    on_ranks(2, quick(check, GetParam()), [](Communicator& communicator) {
      auto group = communicator.world();
      auto large = at::ones({1 << 20}, like(at::kFloat));
      auto small = at::full({4}, 7.0, like(at::kFloat));
      if (group.index() == 0) {
        auto reduction = group.all_reduce(large);
        group.send(small, 1).wait();
        reduction.wait();
      } else {
        auto received = at::empty({4}, like(at::kFloat));
        group.receive(received, 0).wait();
        EXPECT_TRUE(at::equal(received, small));
        group.all_reduce(large).wait();
      }
    });
  }
}

TEST_P(GroupOn, AChannelNeverHoldsUpAnother) {
  // The gradients channel waits for rank 1, which first wants an all-reduce on the activations channel of the same
  // ranks.
  const Mesh mesh = Mesh::parse("tp=2");
  on_ranks(mesh, quick(false, GetParam()), {{Axis::tp, Purpose::gradients}, {Axis::tp, Purpose::activations}},
           [](Communicator& communicator) {
             auto gradients = communicator.group(Axis::tp, Purpose::gradients);
             auto activations = communicator.group(Axis::tp, Purpose::activations);
             auto first = at::ones({1000}, like(at::kFloat));
             auto second = at::ones({1000}, like(at::kFloat));
             if (communicator.rank() == 0) {
               auto waiting = gradients.all_reduce(first);
               activations.all_reduce(second).wait();
               waiting.wait();
             } else {
               activations.all_reduce(second).wait();
               gradients.all_reduce(first).wait();
             }
             EXPECT_EQ(first[0].item<float>() + second[0].item<float>(), 4.0F);
           });
}

TEST_P(GroupOn, CountsCallsAndPayloadBytesPerOperation) {
  on_ranks(2, quick(false, GetParam()), [](Communicator& communicator) {
    auto group = communicator.world();
    const auto part = at::ones({8}, like(at::kFloat));
    const auto whole = at::ones({16}, like(at::kFloat));
    group.all_reduce(whole).wait();
    group.all_gather(whole, part).wait();
    group.reduce_scatter(part, whole).wait();
    group.all_to_all(at::empty({16}, like(at::kFloat)), whole).wait();
    group.broadcast(part, 0).wait();
    if (group.index() == 0) group.send(part, 1).wait();
    if (group.index() == 1) group.receive(part, 0).wait();
    group.barrier().wait();
    const auto& counters = group.counters();
    EXPECT_EQ(counters.of(Op::all_reduce).bytes, 64);
    EXPECT_EQ(counters.of(Op::all_gather).bytes, 64);
    EXPECT_EQ(counters.of(Op::reduce_scatter).bytes, 64);
    EXPECT_EQ(counters.of(Op::all_to_all).bytes, 64);
    EXPECT_EQ(counters.of(Op::broadcast).bytes, 32);
    EXPECT_EQ(counters.of(group.index() == 0 ? Op::send : Op::receive).bytes, 32);
    EXPECT_EQ(counters.of(Op::barrier).calls, 1);
    EXPECT_EQ(counters.total().calls, 7);
  });
}

TEST_P(GroupOn, OfOneReturnsItsInput) {
  on_ranks(1, quick(false, GetParam()), [](Communicator& communicator) {
    auto group = communicator.world();
    auto tensor = at::arange(6, like(at::kFloat));
    const auto copy = tensor.clone();
    group.all_reduce(tensor).wait();
    auto output = at::empty({6}, like(at::kFloat));
    group.all_gather(output, tensor).wait();
    EXPECT_TRUE(at::equal(output, copy));
    output.zero_();
    group.reduce_scatter(output, tensor).wait();
    EXPECT_TRUE(at::equal(output, copy));
    group.all_gather(tensor, tensor).wait();
    group.barrier().wait();
    EXPECT_TRUE(at::equal(tensor, copy));
  });
}

INSTANTIATE_TEST_SUITE_P(Backends, GroupOn, testing::ValuesIn(test::backends()), test::backend_test_name);

}  // namespace group_test
}  // namespace orthant::comm
