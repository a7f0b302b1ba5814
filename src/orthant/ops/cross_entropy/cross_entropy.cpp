#include "orthant/ops/cross_entropy/cross_entropy.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "orthant/base/error.h"
#include "orthant/nn/kernels/tensors.h"
#include "orthant/ops/cross_entropy/cpu_kernels.h"

namespace orthant::nn {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Which of all classes the logits' columns are.
struct Classes {
  Range held;
  std::int64_t all;

  Classes(const at::Tensor& logits, const CrossEntropyOptions& options, const TensorAxis* axis)
      : held{0, logits.size(1)}, all(logits.size(1)) {
    if (options.classes == 0) return;
    all = options.classes;
    held = axis == nullptr ? Range{0, all} : axis->part(all);
    if (held.size() == logits.size(1)) return;
    throw InternalError(fmt::format("cross_entropy: logits of {} classes where this rank has {} of {}", logits.size(1),
                                    held.size(), all));
  }
};

// From the numbers of each rank's classes, [tokens], to those of all: lse, and the targets' logits, which are 0 where
// another rank holds them. Collective over the axis.
void join_classes(at::Tensor& lse, const at::Tensor& chosen, const CrossEntropyOptions& options, TensorAxis* axis,
                  Subject subject) {
  if (axis == nullptr || options.classes == 0) return;
  const at::Tensor high = lse.clone();
  const auto highest = axis->maximum(high);
  const auto sum_of_chosen = axis->sum(chosen, subject);
  highest->wait();
  high.masked_fill_(high.eq(-kInfinity), 0);  // of ranks without a class, or with hidden ones alone
  const at::Tensor total = lse.sub_(high).exp_();
  axis->sum(total, subject)->wait();
  sum_of_chosen->wait();
  lse = total.log_().add_(high);
}

// Targets with their weights as plain memory. A target outside of the classes counts as ignored: nothing is read or
// written out of bounds.
struct Targets {
  const std::int64_t* targets;
  const double* class_weights = nullptr;
  at::Tensor holder;
  Classes classes;
  std::int64_t ignore_index;

  Targets(const at::Tensor& values, const Classes& parts, const CrossEntropyOptions& options)
      : targets(values.const_data_ptr<std::int64_t>()), classes(parts), ignore_index(options.ignore_index) {
    if (!options.class_weights.defined()) return;
    holder = options.class_weights.to(at::kCPU, at::kDouble).contiguous();
    class_weights = holder.const_data_ptr<double>();
  }

  bool counts(std::int64_t token) const {
    const std::int64_t target = targets[token];
    return target != ignore_index && target >= 0 && target < classes.all;
  }
  // Of one that counts: its column on this rank, or -1.
  std::int64_t column(std::int64_t token) const {
    const std::int64_t target = targets[token];
    return target >= classes.held.begin && target < classes.held.end ? target - classes.held.begin : -1;
  }
  double weight(std::int64_t token) const { return class_weights == nullptr ? 1 : class_weights[targets[token]]; }
};

// Of this rank's classes: lse, and the targets' logits.
template <class T>
void fused_numbers(const at::Tensor& logits, const Targets& targets, double* lse, double* chosen) {
  const auto& table = kernels::kernels<kernels::SoftmaxKernels<T>>();
  const std::int64_t tokens = logits.size(0), classes = logits.size(1);
  const T* const x = logits.const_data_ptr<T>();
  kernels::for_rows(tokens, classes, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t token = begin; token < end; ++token) {
      lse[token] = chosen[token] = 0;
      if (!targets.counts(token)) continue;
      const T* const row = x + token * classes;
      lse[token] = classes > 0 ? table.log_sum_exp(row, classes) : -kInfinity;
      const std::int64_t column = targets.column(token);
      if (column >= 0) chosen[token] = static_cast<double>(row[column]);
    }
  });
}

// One order whatever the threads.
double weighted_sum(const Targets& targets, std::int64_t tokens, const double* lse, const double* chosen) {
  double loss = 0;
  for (std::int64_t token = 0; token < tokens; ++token) {
    if (targets.counts(token)) loss += targets.weight(token) * (lse[token] - chosen[token]);
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
      const std::int64_t column = targets.column(token);
      if (column >= 0) row[column] -= static_cast<T>(scale);
    }
  });
}

// Which targets count, and their weights (others 0); which of them this rank holds, and their columns (others 0).
struct PlainTargets {
  at::Tensor counts, weights, held, columns;
  std::int64_t first_class = 0;

  PlainTargets(const at::Tensor& logits, const at::Tensor& targets, const CrossEntropyOptions& options,
               const TensorAxis* axis) {
    const Classes classes(logits, options, axis);
    first_class = classes.held.begin;
    counts = targets.ne(options.ignore_index).logical_and_(targets.ge(0)).logical_and_(targets.lt(classes.all));
    const at::ScalarType dtype = kernels::compute_dtype(logits);
    weights = counts.to(dtype);
    if (options.class_weights.defined()) {
      weights.mul_(options.class_weights.to(logits.device(), dtype).index_select(0, targets.where(counts, 0)));
    }
    held = counts;
    if (classes.held.size() < classes.all) {
      held = targets.ge(classes.held.begin).logical_and_(targets.lt(classes.held.end)).logical_and_(counts);
    }
    columns = targets.sub(classes.held.begin).where(held, 0).unsqueeze(1);
  }
};

