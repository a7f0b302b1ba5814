// A user's module and loop on several ranks: gradients are those of one process on the whole batch, replicas stay equal
// bit for bit, every gradient byte travels once and early, and what cannot work is refused with a reason.
#include "orthant/parallel/data/data_parallel.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/module.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <cmath>
#include <functional>
#include <mutex>

#include "base/error_text.h"
#include "comm/ranks.h"

namespace orthant {
namespace data_parallel_test {

using comm::BackendKind;
using comm::Communicator;
using comm::Op;

constexpr std::int64_t kRows = 12;   // a multiple of 1, 2, 3 and 4
constexpr std::int64_t kTiny = 300;  // bucket_bytes that make several buckets

at::Tensor numbers(at::IntArrayRef shape, double phase, at::ScalarType dtype = at::kDouble) {
  const auto count = c10::multiply_integers(shape);
  return (at::arange(count, at::kDouble) * 1.37 + phase).sin().reshape(shape).to(dtype);
}

// Three layers; `tied` uses one table twice, under two names. `skip` leaves the middle layer out.
struct Net : torch::nn::Module {
  explicit Net(double phase, bool tied = false, std::int64_t width = 6, at::ScalarType dtype = at::kDouble) {
    const auto add = [&](const char* name, at::IntArrayRef shape, double shift) {
      return register_parameter(name, numbers(shape, phase + shift, dtype) * 0.4);
    };
    first = add("first", {5, width}, 1);
    bias = add("bias", {width}, 2);
    middle = add("middle", {width, width}, 3);
    last = tied ? register_parameter("last", first) : add("last", {5, width}, 4);
    seen = register_buffer("seen", at::full({}, static_cast<std::int64_t>(phase), at::kLong));
    mean = register_buffer("mean", numbers({3}, phase));
  }

  at::Tensor loss(const at::Tensor& x, bool skip = false) {
    auto h = (x.matmul(first) + bias).tanh();
    if (on_first_gradient) h.register_hook([this](at::Tensor) { on_first_gradient(); });
    if (!skip) h = h.matmul(middle).tanh();
    return (h.matmul(last.t()) - x.cos()).square().mean();
  }

  at::Tensor first, bias, middle, last, seen, mean;
  std::function<void()> on_first_gradient;
};

at::Tensor batch(int step = 0, at::ScalarType dtype = at::kDouble) {
  return numbers({kRows, 5}, 10.0 + step, dtype);
}

std::vector<at::Tensor> gradients_of(const Net& net) {
  std::vector<at::Tensor> gradients;
  for (const auto& parameter : net.parameters()) gradients.push_back(parameter.grad());
  return gradients;
}

// Gradients of one process on the whole batches, added up.
std::vector<at::Tensor> reference(bool tied = false, int num_batches = 1, at::ScalarType dtype = at::kDouble) {
  Net net(0, tied, 6, dtype);
  for (int step = 0; step < num_batches; ++step) net.loss(batch(step, dtype)).backward();
  return gradients_of(net);
}

void expect_near(const std::vector<at::Tensor>& found, const std::vector<at::Tensor>& expected, double bound) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    ASSERT_TRUE(found[i].defined()) << "parameter " << i;
    const double error = (found[i] - expected[i]).abs().max().item<double>();
    EXPECT_LE(error, bound * expected[i].abs().max().item<double>()) << "parameter " << i;
  }
}

void on_ranks(int size, BackendKind backend, const comm::test::Body& body) {
  comm::test::on_ranks(Mesh(Degrees{{Axis::dp, size}}), comm::test::quick(false, backend), DataParallel::groups(),
                       body);
}

std::vector<std::string> errors_on_ranks(int size, const comm::test::Body& body,
                                         BackendKind backend = BackendKind::shm) {
  return comm::test::errors_of_ranks(Mesh(Degrees{{Axis::dp, size}}), comm::test::quick(false, backend),
                                     DataParallel::groups(), body);
}

