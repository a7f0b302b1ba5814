#include "orthant/nn/cross_entropy.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "orthant/nn/kernels/softmax.h"
#include "orthant/nn/kernels/tensors.h"

namespace orthant::nn {
namespace {

// Targets with their weights as plain memory. A target outside of the classes counts as ignored: nothing is read or
// written out of bounds.
struct Targets {
  const std::int64_t* targets;
  const double* class_weights = nullptr;
  at::Tensor holder;
  std::int64_t classes;
  std::int64_t ignore_index;

  Targets(const at::Tensor& values, std::int64_t num_classes, const CrossEntropyOptions& options)
      : targets(values.const_data_ptr<std::int64_t>()), classes(num_classes), ignore_index(options.ignore_index) {
    if (!options.class_weights.defined()) return;
    holder = options.class_weights.to(at::kCPU, at::kDouble).contiguous();
    class_weights = holder.const_data_ptr<double>();
  }

  bool counts(std::int64_t token) const {
    const std::int64_t target = targets[token];
    return target != ignore_index && target >= 0 && target < classes;
  }
  double weight(std::int64_t token) const { return class_weights == nullptr ? 1 : class_weights[targets[token]]; }
};

template <class T>
double fused_loss(const at::Tensor& logits, const Targets& targets, double* lse) {
  const auto& table = kernels::kernels<kernels::SoftmaxKernels<T>>();
  const std::int64_t tokens = logits.size(0), classes = logits.size(1);
  const T* const x = logits.const_data_ptr<T>();
  kernels::for_rows(tokens, classes, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t token = begin; token < end; ++token) {
      lse[token] = targets.counts(token) ? table.log_sum_exp(x + token * classes, classes) : 0;
    }
  });
  // One order whatever the threads.
  double loss = 0;
  for (std::int64_t token = 0; token < tokens; ++token) {
    if (!targets.counts(token)) continue;
    const auto logit = static_cast<double>(x[token * classes + targets.targets[token]]);
    loss += targets.weight(token) * (lse[token] - logit);
  }
  return loss;
}

// softmax = exp(x - rounded lse) * exp(rounded lse - lse): the second factor makes up for lse's rounding to the logits'
// dtype.
template <class T>
void fused_gradient(const at::Tensor& out, const at::Tensor& logits, const Targets& targets, const double* lse,
                    double d_loss) {
  const auto& table = kernels::kernels<kernels::SoftmaxKernels<T>>();
  const std::int64_t classes = logits.size(1);
  const T* const x = logits.const_data_ptr<T>();
  T* const d_x = out.mutable_data_ptr<T>();
  kernels::for_rows(logits.size(0), classes, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t token = begin; token < end; ++token) {
      T* const row = d_x + token * classes;
      if (!targets.counts(token)) {
        std::fill_n(row, classes, T(0));
        continue;
      }
      const double scale = d_loss * targets.weight(token);
      const T base = static_cast<T>(lse[token]);
      const double correction = std::exp(static_cast<double>(base) - lse[token]);
      table.probabilities(row, x + token * classes, classes, base, static_cast<T>(scale * correction));
      row[targets.targets[token]] -= static_cast<T>(scale);
    }
  });
}

// Which targets count, those that do as indices (others 0), and their weights (others 0).
struct PlainTargets {
  at::Tensor counts, indices, weights;

  PlainTargets(const at::Tensor& logits, const at::Tensor& targets, const CrossEntropyOptions& options) {
    counts = targets.ne(options.ignore_index).logical_and_(targets.ge(0)).logical_and_(targets.lt(logits.size(1)));
    indices = targets.where(counts, 0).unsqueeze(1);
    const at::ScalarType dtype = kernels::compute_dtype(logits);
    weights = counts.to(dtype);
    if (options.class_weights.defined()) {
      weights.mul_(options.class_weights.to(logits.device(), dtype).index_select(0, indices.squeeze(1)));
    }
  }
};

}  // namespace

CrossEntropyForward cross_entropy_forward(const at::Tensor& logits, const at::Tensor& targets,
                                          const CrossEntropyOptions& options) {
  if (!logits.is_cpu()) return plain_cross_entropy_forward(logits, targets, options);
  const at::Tensor wide = logits.to(kernels::compute_dtype(logits));
  const at::Tensor lse = at::empty({wide.size(0)}, at::dtype(at::kDouble));
  double loss = 0;
  kernels::with_element(wide, [&](auto element) {
    loss = fused_loss<decltype(element)>(wide, Targets(targets, wide.size(1), options), lse.mutable_data_ptr<double>());
  });
  return {at::scalar_tensor(loss, wide.options()), lse};
}

at::Tensor cross_entropy_backward(const at::Tensor& logits, const at::Tensor& targets, const at::Tensor& lse,
                                  const at::Tensor& d_loss, const CrossEntropyOptions& options) {
  if (!logits.is_cpu()) return plain_cross_entropy_backward(logits, targets, lse, d_loss, options);
  const at::Tensor wide = logits.to(kernels::compute_dtype(logits));
  const bool over = options.consume_logits || !wide.is_same(logits);
  const at::Tensor out = over ? wide : at::empty(wide.sizes(), wide.options());
  kernels::with_element(wide, [&](auto element) {
    fused_gradient<decltype(element)>(out, wide, Targets(targets, wide.size(1), options), lse.const_data_ptr<double>(),
                                      d_loss.item<double>());
  });
  return out.to(logits.scalar_type());
}

CrossEntropyForward plain_cross_entropy_forward(const at::Tensor& logits, const at::Tensor& targets,
                                                const CrossEntropyOptions& options) {
  const PlainTargets chosen(logits, targets, options);
  const at::Tensor wide = logits.to(kernels::compute_dtype(logits));
  const at::Tensor lse = at::logsumexp(wide, {1});
  const at::Tensor losses = lse.sub(wide.gather(1, chosen.indices).squeeze(1)).mul_(chosen.weights);
  return {losses.where(chosen.counts, 0).sum(at::kDouble).to(wide.scalar_type()), lse};
}

at::Tensor plain_cross_entropy_backward(const at::Tensor& logits, const at::Tensor& targets, const at::Tensor& lse,
                                        const at::Tensor& d_loss, const CrossEntropyOptions& options) {
  const PlainTargets chosen(logits, targets, options);
  at::Tensor wide = logits.to(kernels::compute_dtype(logits));
  const bool over = options.consume_logits || !wide.is_same(logits);
  wide = over ? wide.sub_(lse.unsqueeze(1)) : wide.sub(lse.unsqueeze(1));
  wide.exp_();
  wide.scatter_add_(1, chosen.indices, at::full({1, 1}, -1, wide.options()).expand_as(chosen.indices));
  wide.mul_(chosen.weights.mul(d_loss).unsqueeze(1));
  wide.masked_fill_(chosen.counts.logical_not().unsqueeze(1), 0);
  return wide.to(logits.scalar_type());
}

}  // namespace orthant::nn