CrossEntropyForward weighted_loss(at::Tensor lse, const at::Tensor& chosen, const PlainTargets& values,
                                  const CrossEntropyOptions& options, TensorAxis* axis, Subject subject) {
  join_classes(lse, chosen, options, axis, subject);
  const at::Tensor losses = lse.sub(chosen).mul_(values.weights);
  return {losses.where(values.counts, 0).sum(at::kDouble).to(lse.scalar_type()), lse};
}

CrossEntropyForward device_forward(const at::Tensor& logits, const at::Tensor& targets,
                                   const CrossEntropyOptions& options, TensorAxis* axis, Subject subject) {
  const PlainTargets values(logits, targets, options, axis);
  const auto numbers = device::class_numbers(logits, targets, values.first_class);
  return weighted_loss(numbers.lse, numbers.chosen, values, options, axis, subject);
}

at::Tensor device_backward(const at::Tensor& logits, const at::Tensor& targets, const at::Tensor& lse,
                           const at::Tensor& d_loss, const CrossEntropyOptions& options, TensorAxis* axis) {
  const PlainTargets values(logits, targets, options, axis);
  at::Tensor out = options.consume_logits ? logits : at::empty(logits.sizes(), logits.options());
  device::class_gradients(out, logits, targets, values.first_class, lse, values.weights, d_loss.to(at::kFloat));
  return out;
}

}  // namespace

CrossEntropyForward cross_entropy_forward(const at::Tensor& logits, const at::Tensor& targets,
                                          const CrossEntropyOptions& options, TensorAxis* axis, Subject subject) {
  if (device::serves_logits(logits)) return device_forward(logits, targets, options, axis, subject);
  if (!logits.is_cpu()) return plain_cross_entropy_forward(logits, targets, options, axis, subject);
  const at::Tensor wide = logits.to(kernels::compute_dtype(logits));
  at::Tensor lse = at::empty({wide.size(0)}, at::dtype(at::kDouble));
  const at::Tensor chosen = at::empty_like(lse);
  const Targets values(targets, Classes(wide, options, axis), options);
  kernels::with_element(wide, [&](auto element) {
    fused_numbers<decltype(element)>(wide, values, lse.mutable_data_ptr<double>(), chosen.mutable_data_ptr<double>());
  });
  join_classes(lse, chosen, options, axis, subject);
  const double loss = weighted_sum(values, wide.size(0), lse.const_data_ptr<double>(), chosen.const_data_ptr<double>());
  return {at::scalar_tensor(loss, wide.options()), lse};
}

at::Tensor cross_entropy_backward(const at::Tensor& logits, const at::Tensor& targets, const at::Tensor& lse,
                                  const at::Tensor& d_loss, const CrossEntropyOptions& options, TensorAxis* axis) {
  if (device::serves_logits(logits)) return device_backward(logits, targets, lse, d_loss, options, axis);
  if (!logits.is_cpu()) return plain_cross_entropy_backward(logits, targets, lse, d_loss, options, axis);
  const at::Tensor wide = logits.to(kernels::compute_dtype(logits));
  const bool over = options.consume_logits || !wide.is_same(logits);
  const at::Tensor out = over ? wide : at::empty(wide.sizes(), wide.options());
  const Targets values(targets, Classes(wide, options, axis), options);
  kernels::with_element(wide, [&](auto element) {
    fused_gradient<decltype(element)>(out, wide, values, lse.const_data_ptr<double>(), d_loss.item<double>());
  });
  return out.to(logits.scalar_type());
}

CrossEntropyForward plain_cross_entropy_forward(const at::Tensor& logits, const at::Tensor& targets,
                                                const CrossEntropyOptions& options, TensorAxis* axis, Subject subject) {
  const PlainTargets values(logits, targets, options, axis);
  const at::Tensor wide = logits.to(kernels::compute_dtype(logits));
  const at::Tensor lse = at::logsumexp(wide, {1});
  const at::Tensor chosen =
      wide.size(1) > 0 ? wide.gather(1, values.columns).squeeze(1).where(values.held, 0) : at::zeros_like(lse);
  return weighted_loss(lse, chosen, values, options, axis, subject);
}

at::Tensor plain_cross_entropy_backward(const at::Tensor& logits, const at::Tensor& targets, const at::Tensor& lse,
                                        const at::Tensor& d_loss, const CrossEntropyOptions& options,
                                        TensorAxis* axis) {
  const PlainTargets values(logits, targets, options, axis);
  at::Tensor wide = logits.to(kernels::compute_dtype(logits));
  const bool over = options.consume_logits || !wide.is_same(logits);
  wide = over ? wide.sub_(lse.unsqueeze(1)) : wide.sub(lse.unsqueeze(1));
  wide.exp_();
  if (wide.size(1) > 0) wide.scatter_add_(1, values.columns, values.held.to(wide.scalar_type()).neg_().unsqueeze(1));
  wide.mul_(values.weights.mul(d_loss).unsqueeze(1));
  wide.masked_fill_(values.counts.logical_not().unsqueeze(1), 0);
  return wide.to(logits.scalar_type());
}

}  // namespace orthant::nn
