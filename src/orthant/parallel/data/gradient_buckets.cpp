#include "orthant/parallel/data/gradient_buckets.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <map>

#include "orthant/base/error.h"

namespace orthant {
namespace {

bool can_travel(at::ScalarType dtype) {
  return dtype == at::kFloat || dtype == at::kDouble || dtype == at::kBFloat16 || dtype == at::kHalf;
}

}  // namespace

class GradientBuckets::Hook : public torch::autograd::PostAccumulateGradHook {
 public:
  Hook(GradientBuckets& buckets, std::size_t slot) : buckets_(buckets), slot_(slot) {}
  void operator()(const torch::autograd::Variable& /*parameter*/) override { buckets_.accumulated(slot_); }

 private:
  GradientBuckets& buckets_;
  std::size_t slot_;
};

GradientBuckets::GradientBuckets(const comm::Communicator& communicator, comm::Group group,
                                 std::vector<NamedParameter> parameters, const DataParallelOptions& options)
    : group_(std::move(group)), rank_(communicator.rank()), options_(options) {
  for (auto& [name, value] : parameters) slots_.push_back({.name = std::move(name), .parameter = std::move(value)});
  check_parameters(communicator);
  fill(communicator);
  if (options_.allow_unused) {
    has_gradient_ = communicator.allocate(static_cast<std::int64_t>(slots_.size()), at::kByte);
  }
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    torch::autograd::impl::set_post_acc_grad_hooks(slots_[i].parameter, std::make_unique<Hook>(*this, i));
  }
}

GradientBuckets::~GradientBuckets() {
  for (const auto& slot : slots_) torch::autograd::impl::set_post_acc_grad_hooks(slot.parameter, nullptr);
}

void GradientBuckets::check_parameters(const comm::Communicator& communicator) const {
  const auto device = communicator.allocate(1, at::kFloat).device();
  for (const auto& slot : slots_) {
    if (slot.parameter.device() != device) {
      throw ConfigError(fmt::format("DataParallel: parameter {} is on {}, the communicator's buffers are on {}",
                                    slot.name, slot.parameter.device().str(), device.str()),
                        {.remedy = "move the whole module to the communicator's device first", .rank = rank_});
    }
    if (!can_travel(slot.parameter.scalar_type())) {
      throw ConfigError(
          fmt::format("DataParallel: parameter {} is {}", slot.name, comm::dtype_name(slot.parameter.scalar_type())),
          {.remedy = "use float32, float64, bfloat16 or float16", .rank = rank_});
    }
    if (torch::autograd::impl::post_acc_grad_hooks(slot.parameter)) {
      throw ConfigError(fmt::format("DataParallel: parameter {} already has a post-accumulate hook", slot.name),
                        {.remedy = "give a module to one DataParallel only", .rank = rank_});
    }
  }
}

void GradientBuckets::fill(const comm::Communicator& communicator) {
  std::map<at::ScalarType, std::size_t> open;
  for (std::size_t i = slots_.size(); i-- > 0;) {
    auto& slot = slots_[i];
    const auto dtype = slot.parameter.scalar_type();
    const auto limit = options_.bucket_bytes / static_cast<std::int64_t>(c10::elementSize(dtype));
    const auto found = open.find(dtype);
    if (found == open.end() || buckets_[found->second].num_elements + slot.parameter.numel() > limit) {
      open[dtype] = buckets_.size();
      buckets_.push_back({.dtype = dtype});
    }
    slot.bucket = open[dtype];
    buckets_[slot.bucket].slots.push_back(i);
    buckets_[slot.bucket].num_elements += slot.parameter.numel();
  }
  for (auto& bucket : buckets_) {
    bucket.flat = communicator.allocate(bucket.num_elements, bucket.dtype);
    std::int64_t offset = 0;
    for (const auto i : bucket.slots) {
      const auto& parameter = slots_[i].parameter;
      // Not a view in autograd's books: optimizers detach gradients in place.
      slots_[i].view = bucket.flat.narrow(0, offset, parameter.numel()).view(parameter.sizes()).variable_data();
      offset += parameter.numel();
    }
  }
}

