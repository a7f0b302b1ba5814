// What DataParallel refuses, with the reason and what to do instead; recomputation, which it takes; and the two-line
// form that joins a job by itself.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/module.h>

#include "base/error_text.h"
#include "comm/ranks.h"
#include "orthant/parallel/data/data_parallel.h"

namespace orthant {
namespace data_parallel_refuses_test {

using comm::Communicator;
using torch::autograd::variable_list;

struct Two : torch::nn::Module {
  explicit Two(at::ScalarType dtype = at::kDouble) {
    a = register_parameter("a", at::full({3}, 2, dtype));
    b = register_parameter("b", at::full({3}, 5, dtype));
  }
  at::Tensor a, b;
};

struct Factor {
  at::Tensor parameter;
};

// x times a parameter, by a backward of its own inside the backward, as recomputation does. The graph sees no
// parameter.
struct Recomputed : torch::autograd::Function<Recomputed> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x, const Factor& factor) {
    context->saved_data["factor"] = factor.parameter;
    context->save_for_backward({x});
    return x * factor.parameter;
  }
  static variable_list backward(torch::autograd::AutogradContext* context, variable_list gradients) {
    const auto x = context->get_saved_variables()[0].detach().requires_grad_();
    at::Tensor y;
    {
      const at::AutoGradMode on(true);
      y = x * context->saved_data["factor"].toTensor();
    }
    torch::autograd::backward({y}, {gradients[0]});
    return {x.grad(), at::Tensor()};
  }
};

std::vector<std::string> errors(const comm::test::Body& body, const std::string& mesh = "dp=2") {
  return comm::test::errors_of_ranks(Mesh::parse(mesh), comm::test::quick(false, comm::BackendKind::shm),
                                     DataParallel::groups(), body);
}

void expect_everywhere(const std::vector<std::string>& texts, const std::vector<std::string>& parts) {
  for (const auto& text : texts) {
    for (const auto& part : parts) EXPECT_NE(text.find(part), std::string::npos) << part << " not in: " << text;
  }
}

TEST(DataParallelRefuses, ModulesItCannotTrain) {
  expect_everywhere(errors([](Communicator& communicator) {
                      torch::nn::Module empty;
                      DataParallel(empty, communicator);
                    }),
                    {"no trainable parameter", "fix: register parameters with requires_grad"});
  expect_everywhere(errors([](Communicator& communicator) {
                      Two two;
                      two.register_parameter("c", at::empty({3}, at::kMeta));
                      DataParallel(two, communicator);
                    }),
                    {"parameter c is on meta, the communicator's buffers are on cpu", "move the whole module"});
  expect_everywhere(errors([](Communicator& communicator) {
                      Two two(at::kComplexDouble);
                      DataParallel(two, communicator);
                    }),
                    {"parameter a is ComplexDouble", "use float32, float64, bfloat16 or float16"});
  expect_everywhere(errors([](Communicator& communicator) {
                      Two two;
                      const DataParallel once(two, communicator);
                      DataParallel(two, communicator);
                    }),
                    {"parameter a already has a post-accumulate hook", "give a module to one DataParallel only"});
}

TEST(DataParallelRefuses, MeshesAndOptionsItCannotServe) {
  expect_everywhere(errors(
                        [](Communicator& communicator) {
                          Two two;
                          DataParallel(two, communicator);
                        },
                        "dp=2,fsdp=2"),
                    {"keeps whole replicas, but mesh dp=2,fsdp=2 shards over fsdp", "give these ranks to dp"});
  expect_everywhere(errors([](Communicator& communicator) {
                      Two two;
                      DataParallel(two, communicator, {.bucket_bytes = 0});
                    }),
                    {"bucket_bytes is 0", "set it to 1 or more"});
  expect_everywhere(errors([](Communicator& communicator) {
                      Two two;
                      const DataParallel parallel(two, communicator);
                      parallel.rows(at::zeros({1, 4}));
                    }),
                    {"1 rows for 2 ranks, so that one has none", "at least 2 rows"});
}