void expect_parts(const std::string& text, const std::vector<std::string>& parts) {
  for (const auto& part : parts) EXPECT_NE(text.find(part), std::string::npos) << part << " not in: " << text;
}

class DataParallelOn : public testing::TestWithParam<BackendKind> {};

TEST_P(DataParallelOn, GradientsAreThoseOfOneProcessOnTheWholeBatch) {
  for (const bool tied : {false, true}) {
    const auto expected = reference(tied);
    for (const int size : {1, 2, 3, 4}) {
      for (const std::int64_t bucket_bytes : {kTiny, std::int64_t{1} << 20}) {
        on_ranks(size, GetParam(), [&](Communicator& communicator) {
          Net net(communicator.rank(), tied);
          DataParallel parallel(net, communicator, {.bucket_bytes = bucket_bytes});
          EXPECT_EQ(parallel.num_buckets(), size == 1 ? 0 : (bucket_bytes == kTiny ? (tied ? 2 : 3) : 1));
          net.loss(parallel.rows(batch())).backward();
          expect_near(gradients_of(net), expected, 1e-14);
        });
      }
    }
  }
}

TEST_P(DataParallelOn, OneCallPerBucketCarriesEveryGradientOnce) {
  on_ranks(2, GetParam(), [](Communicator& communicator) {
    Net net(0);
    DataParallel parallel(net, communicator, {.bucket_bytes = kTiny});
    std::int64_t bytes = 0;
    for (const auto& parameter : net.parameters()) bytes += static_cast<std::int64_t>(parameter.nbytes());
    for (int step = 1; step <= 3; ++step) {
      net.zero_grad();
      net.loss(parallel.rows(batch(step))).backward();
      const auto counted = communicator.counters(Axis::dp).of(Op::all_reduce);
      EXPECT_EQ(counted.calls, step * parallel.num_buckets());
      EXPECT_EQ(counted.bytes, step * bytes);
    }
  });
}

TEST_P(DataParallelOn, BucketsTravelWhileBackwardRuns) {
  on_ranks(2, GetParam(), [](Communicator& communicator) {
    Net net(0);
    DataParallel parallel(net, communicator, {.bucket_bytes = kTiny});
    const auto calls = [&] { return communicator.counters(Axis::dp).of(Op::all_reduce).calls; };
    std::int64_t calls_before_first = 0;
    net.on_first_gradient = [&] { calls_before_first = calls(); };
    net.loss(parallel.rows(batch())).backward();
    EXPECT_EQ(calls_before_first, 2);  // of `last` and `middle`
    EXPECT_EQ(calls(), 3);
  });
}

