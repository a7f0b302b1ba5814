#include "orthant/ops/exchange/token_values.h"

#include "ops/oracle.h"
#include "ops/thread_axis.h"
#include "orthant/base/error.h"

namespace orthant::nn {
namespace token_values_test {

Pass make_pass(TensorAxis* axis, std::int64_t rows, std::int64_t sequence) {
  Pass pass;
  pass.unit = "pooler";
  pass.tensor = axis;
  pass.rows = rows;
  pass.sequence = sequence;
  return pass;
}

at::Tensor own_part(const at::Tensor& whole, const Pass& pass) {
  if (!pass.cuts_tokens()) return whole;
  const Range own = pass.own_tokens();
  return whole.reshape({pass.num_tokens(), whole.size(-1)}).narrow(0, own.begin, own.size());
}

TEST(WholeChannels, EqualsOneRank) {
  for (const std::int64_t channels : {7, 12, 2, 1}) {
    for (const std::int64_t rows : {2, 0}) {
      const at::Tensor x = random_tensor({rows, 5, channels}, 1);
      for (const int degree : {1, 2, 3, 4}) {
        run_axis(degree, {}, [&](ThreadAxis& axis) {
          SCOPED_TRACE(testing::Message() << "rank " << axis.coordinate() << " of " << degree << ", " << channels);
          const Range own = axis.part(channels);
          Pass pass = make_pass(&axis, rows, 5);
          const at::Tensor part = x.narrow(2, own.begin, own.size()).contiguous();
          const at::Tensor y = whole_channels(part, channels, pass);
          ASSERT_EQ(y.sizes(), x.sizes());
          EXPECT_TRUE(y.is_contiguous());
          expect_same_bits(y, x, "y");
          ASSERT_EQ(axis.calls().size(), 1);
          EXPECT_EQ(axis.calls()[0].kind, "gather");
          EXPECT_EQ(axis.calls()[0].elements, x.numel());
        });
      }
    }
  }
}

TEST(WholeChannels, WithoutAnAxisIsItsInput) {
  Pass pass = make_pass(nullptr, 2, 5);
  const at::Tensor x = random_tensor({2, 5, 3}, 1);
  EXPECT_TRUE(whole_channels(x, 3, pass).is_same(x));
}

TEST(WholeChannels, AnotherNumberOfChannelsIsRefused) {
  run_axis(2, {}, [](ThreadAxis& axis) {
    Pass pass = make_pass(&axis, 2, 5);
    try {
      whole_channels(random_tensor({2, 5, 7}, 1), 7, pass);
      ADD_FAILURE() << "not refused";
    } catch (const InternalError& error) {
      const std::string expected = fmt::format("7 channels where tp rank {} of 2 has {} of 7", axis.coordinate(),
                                               axis.coordinate() == 0 ? 3 : 4);
      EXPECT_NE(std::string(error.what()).find(expected), std::string::npos) << error.what();
    }
  });
}

TEST(WholeTokens, GathersOwnTokensWithoutAutograd) {
  const at::Tensor x = random_tensor({3, 5, 2}, 1);
  for (const int degree : {1, 2, 4}) {
    for (const bool cut_tokens : {false, true}) {
      run_axis(degree, {.sequence_parallel = cut_tokens}, [&](ThreadAxis& axis) {
        const Pass pass = make_pass(&axis, 3, 5);
        const at::Tensor own = make_input(own_part(x, pass));
        const at::Tensor y = whole_tokens(own, pass);
        ASSERT_EQ(y.sizes(), x.sizes());
        expect_same_bits(y, x, "y");
        EXPECT_EQ(y.is_same(own), !cut_tokens);
        EXPECT_EQ(y.requires_grad(), !cut_tokens);
      });
    }
  }
}

// What the tests of this folder rely on.
std::string failure_of(const std::function<void(ThreadAxis&)>& body) {
  try {
    run_axis(2, {}, body);
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

TEST(ThreadAxis, ShowsResultsInWaitAlone) {
  run_axis(3, {}, [](ThreadAxis& axis) {
    const at::Tensor x = at::full({2}, axis.coordinate() + 1.0);
    const auto exchange = axis.sum(x, {});
    EXPECT_EQ(x[0].item<double>(), axis.coordinate() + 1);
    exchange->wait();
    EXPECT_EQ(x[0].item<double>(), 6);
    axis.maximum(x.fill_(axis.coordinate()))->wait();
    EXPECT_EQ(x[1].item<double>(), 2);
  });
}

TEST(ThreadAxis, MistakesEndAllRanks) {
  const at::Tensor x = at::zeros({2});
  EXPECT_EQ(failure_of([&](ThreadAxis& axis) {
              if (axis.coordinate() == 0) throw std::runtime_error("rank 0 fails");
              axis.sum(x, {})->wait();
            }),
            "rank 0 fails");
  EXPECT_EQ(failure_of([&](ThreadAxis& axis) {
              if (axis.coordinate() == 1) axis.sum(x, {})->wait();
            }),
            "another rank left while this one waits in sum");
  EXPECT_NE(
      failure_of([&](ThreadAxis& axis) { axis.coordinate() == 0 ? axis.sum(x, {}) : axis.maximum(x); }).find("calls"),
      std::string::npos);
  EXPECT_NE(failure_of([&](ThreadAxis& axis) { axis.gather(x, x); }).find("gather of shapes [2] and [2]"),
            std::string::npos);
}

}  // namespace token_values_test
}  // namespace orthant::nn