void GradientBuckets::accumulated(std::size_t index) {
  auto& slot = slots_[index];
  if (paused_ > 0 || !slot.parameter.grad().defined()) return;
  if (slot.ready) {
    throw ConfigError(
        fmt::format("DataParallel: parameter {} got a second gradient before backward() had ended", slot.name),
        {.remedy = "use a parameter in one recomputed part only; after an error in backward() end the program",
         .rank = rank_});
  }
  take_gradient(slot);
  slot.ready = true;
  if (!end_is_queued_) {
    torch::autograd::Engine::get_default_engine().queue_callback([this] { end_of_backward(); });
    end_is_queued_ = true;
  }
  ++buckets_[slot.bucket].num_ready;
  start_complete();
}

// The gradient, wherever autograd has put it, is in the view afterwards, and the view is .grad.
void GradientBuckets::take_gradient(Slot& slot) {
  const at::NoGradGuard no_gradients;
  auto& gradient = slot.parameter.mutable_grad();
  if (gradient.is_same(slot.view)) return;
  if (gradient.requires_grad()) {
    throw ConfigError(fmt::format("DataParallel: the gradient of {} has a graph of its own", slot.name),
                      {.remedy = "call backward() without create_graph", .rank = rank_});
  }
  slot.view.copy_(gradient.layout() == at::kStrided ? gradient : gradient.to_dense());
  gradient = slot.view;
}

// Collective over the group, in bucket order.
void GradientBuckets::start_complete() {
  const at::NoGradGuard no_gradients;
  for (; next_ < buckets_.size() && buckets_[next_].complete(); ++next_) {
    auto& bucket = buckets_[next_];
    bucket.travelling = options_.hook ? encoded(options_.hook, bucket.flat) : bucket.flat;
    bucket.work = group_.all_reduce(bucket.travelling);
  }
}

void GradientBuckets::end_of_backward() {
  end_is_queued_ = false;
  const bool inside_another = static_cast<bool>(torch::autograd::get_current_node());
  if (inside_another && options_.allow_unused) {
    throw ConfigError("DataParallel: with allow_unused nothing tells when a backward inside a backward is the last",
                      {.remedy = "unset allow_unused, or do without recomputation", .rank = rank_});
  }
  if (next_ < buckets_.size() && !options_.allow_unused) {
    if (inside_another) return;
    throw ConfigError(
        fmt::format("DataParallel: parameter {} got no gradient in this backward() ({} of {} did not)",
                    std::ranges::find(slots_, false, &Slot::ready)->name,
                    std::ranges::count(slots_, false, &Slot::ready), slots_.size()),
        {.remedy = "use it in the loss, freeze it with requires_grad_(false), or set allow_unused", .rank = rank_});
  }
  if (options_.allow_unused) take_unused();
  finish();
}

// Completes the buckets: what has no gradient counts as zero. Collective over the group.
void GradientBuckets::take_unused() {
  const at::NoGradGuard no_gradients;
  std::vector<std::uint8_t> defined;
  for (auto& slot : slots_) {
    defined.push_back(slot.parameter.grad().defined() ? 1 : 0);
    if (slot.ready) continue;
    if (defined.back() != 0) {
      take_gradient(slot);
    } else {
      slot.view.zero_();
    }
    ++buckets_[slot.bucket].num_ready;
  }
  start_complete();
  has_gradient_.copy_(at::tensor(defined, at::kByte));
  has_gradient_work_ = group_.all_reduce(has_gradient_, comm::Reduction::max);
}

void GradientBuckets::define_used() {
  has_gradient_work_.wait();
  const auto used = has_gradient_.cpu();
  const auto* flags = used.const_data_ptr<std::uint8_t>();
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    if (flags[i] != 0) slots_[i].parameter.mutable_grad() = slots_[i].view;
  }
}

void GradientBuckets::finish() {
  const at::NoGradGuard no_gradients;
  for (auto& bucket : buckets_) {
    bucket.work.wait();
    if (options_.hook) options_.hook.decode(bucket.travelling, bucket.flat);
    bucket.travelling.reset();
    bucket.flat.div_(group_.size());
    bucket.num_ready = 0;
  }
  if (options_.allow_unused) define_used();
  for (auto& slot : slots_) slot.ready = false;
  next_ = 0;
}

}  // namespace orthant
