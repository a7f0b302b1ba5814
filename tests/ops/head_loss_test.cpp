// Chunks of a head and its loss, with what no program asks of them: weights of classes, and a gradient that is there.
#include "orthant/ops/cross_entropy/head_loss.h"

#include "ops/oracle.h"
#include "orthant/ops/linear/projection.h"

namespace orthant::nn {
namespace head_loss_test {

struct Result {
  at::Tensor loss, x, weight;
};

// `in_forward`: gradients are made there.
Result run(std::int64_t chunk_rows, bool in_forward, const CrossEntropyOptions& options) {
  const BelowAutograd below;
  const at::Tensor x = random_tensor({18, 12}, 1);
  const at::Tensor targets = at::arange(18, at::kLong).mul_(7).remainder_(20);
  targets.slice(0, 1, std::nullopt, 3).fill_(options.ignore_index);
  Parameter weight = make_parameter(random_tensor({20, 12}, 2));
  weight.gradient.fill_(3);
  weight.fresh = false;
  Pass pass;
  HeadLoss head{&weight, nullptr, &pass, options, chunk_rows, {}};
  head.loss.consume_logits = true;
  HeadGradients made{.of_x = true, .of_weights = true, .d_loss = at::scalar_tensor(0.37, at::kDouble)};
  std::vector<at::Tensor> lse;
  const at::Tensor loss = forward_chunks(head, x, targets, in_forward ? nullptr : &lse, in_forward ? &made : nullptr);
  if (!in_forward) backward_chunks(head, x, targets, at::cat(lse), made);
  return {loss, made.x, weight.gradient};
}

TEST(HeadLoss, WeighsClassesAndAddsToAGradientThatIsThere) {
  CrossEntropyOptions options;
  for (const bool weighted : {false, true}) {
    if (weighted) options.class_weights = random_tensor({20}, 4).abs();
    const at::Tensor x = random_tensor({18, 12}, 1).requires_grad_();
    const at::Tensor weight = random_tensor({20, 12}, 2).requires_grad_();
    const at::Tensor targets = at::arange(18, at::kLong).mul_(7).remainder_(20);
    at::Tensor counts = at::ones({18}, at::kDouble);
    counts.slice(0, 1, std::nullopt, 3).zero_();
    if (weighted) counts = counts * options.class_weights.index({targets});
    const at::Tensor scores = at::log_softmax(at::matmul(x, weight.t()), -1);
    const at::Tensor loss = -(scores.gather(-1, targets.unsqueeze(-1)).squeeze(-1) * counts).sum();
    run_backward(loss, at::scalar_tensor(0.37, at::kDouble));
    for (const std::int64_t chunk_rows : {0, 4, 5, 100}) {
      for (const bool in_forward : {false, true}) {
        const Result found = run(chunk_rows, in_forward, options);
        expect_close(found.loss, loss, 1e-13, 1e-13, "loss");
        expect_close(found.x, x.grad(), 1e-12, 1e-12, "gradient of x");
        expect_close(found.weight, weight.grad() + 3, 1e-12, 1e-12, "gradient of the weight");
      }
    }
  }
}

}  // namespace head_loss_test
}  // namespace orthant::nn
