// Every operation of a group against an oracle computed on each rank from all ranks' inputs.
#include "orthant/comm/group.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <numeric>

#include "comm/ranks.h"
#include "orthant/base/error.h"

namespace orthant::comm {
namespace {

using test::like;
using test::on_ranks;
using test::quick;

const std::vector<at::ScalarType> kDtypes = {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf,
                                             at::kLong,  at::kInt,    at::kByte};

// Small whole numbers, exact in every dtype and in every order of adding.
at::Tensor input_of(int rank, int64_t count, at::ScalarType dtype) {
  return ((at::arange(count, like(at::kLong)) * 7 + rank * 3) % 5).to(dtype);
}

std::vector<int64_t> uneven_counts(int size) {
  std::vector<int64_t> counts;
  for (int i = 0; i < size; ++i) counts.push_back(i == 1 ? 0 : 3 + 2 * i);
  return counts;
}

int64_t total(const std::vector<int64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}
int64_t before(const std::vector<int64_t>& counts, int index) {
  return std::accumulate(counts.begin(), counts.begin() + index, int64_t{0});
}

struct Case {
  int size;
  bool check;

  friend std::ostream& operator<<(std::ostream& out, const Case& c) {
    return out << c.size << " ranks" << (c.check ? ", checked" : "");
  }
};

class GroupOps : public testing::TestWithParam<Case> {
 protected:
  // The body on every rank, for every dtype.
  void each(const std::function<void(Group, at::ScalarType)>& body) {
    on_ranks(GetParam().size, quick(GetParam().check), [&](Communicator& communicator) {
      for (const auto dtype : kDtypes) body(communicator.world(), dtype);
    });
  }
};

TEST_P(GroupOps, AllReduceSumsAndTakesTheLargest) {
  each([](Group group, at::ScalarType dtype) {
    for (const auto reduction : {Reduction::sum, Reduction::max}) {
      auto tensor = input_of(group.index(), 1001, dtype);
      auto expected = input_of(0, 1001, dtype);
      for (int r = 1; r < group.size(); ++r) {
        const auto other = input_of(r, 1001, dtype);
        expected = reduction == Reduction::sum ? expected + other : at::maximum(expected, other);
      }
      group.all_reduce(tensor, reduction).wait();
      EXPECT_TRUE(at::equal(tensor, expected)) << dtype;
    }
  });
}

TEST_P(GroupOps, AllReduceTakesAListOfMixedDtypesAndEmptyTensorsAsOneCall) {
  on_ranks(GetParam().size, quick(GetParam().check), [](Communicator& communicator) {
    auto group = communicator.world();
    std::vector<at::Tensor> tensors{at::ones({3}, like(at::kFloat)), at::ones({2, 2}, like(at::kFloat)),
                                    at::empty({0}, like(at::kFloat)), at::ones({5}, like(at::kLong))};
    const auto calls = group.counters().of(Op::all_reduce).calls;
    group.all_reduce(tensors).wait();
    for (const auto& tensor : tensors) EXPECT_TRUE(tensor.eq(group.size()).all().item<bool>());
    EXPECT_EQ(group.counters().of(Op::all_reduce).calls, calls + 1);
  });
}

TEST_P(GroupOps, AllGatherJoinsEvenUnevenAndEmptyParts) {
  each([](Group group, at::ScalarType dtype) {
    const std::vector<int64_t> even(static_cast<size_t>(group.size()), 17);
    for (const auto& counts : {even, uneven_counts(group.size())}) {
      std::vector<at::Tensor> parts;
      for (int r = 0; r < group.size(); ++r) parts.push_back(input_of(r, counts[static_cast<size_t>(r)], dtype));
      auto output = at::empty({total(counts)}, like(dtype));
      group.all_gather(output, parts[static_cast<size_t>(group.index())], counts).wait();
      EXPECT_TRUE(at::equal(output, at::cat(parts))) << dtype;
    }
  });
}

TEST_P(GroupOps, AllGatherWorksInPlace) {
  each([](Group group, at::ScalarType dtype) {
    auto output = at::zeros({group.size() * 4}, like(dtype));
    auto own = output.narrow(0, group.index() * 4, 4);
    own.fill_(group.index());
    group.all_gather(output, own).wait();
    EXPECT_TRUE(at::equal(output, at::arange(group.size(), like(at::kLong)).repeat_interleave(4).to(dtype)));
  });
}

TEST_P(GroupOps, ReduceScatterSumsEvenUnevenAndEmptyParts) {
  each([](Group group, at::ScalarType dtype) {
    const std::vector<int64_t> even(static_cast<size_t>(group.size()), 9);
    for (const auto& counts : {even, uneven_counts(group.size())}) {
      auto expected = input_of(0, total(counts), dtype);
      for (int r = 1; r < group.size(); ++r) expected = expected + input_of(r, total(counts), dtype);
      const int64_t count = counts[static_cast<size_t>(group.index())];
      auto output = at::empty({count}, like(dtype));
      group.reduce_scatter(output, input_of(group.index(), total(counts), dtype), counts).wait();
      EXPECT_TRUE(at::equal(output, expected.narrow(0, before(counts, group.index()), count))) << dtype;
    }
  });
}

TEST_P(GroupOps, ReduceScatterMayWriteIntoItsOwnPartOfTheInput) {
  each([](Group group, at::ScalarType dtype) {
    auto input = input_of(group.index(), group.size() * 6, dtype);
    auto expected = input_of(0, group.size() * 6, dtype);
    for (int r = 1; r < group.size(); ++r) expected = expected + input_of(r, group.size() * 6, dtype);
    auto own = input.narrow(0, group.index() * 6, 6);
    group.reduce_scatter(own, input).wait();
    EXPECT_TRUE(at::equal(own, expected.narrow(0, group.index() * 6, 6))) << dtype;
  });
}

TEST_P(GroupOps, ReduceScatterTakesTheLargest) {
  each([](Group group, at::ScalarType dtype) {
    auto output = at::empty({2}, like(dtype));
    group.reduce_scatter(output, at::full({2 * group.size()}, group.index(), like(dtype)), {}, Reduction::max).wait();
    EXPECT_TRUE(output.eq(group.size() - 1).all().item<bool>());
  });
}

TEST_P(GroupOps, ListsOfBuffersGatherAndScatterAsOneCall) {
  on_ranks(GetParam().size, quick(GetParam().check), [](Communicator& communicator) {
    auto group = communicator.world();
    const int n = group.size();
    std::vector<at::Tensor> wholes{at::zeros({n * 2}, like(at::kFloat)), at::zeros({n * 3}, like(at::kDouble))};
    std::vector<at::Tensor> parts{at::full({2}, group.index(), like(at::kFloat)),
                                  at::full({3}, group.index(), like(at::kDouble))};
    group.all_gather(wholes, parts).wait();
    EXPECT_TRUE(at::equal(wholes[0], at::arange(n, like(at::kLong)).repeat_interleave(2).to(at::kFloat)));
    EXPECT_TRUE(at::equal(wholes[1], at::arange(n, like(at::kLong)).repeat_interleave(3).to(at::kDouble)));
    group.reduce_scatter(parts, wholes).wait();
    EXPECT_TRUE(parts[0].eq(group.index() * n).all().item<bool>());
    EXPECT_TRUE(parts[1].eq(group.index() * n).all().item<bool>());
    EXPECT_EQ(group.counters().of(Op::all_gather).calls, 1);
    EXPECT_EQ(group.counters().of(Op::reduce_scatter).calls, 1);
    EXPECT_EQ(group.counters().of(Op::all_gather).bytes, n * 2 * 4 + n * 3 * 8);
  });
}

TEST_P(GroupOps, AllToAllExchangesEvenUnevenAndEmptyParts) {
  each([](Group group, at::ScalarType dtype) {
    const int n = group.size();
    // Rank a sends (a + 2 b) % 4 elements to rank b, each equal to 10 a + b.
    const auto count = [](int from, int to) { return int64_t{(from + 2 * to) % 4}; };
    std::vector<int64_t> sent, received;
    std::vector<at::Tensor> outgoing, incoming;
    for (int r = 0; r < n; ++r) {
      sent.push_back(count(group.index(), r));
      received.push_back(count(r, group.index()));
      outgoing.push_back(at::full({sent.back()}, 10 * group.index() + r, like(dtype)));
      incoming.push_back(at::full({received.back()}, 10 * r + group.index(), like(dtype)));
    }
    auto output = at::empty({total(received)}, like(dtype));
    group.all_to_all(output, at::cat(outgoing), received, sent).wait();
    EXPECT_TRUE(at::equal(output, at::cat(incoming))) << dtype;

    auto even = at::empty({n * 2}, like(dtype));
    group.all_to_all(even, at::full({n * 2}, group.index(), like(dtype))).wait();
    EXPECT_TRUE(at::equal(even, at::arange(n, like(at::kLong)).repeat_interleave(2).to(dtype)));
  });
}

TEST_P(GroupOps, BroadcastComesFromTheRoot) {
  each([](Group group, at::ScalarType dtype) {
    for (int root = 0; root < group.size(); ++root) {
      auto tensor = at::full({5}, group.index(), like(dtype));
      group.broadcast(tensor, root).wait();
      EXPECT_TRUE(tensor.eq(root).all().item<bool>());
    }
  });
}

TEST_P(GroupOps, MessagesMatchByTagInAnyOrderAndByOrderWithinATag) {
  each([](Group group, at::ScalarType dtype) {
    const int next = (group.index() + 1) % group.size();
    const int previous = (group.index() + group.size() - 1) % group.size();
    constexpr int kMessages = 8;
    std::vector<Work> works;
    std::vector<at::Tensor> received;
    for (int i = kMessages - 1; i >= 0; --i) {  // tags out of order on the receiving side
      received.push_back(at::empty({3}, like(dtype)));
      works.push_back(group.receive(received.back(), previous, /*tag=*/i));
    }
    for (int i = 0; i < kMessages; ++i) works.push_back(group.send(at::full({3}, i, like(dtype)), next, i));
    for (auto& work : works) work.wait();
    for (int i = 0; i < kMessages; ++i)
      EXPECT_TRUE(received[static_cast<size_t>(i)].eq(kMessages - 1 - i).all().item<bool>());

    works.clear();
    received.clear();
    for (int i = 0; i < kMessages; ++i) works.push_back(group.send(at::full({2}, i, like(dtype)), next, 99));
    for (int i = 0; i < kMessages; ++i) {
      received.push_back(at::empty({2}, like(dtype)));
      works.push_back(group.receive(received.back(), previous, 99));
    }
    for (auto& work : works) work.wait();
    for (int i = 0; i < kMessages; ++i) EXPECT_TRUE(received[static_cast<size_t>(i)].eq(i).all().item<bool>());
  });
}

TEST_P(GroupOps, ManyCallsMayBeUnderWay) {
  on_ranks(GetParam().size, quick(GetParam().check), [](Communicator& communicator) {
    auto group = communicator.world();
    std::vector<at::Tensor> tensors;
    std::vector<Work> works;
    for (int i = 0; i < 24; ++i) {
      tensors.push_back(at::full({1000 + i}, i, like(at::kFloat)));
      works.push_back(group.all_reduce(tensors.back()));
    }
    for (auto work = works.rbegin(); work != works.rend(); ++work) work->wait();
    for (int i = 0; i < 24; ++i) EXPECT_TRUE(tensors[static_cast<size_t>(i)].eq(i * group.size()).all().item<bool>());
    group.barrier().wait();
  });
}

INSTANTIATE_TEST_SUITE_P(Gloo, GroupOps,
                         testing::Values(Case{2, false}, Case{3, false}, Case{5, false}, Case{2, true}, Case{3, true}),
                         [](const auto& info) {
                           return std::to_string(info.param.size) + (info.param.check ? "RanksChecked" : "Ranks");
                         });

TEST(Group, ReduceScatterAddsHalfTypesInFloat32) {
  on_ranks(4, quick(), [](Communicator& communicator) {
    auto group = communicator.world();
    // 256 + 1 + 1 + 1 is 256 when each sum is rounded to bfloat16, and 259 rounds to 260.
    const auto input = at::full({group.size()}, group.index() == 0 ? 256.0 : 1.0, like(at::kBFloat16));
    auto output = at::empty({1}, like(at::kBFloat16));
    group.reduce_scatter(output, input).wait();
    EXPECT_EQ(output.item<float>(), 260.0F);
  });
}

TEST(Group, ResultsHaveTheSameBitsOnEveryRankAndInEveryRun) {
  std::vector<at::Tensor> results(3);
  for (auto& result : results) {
    on_ranks(4, quick(), [&](Communicator& communicator) {
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

TEST(Group, ViewsAtAnOffsetTravel) {
  on_ranks(2, quick(), [](Communicator& communicator) {
    auto group = communicator.world();
    auto buffer = at::zeros({101}, like(at::kFloat));
    auto view = buffer.narrow(0, 3, 7);
    view.fill_(group.index() + 1);
    group.all_reduce(view).wait();
    EXPECT_EQ(buffer.sum().item<float>(), 21.0F);
  });
}

TEST(Group, AMessagePassesACollectiveThatWaits) {
  // Rank 1 joins the all-reduce only after the message that rank 0 sends behind it has arrived.
  for (const bool check : {false, true}) {
    on_ranks(2, quick(check), [](Communicator& communicator) {
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

TEST(Group, AChannelNeverHoldsUpAnother) {
  // The gradients channel waits for rank 1, which first wants an all-reduce on the activations channel of the same
  // ranks.
  const Mesh mesh = Mesh::parse("tp=2");
  on_ranks(mesh, quick(), {{Axis::tp, Purpose::gradients}, {Axis::tp, Purpose::activations}},
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

TEST(Group, CountsCallsAndPayloadBytesPerOperation) {
  on_ranks(2, quick(), [](Communicator& communicator) {
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

TEST(Group, OfOneReturnsItsInput) {
  on_ranks(1, quick(), [](Communicator& communicator) {
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

}  // namespace
}  // namespace orthant::comm
