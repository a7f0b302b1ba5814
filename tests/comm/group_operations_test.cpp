// Every operation of a group, on every backend of one host, against an oracle computed on each rank from all ranks'
// inputs.
#include "orthant/comm/group.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <numeric>

#include "comm/ranks.h"
#include "orthant/base/error.h"

namespace orthant::comm {
namespace group_operations_test {

using test::like;
using test::on_ranks;
using test::quick;

const std::vector<at::ScalarType> kDtypes = {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf,
                                             at::kLong,  at::kInt,    at::kByte};

// What a test does with the numbers.
enum class Use { adds, moves };

// Ranks that share a card take up to 50 ms for a call over NCCL: there a dtype of each size is moved, every dtype is
// added, and checks, which know nothing of numbers, are made in one dtype.
const std::vector<at::ScalarType>& dtypes(bool checked, Use use) {
#ifdef ORTHANT_TEST_NCCL
  static const std::vector<at::ScalarType> moved = {at::kByte, at::kBFloat16, at::kInt, at::kDouble};
  static const std::vector<at::ScalarType> one = {at::kBFloat16};
  if (checked) return one;
  if (use == Use::moves) return moved;
#endif
  return kDtypes;
}

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
  BackendKind backend = BackendKind::gloo;

  friend std::ostream& operator<<(std::ostream& out, const Case& c) {
    return out << c.size << " ranks" << (c.check ? ", checked" : "");
  }
};

class GroupOps : public testing::TestWithParam<Case> {
 protected:
  // The body on every rank, for every dtype of that use.
  void each(Use use, const std::function<void(Group, at::ScalarType)>& body) {
    on_ranks(GetParam().size, quick(GetParam().check, GetParam().backend), [&](Communicator& communicator) {
      for (const auto dtype : dtypes(GetParam().check, use)) body(communicator.world(), dtype);
    });
  }
};

TEST_P(GroupOps, AllReduceSumsAndTakesTheLargest) {
  each(Use::adds, [](Group group, at::ScalarType dtype) {
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
  on_ranks(GetParam().size, quick(GetParam().check, GetParam().backend), [](Communicator& communicator) {
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
  each(Use::moves, [](Group group, at::ScalarType dtype) {
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
  each(Use::moves, [](Group group, at::ScalarType dtype) {
    auto output = at::zeros({group.size() * 4}, like(dtype));
    auto own = output.narrow(0, group.index() * 4, 4);
    own.fill_(group.index());
    group.all_gather(output, own).wait();
    EXPECT_TRUE(at::equal(output, at::arange(group.size(), like(at::kLong)).repeat_interleave(4).to(dtype)));
  });
}

TEST_P(GroupOps, ReduceScatterSumsEvenUnevenAndEmptyParts) {
  each(Use::adds, [](Group group, at::ScalarType dtype) {
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
  each(Use::moves, [](Group group, at::ScalarType dtype) {
    auto input = input_of(group.index(), group.size() * 6, dtype);
    auto expected = input_of(0, group.size() * 6, dtype);
    for (int r = 1; r < group.size(); ++r) expected = expected + input_of(r, group.size() * 6, dtype);
    auto own = input.narrow(0, group.index() * 6, 6);
    group.reduce_scatter(own, input).wait();
    EXPECT_TRUE(at::equal(own, expected.narrow(0, group.index() * 6, 6))) << dtype;
  });
}

TEST_P(GroupOps, ReduceScatterTakesTheLargest) {
  each(Use::moves, [](Group group, at::ScalarType dtype) {
    auto output = at::empty({2}, like(dtype));
    group.reduce_scatter(output, at::full({2 * group.size()}, group.index(), like(dtype)), {}, Reduction::max).wait();
    EXPECT_TRUE(output.eq(group.size() - 1).all().item<bool>());
  });
}

TEST_P(GroupOps, ListsOfBuffersGatherAndScatterAsOneCall) {
  on_ranks(GetParam().size, quick(GetParam().check, GetParam().backend), [](Communicator& communicator) {
    auto group = communicator.world();
    const int n = group.size();
    std::vector<at::Tensor> wholes{at::zeros({n * 2}, like(at::kFloat)), at::zeros({n * 3}, like(at::kDouble))};
    std::vector<at::Tensor> parts{at::full({2}, group.index(), like(at::kFloat)),
                                  at::full({3}, group.index(), like(at::kDouble))};
    const auto gathered = group.counters().of(Op::all_gather), scattered = group.counters().of(Op::reduce_scatter);
    group.all_gather(wholes, parts).wait();
    EXPECT_TRUE(at::equal(wholes[0], at::arange(n, like(at::kLong)).repeat_interleave(2).to(at::kFloat)));
    EXPECT_TRUE(at::equal(wholes[1], at::arange(n, like(at::kLong)).repeat_interleave(3).to(at::kDouble)));
    group.reduce_scatter(parts, wholes).wait();
    EXPECT_TRUE(parts[0].eq(group.index() * n).all().item<bool>());
    EXPECT_TRUE(parts[1].eq(group.index() * n).all().item<bool>());
    EXPECT_EQ(group.counters().of(Op::all_gather).calls, gathered.calls + 1);
    EXPECT_EQ(group.counters().of(Op::reduce_scatter).calls, scattered.calls + 1);
    EXPECT_EQ(group.counters().of(Op::all_gather).bytes, gathered.bytes + n * 2 * 4 + n * 3 * 8);
  });
}

TEST_P(GroupOps, AllToAllExchangesEvenUnevenAndEmptyParts) {
  each(Use::moves, [](Group group, at::ScalarType dtype) {
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
  each(Use::moves, [](Group group, at::ScalarType dtype) {
    for (int root = 0; root < group.size(); ++root) {
      auto tensor = at::full({5}, group.index(), like(dtype));
      group.broadcast(tensor, root).wait();
      EXPECT_TRUE(tensor.eq(root).all().item<bool>());
    }
  });
}

// Messages from every rank to the next one.
void connect_ring(Group group) {
  std::vector<MessagePair> pairs;
  for (int i = 0; i < group.size(); ++i) pairs.push_back({i, (i + 1) % group.size()});
  group.connect(pairs);
}

TEST_P(GroupOps, MessagesArriveInTheirOrderHoweverEarlyTheyAreReceived) {
  each(Use::moves, [](Group group, at::ScalarType dtype) {
    connect_ring(group);
    const int next = (group.index() + 1) % group.size();
    const int previous = (group.index() + group.size() - 1) % group.size();
    std::vector<Work> works;
    std::vector<at::Tensor> received, sent;
    for (int i = 0; i < 4; ++i) sent.push_back(at::full({3}, i + 10 * group.index(), like(dtype)));
    for (int i = 0; i < 4; ++i) {  // all ranks receive first
      received.push_back(at::empty({3}, like(dtype)));
      works.push_back(group.receive(received.back(), previous));
    }
    for (const auto& tensor : sent) works.push_back(group.send(tensor, next));
    for (auto& work : works) work.wait();
    for (int i = 0; i < 4; ++i) {
      EXPECT_TRUE(received[static_cast<size_t>(i)].eq(i + 10 * previous).all().item<bool>());
    }
  });
}

#ifndef ORTHANT_TEST_NCCL  // which knows no tags
TEST_P(GroupOps, MessagesMatchByTagInAnyOrderAndByOrderWithinATag) {
  each(Use::moves, [](Group group, at::ScalarType dtype) {
    const int next = (group.index() + 1) % group.size();
    const int previous = (group.index() + group.size() - 1) % group.size();
    constexpr int kMessages = 8;
    connect_ring(group);
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

#endif

TEST_P(GroupOps, ManyCallsMayBeUnderWay) {
  on_ranks(GetParam().size, quick(GetParam().check, GetParam().backend), [](Communicator& communicator) {
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

std::string case_name(const testing::TestParamInfo<Case>& info) {
  return std::to_string(info.param.size) + (info.param.check ? "RanksChecked" : "Ranks");
}

#ifdef ORTHANT_TEST_NCCL
// As many ranks as processes were started.
INSTANTIATE_TEST_SUITE_P(Nccl, GroupOps,
                         testing::Values(Case{test::job_of_process().world_size, false, BackendKind::nccl},
                                         Case{test::job_of_process().world_size, true, BackendKind::nccl}),
                         case_name);
#else
INSTANTIATE_TEST_SUITE_P(Gloo, GroupOps,
                         testing::Values(Case{2, false}, Case{3, false}, Case{5, false}, Case{2, true}, Case{3, true}),
                         case_name);

#endif

#ifndef ORTHANT_TEST_CUDA
INSTANTIATE_TEST_SUITE_P(Shm, GroupOps,
                         testing::Values(Case{2, false, BackendKind::shm}, Case{3, false, BackendKind::shm},
                                         Case{5, false, BackendKind::shm}, Case{8, false, BackendKind::shm},
                                         Case{2, true, BackendKind::shm}, Case{3, true, BackendKind::shm}),
                         case_name);
#endif

}  // namespace group_operations_test
}  // namespace orthant::comm
