// Steps that are recorded in pieces: calls are made between the pieces by each play, and not while the step is
// recorded.
#include "orthant/comm/cut_calls.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "base/error_text.h"
#include "comm/ranks.h"
#include "orthant/base/error.h"

namespace orthant::comm {
namespace cut_calls_test {

using test::on_ranks;
using test::quick;

// What plays do between pieces; the pieces themselves are the test's.
class Between {
 public:
  explicit Between(const Communicator& communicator) : communicator_(communicator) {
    communicator_.begin_cutting([this](std::function<void()> act) { acts_.push_back(std::move(act)); });
  }

  void end() const { communicator_.end_cutting(); }
  std::size_t size() const { return acts_.size(); }
  void play(std::size_t begin, std::size_t end) const {
    for (std::size_t i = begin; i < end; ++i) acts_[i]();
  }

 private:
  const Communicator& communicator_;
  std::vector<std::function<void()>> acts_;
};

class CutCalls : public testing::TestWithParam<BackendKind> {};

TEST_P(CutCalls, AreMadeByEachPlayAndCountedThen) {
  on_ranks(2, quick(/*check=*/false, GetParam()), [](Communicator& communicator) {
    auto group = communicator.world();
    const int peer = 1 - group.index();
    group.connect({{0, 1}, {1, 0}});
    const auto sum = at::zeros({3}), sent = at::zeros({2}), received = at::full({2}, -1.0);
    Between between(communicator);
    group.all_reduce(sum).wait();
    auto arriving = group.receive(received, peer);  // before it is sent
    auto leaving = group.send(sent, peer);
    EXPECT_FALSE(arriving.done());
    arriving.wait();
    leaving.wait();
    between.end();
    ASSERT_EQ(between.size(), 6U);  // a start and a wait of each
    EXPECT_EQ(group.counters().total().calls, 0);
    EXPECT_TRUE(received.eq(-1).all().item<bool>());
    for (int play = 0; play < 3; ++play) {
      sum.fill_(play + group.index());
      between.play(0, 2);
      EXPECT_TRUE(sum.eq(2 * play + 1).all().item<bool>());
      sent.fill_(10 * play + group.index());
      between.play(2, 6);
      EXPECT_TRUE(received.eq(10 * play + peer).all().item<bool>());
      EXPECT_EQ(group.counters().of(Op::all_reduce).calls, play + 1);
      EXPECT_EQ(group.counters().of(Op::send).calls, play + 1);
      EXPECT_EQ(group.counters().of(Op::send).bytes, 8 * (play + 1));
    }
    group.all_reduce(sum).wait();  // calls travel again
    EXPECT_EQ(group.counters().of(Op::all_reduce).calls, 4);
  });
}

TEST_P(CutCalls, AreComparedWhereCallsAreChecked) {
  const auto errors =
      test::errors_of_ranks(Mesh::parse("dp=2"), quick(/*check=*/true, GetParam()), {}, [](Communicator& communicator) {
        auto group = communicator.world();
        const auto sum = at::ones({3});
        Between between(communicator);
        group.all_reduce(sum).wait();
        group.all_reduce(sum, group.index() == 0 ? Reduction::sum : Reduction::max).wait();
        between.end();
        between.play(0, 2);
        EXPECT_TRUE(sum.eq(2).all().item<bool>());
        between.play(2, 4);
      });
  for (const auto& error : errors) EXPECT_NE(error.find("do not match"), std::string::npos) << error;
}

TEST_P(CutCalls, RefuseTensorsThatAreNotWhereTheStepIs) {
  on_ranks(2, quick(/*check=*/false, GetParam()), [](Communicator& communicator) {
    const Between between(communicator);
    const auto text = error_text<ConfigError>(
        [&] { communicator.world().all_reduce(at::empty({2}, at::TensorOptions().device(at::kMeta))).wait(); });
    EXPECT_NE(text.find("while a step is recorded as CUDA graphs"), std::string::npos) << text;
    between.end();
  });
}

INSTANTIATE_TEST_SUITE_P(Backends, CutCalls, testing::ValuesIn(test::backends()), test::backend_test_name);

}  // namespace cut_calls_test
}  // namespace orthant::comm