TEST_P(DataParallelOn, TwentyStepsLeaveEqualBits) {
  for (const bool adam : {false, true}) {
    std::mutex mutex;
    std::vector<std::vector<at::Tensor>> weights;
    on_ranks(3, GetParam(), [&](Communicator& communicator) {
      Net net(communicator.rank(), false, 6, at::kFloat);
      DataParallel parallel(net, communicator, {.bucket_bytes = kTiny});
      std::unique_ptr<torch::optim::Optimizer> optimizer;
      if (adam) optimizer = std::make_unique<torch::optim::AdamW>(net.parameters(), 1e-2);
      if (!adam) optimizer = std::make_unique<torch::optim::SGD>(net.parameters(), 1e-1);
      for (int step = 0; step < 20; ++step) {
        optimizer->zero_grad(/*set_to_none=*/step % 3 != 0);
        net.loss(parallel.rows(batch(step, at::kFloat))).backward();
        optimizer->step();
      }
      const std::lock_guard lock(mutex);
      weights.push_back(net.parameters());
    });
    const Net start(0, false, 6, at::kFloat);
    for (std::size_t i = 0; i < weights[0].size(); ++i) {
      EXPECT_TRUE(at::equal(weights[0][i], weights[1][i]) && at::equal(weights[0][i], weights[2][i])) << i;
      EXPECT_FALSE(at::equal(weights[0][i], start.parameters()[i])) << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, DataParallelOn, testing::ValuesIn(comm::test::backends()),
                         comm::test::backend_test_name);

TEST(DataParallel, GradientsThatStayOrAreDroppedGiveTheSame) {
  const auto expected = reference();
  const auto two_batches = reference(false, 2);
  on_ranks(3, BackendKind::shm, [&](Communicator& communicator) {
    Net net(0);
    DataParallel parallel(net, communicator, {.bucket_bytes = kTiny});
    torch::optim::SGD optimizer(net.parameters(), 0.0);
    for (const bool set_to_none : {true, false, false, true, true}) {
      optimizer.zero_grad(set_to_none);
      net.loss(parallel.rows(batch())).backward();
      expect_near(gradients_of(net), expected, 1e-14);
    }
    net.loss(parallel.rows(batch(1))).backward();  // adds to averages
    expect_near(gradients_of(net), two_batches, 1e-14);
  });
}

TEST(DataParallel, PausedBackwardsAddUpAndTravelOnce) {
  const auto expected = reference(false, 3);
  on_ranks(2, BackendKind::shm, [&](Communicator& communicator) {
    Net net(0);
    DataParallel parallel(net, communicator, {.bucket_bytes = kTiny});
    const auto calls = [&] { return communicator.counters(Axis::dp).of(Op::all_reduce).calls; };
    for (int round = 1; round <= 2; ++round) {
      net.zero_grad();
      {
        const auto pause = parallel.no_sync();
        for (const int step : {0, 1}) net.loss(parallel.rows(batch(step))).backward();
        EXPECT_EQ(calls(), (round - 1) * parallel.num_buckets());
      }
      net.loss(parallel.rows(batch(2))).backward();
      EXPECT_EQ(calls(), round * parallel.num_buckets());
      expect_near(gradients_of(net), expected, 1e-14);
    }
  });
}

TEST(DataParallel, MixedDtypesHaveBucketsOfTheirOwn) {
  on_ranks(2, BackendKind::shm, [](Communicator& communicator) {
    Net net(0);
    net.middle.set_data(net.middle.to(at::kFloat));
    DataParallel parallel(net, communicator);
    EXPECT_EQ(parallel.num_buckets(), 2);
    (net.first.sum() + net.bias.sum() + net.last.sum() + (net.middle * (parallel.rank() + 1)).sum()).backward();
    EXPECT_TRUE(net.middle.grad().eq(1.5).all().item<bool>());
    EXPECT_TRUE(net.first.grad().eq(1).all().item<bool>());
  });
}

TEST(DataParallel, HooksDecideWhatTravels) {
  const auto expected = reference(false, 1, at::kFloat);
  on_ranks(2, BackendKind::shm, [&](Communicator& communicator) {
    Net net(0, false, 6, at::kFloat);
    DataParallel parallel(net, communicator, {.bucket_bytes = kTiny, .hook = bf16_hook()});
    net.loss(parallel.rows(batch(0, at::kFloat))).backward();
    std::int64_t bytes = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const auto& found = net.parameters()[i].grad();
      bytes += 2 * found.numel();
      // Each rank's part is rounded to 8 bits, and their sum again; parts are at most a few times the average.
      const double error = (found - expected[i]).abs().max().item<double>();
      EXPECT_LE(error, 0.02 * expected[i].abs().max().item<double>()) << i;
      EXPECT_GT(error, 0.0) << i;
    }
    EXPECT_EQ(communicator.counters(Axis::dp).of(Op::all_reduce).bytes, bytes);
  });
}

TEST(DataParallel, UnusedParametersAreNamedOnEveryRank) {
  const auto errors = errors_on_ranks(2, [](Communicator& communicator) {
    Net net(0);
    DataParallel parallel(net, communicator, {.bucket_bytes = kTiny});
    net.loss(parallel.rows(batch()), /*skip=*/true).backward();
  });
  for (const auto& error : errors) {
    expect_parts(error, {"parameter middle got no gradient in this backward() (1 of 4 did not)", "set allow_unused"});
  }
  const auto one = errors_on_ranks(2, [](Communicator& communicator) {
    Net net(0);
    DataParallel parallel(net, communicator, {.bucket_bytes = kTiny});
    net.loss(parallel.rows(batch()), /*skip=*/communicator.rank() == 1).backward();
  });
  expect_parts(one[1], {"rank 1: DataParallel: parameter middle got no gradient"});
  expect_parts(one[0], {"all_reduce", "peer: rank 1"});
}

TEST(DataParallel, AllowedUnusedParametersCountAsZeroWhereUnused) {
  on_ranks(3, BackendKind::shm, [](Communicator& communicator) {
    Net net(0);
    DataParallel parallel(net, communicator, {.bucket_bytes = kTiny, .allow_unused = true});
    const auto step = [&](bool skip) {
      net.zero_grad();
      net.loss(batch(), skip).backward();
    };
    step(true);
    EXPECT_FALSE(net.middle.grad().defined());  // on no rank
    step(false);
    const auto full = net.middle.grad().clone();
    step(communicator.rank() != 1);
    expect_near({net.middle.grad()}, {full / 3}, 1e-14);
    step(true);
    EXPECT_FALSE(net.middle.grad().defined());  // again, after it was used
  });
}

TEST(DataParallel, ParametersAndBuffersBecomeRankZeros) {
  on_ranks(3, BackendKind::gloo, [](Communicator& communicator) {
    Net net(communicator.rank());
    net.first.set_data(net.first.t().contiguous().t());  // other strides
    net.bias.requires_grad_(false);
    const Net zero(0);
    {
      DataParallel parallel(net, communicator, {.bucket_bytes = kTiny});
      for (std::size_t i = 0; i < 4; ++i) EXPECT_TRUE(at::equal(net.parameters()[i], zero.parameters()[i])) << i;
      EXPECT_TRUE(at::equal(net.seen, zero.seen) && at::equal(net.mean, zero.mean));
      net.seen.fill_(7 + communicator.rank());
      parallel.broadcast_buffers();
      EXPECT_EQ(net.seen.item<std::int64_t>(), 7);
    }
    net.mean.fill_(communicator.rank());
    const DataParallel again(net, communicator, {.broadcast_buffers = false});  // the hooks are free again
    EXPECT_EQ(net.mean[0].item<double>(), communicator.rank());
  });
}

TEST(DataParallel, RanksWithDifferentModulesOrOptionsAreTold) {
  for (const auto backend : comm::test::backends()) {
    const auto shapes = errors_on_ranks(
        3,
        [](Communicator& communicator) {
          Net net(0, false, communicator.rank() == 0 ? 6 : 8);
          DataParallel(net, communicator);
        },
        backend);
    for (const auto& error : shapes) {
      expect_parts(error, {"ranks differ: rank 0 has \"parameter first: float64 [5, 6]\", rank 1, rank 2 has "
                           "\"parameter first: float64 [5, 8]\"",
                           "make the same module and options on every rank"});
    }
    const auto missing = errors_on_ranks(
        2,
        [](Communicator& communicator) {
          Net net(0);
          if (communicator.rank() == 1) net.register_buffer("more", at::zeros({2, 3}, at::kBool));
          DataParallel(net, communicator);
        },
        backend);
    for (const auto& error : missing) {
      expect_parts(error, {"rank 0 has nothing, rank 1 has \"buffer more: bool [2, 3]\""});
    }
  }
  const auto tied = errors_on_ranks(2, [](Communicator& communicator) {
    Net net(0, communicator.rank() == 1);
    DataParallel(net, communicator);
  });
  expect_parts(tied[0], {"rank 1 has \"parameter last: float64 [5, 6], shared with first\""});
  const auto options = errors_on_ranks(2, [](Communicator& communicator) {
    Net net(0);
    DataParallel(net, communicator, {.bucket_bytes = 100 + communicator.rank()});
  });
  expect_parts(options[1], {"rank 0 has \"bucket_bytes: 100\", rank 1 has \"bucket_bytes: 101\""});
}

}  // namespace data_parallel_test
}  // namespace orthant