TEST(DataParallelRefuses, HooksThatChangeTheNumberOfElements) {
  expect_everywhere(errors([](Communicator& communicator) {
                      Two two;
                      GradientHook hook = bf16_hook();
                      hook.encode = [](const at::Tensor& gradients) { return gradients.narrow(0, 0, 2); };
                      const DataParallel parallel(two, communicator, {.hook = hook});
                      (two.a * two.b).sum().backward();
                    }),
                    {"a gradient hook made 2 elements in 1 dims of 6 gradients", "as many elements"});
}

TEST(DataParallelRefuses, GradientsWithAGraph) {
  expect_everywhere(errors([](Communicator& communicator) {
                      Two two;
                      const DataParallel parallel(two, communicator);
                      (two.a * two.b).sum().backward({}, /*retain_graph=*/true, /*create_graph=*/true);
                    }),
                    {"the gradient of ", " has a graph of its own", "without create_graph"});
}

TEST(DataParallelRefuses, AParameterInTwoRecomputedParts) {
  expect_everywhere(errors([](Communicator& communicator) {
                      Two two;
                      const DataParallel parallel(two, communicator);
                      Recomputed::apply(Recomputed::apply(two.b * 1, Factor{two.a}), Factor{two.a}).sum().backward();
                    }),
                    {"parameter a got a second gradient before backward() had ended", "in one recomputed part only"});
}

TEST(DataParallelRefuses, RecomputationWithAllowUnused) {
  expect_everywhere(errors([](Communicator& communicator) {
                      Two two;
                      const DataParallel parallel(two, communicator, {.allow_unused = true});
                      Recomputed::apply(two.b * 1, Factor{two.a}).sum().backward();
                    }),
                    {"a backward inside a backward", "unset allow_unused"});
}

TEST(DataParallel, TakesRecomputedPartsFirstOrLast) {
  for (const bool last : {false, true}) {
    comm::test::on_ranks(Mesh::parse("dp=2"), comm::test::quick(), DataParallel::groups(), [&](Communicator& comm) {
      Two two;
      const DataParallel parallel(two, comm, {.bucket_bytes = 1});
      const auto x = at::full({3}, comm.rank() + 1.0, at::kDouble).requires_grad_();
      for (int step = 0; step < 2; ++step) {
        two.zero_grad();
        const auto y = last ? Recomputed::apply(x, Factor{two.a}) * two.b : Recomputed::apply(x * two.b, Factor{two.a});
        y.sum().backward();
        EXPECT_TRUE(two.a.grad().eq(1.5 * 5).all().item<bool>()) << two.a.grad();
        EXPECT_TRUE(two.b.grad().eq(1.5 * 2).all().item<bool>()) << two.b.grad();
      }
    });
  }
}

TEST(DataParallel, ReplicasAreThoseOfTheDpAxis) {
  comm::test::on_ranks(Mesh::parse("dp=2,tp=2"), comm::test::quick(), DataParallel::groups(), [](Communicator& comm) {
    Two two;
    const DataParallel parallel(two, comm);
    EXPECT_EQ(parallel.size(), 2);
    EXPECT_EQ(parallel.rank(), comm.rank() / 2);
    EXPECT_EQ(parallel.rows(5), (comm.rank() / 2 == 0 ? Range{0, 3} : Range{3, 5}));
    (two.a * comm.rank() + two.b).sum().backward();
    EXPECT_EQ(two.a.grad()[0].item<double>(), comm.rank() % 2 == 0 ? 1.0 : 2.0);
  });
}

TEST(DataParallel, AJobOfOneRankNeedsNothingElse) {
  Two two;
  DataParallel parallel(two, launch::Job{});
  EXPECT_EQ(parallel.size(), 1);
  EXPECT_EQ(parallel.rows(at::zeros({7, 2})).size(0), 7);
  const auto pause = parallel.no_sync();
  parallel.broadcast_buffers();
  (two.a * 3).sum().backward();
  EXPECT_TRUE(two.a.grad().eq(3).all().item<bool>());
  EXPECT_FALSE(two.b.grad().defined());
}

}  // namespace data_parallel_refuses_test
}  // namespace orthant
