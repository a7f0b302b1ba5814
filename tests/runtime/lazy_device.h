// A device that computes late, for tests of the order of streams. Work waits in a queue for each stream until run(),
// which takes from the queues in any order that streams and events allow, drawn from a seed. Memory is handed out again
// as a caching allocator does it: to work of its own stream as soon as the host lets it go, unless record_stream() told
// of another one. So what is not ordered by streams and events shows in the numbers of some seed.
//
// Its tensors have the device privateuseone. An operation is carried out by the CPU's own; shapes of its results are
// those for zeros.
#pragma once

#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/InferSize.h>
#include <ATen/TensorUtils.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <functional>
#include <map>
#include <random>
#include <set>
#include <stdexcept>
#include <vector>

namespace orthant::test {

class LazyDevice : public c10::Allocator {
 public:
  static constexpr auto kType = c10::DeviceType::PrivateUse1;
  static inline const c10::Device device{kType, 0};

  static LazyDevice& get() {
    static LazyDevice one;
    return one;
  }

  c10::StreamId stream = 0;  // the current one
  void enqueue(std::function<void()> work) { queue(stream).waiting.push_back({std::move(work)}); }

  struct Point {
    c10::StreamId stream;
    std::size_t count;  // of work in front of it
  };
  Point now(c10::StreamId on) { return {on, queue(on).done + queue(on).waiting.size()}; }
  void wait(c10::StreamId waiting, const Point& point) { queue(waiting).waiting.push_back({{}, point}); }

  // Until nothing waits.
  void run(unsigned seed) {
    std::mt19937 random(seed);
    std::map<c10::StreamId, unsigned> haste;  // the most hasty stream goes as far as it can, most of the time
    for (const auto& [id, one] : queues_) haste[id] = static_cast<unsigned>(random());
    for (;;) {
      std::vector<c10::StreamId> ready;
      bool any = false;
      for (auto& [id, one] : queues_) {
        any = any || !one.waiting.empty();
        if (!one.waiting.empty() && queue(one.waiting.front().after.stream).done >= one.waiting.front().after.count) {
          ready.push_back(id);
        }
      }
      if (!any) break;
      if (ready.empty()) throw std::logic_error("streams wait for each other for ever");
      const auto most = *std::ranges::max_element(ready, {}, [&](c10::StreamId id) { return haste[id]; });
      auto& one = queues_.at(random() % 8 != 0 ? most : ready[random() % ready.size()]);
      const auto work = one.waiting.front();
      one.waiting.pop_front();
      ++one.done;
      if (work.act) work.act();
    }
    for (const auto& [block, size] : held_back_) free_[{owners_.at(block), size}].push_back(block);
    held_back_.clear();
  }

  // As a caching allocator: blocks of a size for work of one stream.
  c10::DataPtr allocate(std::size_t bytes) override {
    const std::size_t size = (bytes + 255) / 256 * 256;
    auto& free = free_[{stream, size}];
    void* block = nullptr;
    if (free.empty()) {
      block = memory_.emplace_back(std::vector<double>(size / sizeof(double) + 8, std::nan(""))).data();
      owners_[block] = stream;
      sizes_[block] = size;
    } else {
      block = free.back();
      free.pop_back();
    }
    return {block, block, &give_back, device};
  }
  void copy_data(void*, const void*, std::size_t) const override { throw std::logic_error("not needed"); }
  c10::DeleterFnPtr raw_deleter() const override { return &give_back; }
  void note_reader(void* block, c10::StreamId reader) {
    if (owners_.at(block) != reader) readers_[block].insert(reader);
  }

 private:
  struct Work {
    std::function<void()> act;
    Point after = {0, 0};
  };
  struct Queue {
    std::deque<Work> waiting;
    std::size_t done = 0;
  };
  Queue& queue(c10::StreamId id) { return queues_[id]; }
  static void give_back(void* block) {
    auto& self = get();
    if (block == nullptr) return;
    const auto size = self.sizes_.at(block);
    if (self.readers_.erase(block) > 0) {
      self.held_back_.emplace_back(block, size);
    } else {
      self.free_[{self.owners_.at(block), size}].push_back(block);
    }
  }

  std::map<c10::StreamId, Queue> queues_;
  std::deque<std::vector<double>> memory_;  // never given back
  std::map<void*, c10::StreamId> owners_;
  std::map<void*, std::size_t> sizes_;
  std::map<void*, std::set<c10::StreamId>> readers_;
  std::map<std::pair<c10::StreamId, std::size_t>, std::vector<void*>> free_;
  std::vector<std::pair<void*, std::size_t>> held_back_;
};

struct LazyGuard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return LazyDevice::kType; }
  c10::Device exchangeDevice(c10::Device) const override { return LazyDevice::device; }
  c10::Device getDevice() const override { return LazyDevice::device; }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
  static c10::Stream of(c10::StreamId id) { return c10::Stream(c10::Stream::UNSAFE, LazyDevice::device, id); }
  c10::Stream getStream(c10::Device) const override { return of(LazyDevice::get().stream); }
  c10::Stream getStreamFromGlobalPool(c10::Device, bool) const override {
    static c10::StreamId last = 0;
    return of(++last);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    return of(std::exchange(LazyDevice::get().stream, stream.id()));
  }
  void record(void** event, const c10::Stream& stream, c10::DeviceIndex, c10::EventFlag) const override {
    if (*event == nullptr) *event = new LazyDevice::Point{};
    *static_cast<LazyDevice::Point*>(*event) = LazyDevice::get().now(stream.id());
  }
  void block(void* event, const c10::Stream& stream) const override {
    LazyDevice::get().wait(stream.id(), *static_cast<const LazyDevice::Point*>(event));
  }
  bool queryEvent(void*) const override { throw std::logic_error("the host asks for an event"); }
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override {
    delete static_cast<LazyDevice::Point*>(event);
  }
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, LazyGuard);

// The memory of a tensor as the CPU sees it; the host may let it go before the work runs.
inline at::Tensor on_cpu_memory(const at::Tensor& x) {
  return at::from_blob(x.mutable_data_ptr(), x.sizes(), x.strides(), x.options().device(at::kCPU));
}
inline bool is_lazy(const at::Tensor& x) {
  return x.defined() && x.device().type() == LazyDevice::kType;
}

inline at::Tensor lazy_empty(c10::IntArrayRef size, std::optional<at::ScalarType> type, std::optional<at::Layout>,
                             std::optional<at::Device>, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  return at::detail::empty_generic(size, &LazyDevice::get(), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                   type.value_or(at::kFloat), format);
}
inline at::Tensor lazy_empty_strided(c10::IntArrayRef size, c10::IntArrayRef strides,
                                     std::optional<at::ScalarType> type, std::optional<at::Layout>,
                                     std::optional<at::Device>, std::optional<bool>) {
  return at::detail::empty_strided_generic(
      size, strides, &LazyDevice::get(), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), type.value_or(at::kFloat));
}
inline at::Tensor lazy_as_strided(const at::Tensor& self, c10::IntArrayRef size, c10::IntArrayRef strides,
                                  std::optional<std::int64_t> offset) {
  auto result = at::detail::make_tensor<c10::TensorImpl>(c10::TensorImpl::VIEW, c10::Storage(self.storage()),
                                                         self.key_set(), self.dtype());
  result.unsafeGetTensorImpl()->set_sizes_and_strides(size, strides, offset.value_or(self.storage_offset()));
  return result;
}
inline at::Tensor lazy_view(const at::Tensor& self, c10::IntArrayRef size) {
  const auto shape = at::infer_size(size, self.numel());
  const auto strides = at::detail::computeStride(self.sizes(), self.strides(), shape);
  if (!strides) throw std::logic_error("no view of that shape");
  return lazy_as_strided(self, shape, *strides, self.storage_offset());
}
inline at::Tensor lazy_copy_from(const at::Tensor& self, const at::Tensor& to, bool /*non_blocking*/) {
  if (!is_lazy(to)) throw std::logic_error("the host waits for the device");
  // What lies on the host stays there until it is read, as pinned memory does.
  const auto from = is_lazy(self) ? on_cpu_memory(self) : self;
  LazyDevice::get().enqueue([from, target = on_cpu_memory(to)]() mutable { target.copy_(from); });
  return to;
}
inline void lazy_record_stream(at::Tensor& self, at::Stream stream) {
  LazyDevice::get().note_reader(self.storage().mutable_data(), stream.id());
}

// With other tensors instead of the device's.
inline torch::jit::Stack turned(torch::jit::Stack stack, const std::function<at::Tensor(const at::Tensor&)>& turn) {
  const auto one = [&](const at::Tensor& x) { return is_lazy(x) ? turn(x) : x; };
  for (auto& value : stack) {
    if (value.isTensor()) {
      value = one(value.toTensor());
    } else if (value.isTensorList()) {
      c10::List<at::Tensor> all;
      for (const at::Tensor& x : value.toTensorList()) all.push_back(one(x));
      value = all;
    } else if (value.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> all;
      for (const std::optional<at::Tensor>& x : value.toOptionalTensorList()) {
        all.push_back(x ? std::optional(one(*x)) : std::nullopt);
      }
      value = all;
    } else if (value.isDevice()) {
      value = c10::Device(at::kCPU);
    }
  }
  return stack;
}

inline std::vector<at::Tensor> tensors_in(const torch::jit::Stack& stack) {
  std::vector<at::Tensor> all;
  for (const auto& value : stack) {
    if (value.isTensor() && value.toTensor().defined()) all.push_back(value.toTensor());
    if (!value.isTensorList()) continue;
    for (const at::Tensor& x : value.toTensorList()) all.push_back(x);
  }
  return all;
}

// Any other operation: the CPU's, when it is its turn.
inline void lazy_operation(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto& parameters = op.schema().arguments();
  const torch::jit::Stack arguments(stack->end() - static_cast<std::ptrdiff_t>(parameters.size()), stack->end());
  torch::jit::drop(*stack, parameters.size());
  torch::jit::Stack written;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const auto* const alias = parameters[i].alias_info();
    if (alias != nullptr && alias->isWrite()) written.push_back(arguments[i]);
  }
  auto results = turned(arguments, [](const at::Tensor& x) {
    return at::empty_strided(x.sizes(), x.strides(), x.options().device(at::kCPU)).zero_();
  });
  op.callBoxed(&results);
  if (!written.empty()) {
    // An empty one takes the shape of its result.
    const auto made = tensors_in(results), targets = tensors_in(written);
    for (std::size_t i = 0; i < std::min(made.size(), targets.size()); ++i) {
      if (targets[i].numel() > 0 || made[i].numel() == 0) continue;
      const auto memory = at::empty_strided(made[i].sizes(), made[i].strides(), targets[i].options());
      targets[i].unsafeGetTensorImpl()->set_storage_keep_dtype(memory.storage());
      targets[i].unsafeGetTensorImpl()->set_sizes_and_strides(memory.sizes(), memory.strides());
    }
    LazyDevice::get().enqueue([op, on_memory = turned(arguments, on_cpu_memory)] {
      auto own = on_memory;
      op.callBoxed(&own);
    });
    if (!op.schema().returns().empty()) stack->insert(stack->end(), written.begin(), written.end());
    return;
  }
  const auto on_memory = turned(arguments, on_cpu_memory);
  std::vector<at::Tensor> memory;
  for (auto& value : results) {
    if (!value.isTensor()) throw std::logic_error("not needed so far: " + toString(op.operator_name()));
    const auto result = value.toTensor();
    const auto out = at::empty_strided(result.sizes(), result.strides(), result.options().device(LazyDevice::device));
    memory.push_back(on_cpu_memory(out));
    stack->push_back(out);
  }
  LazyDevice::get().enqueue([op, on_memory, memory] {
    auto own = on_memory;
    op.callBoxed(&own);
    const auto results = tensors_in(own);
    for (std::size_t i = 0; i < memory.size(); ++i) memory[i].copy_(results[i]);
  });
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&lazy_operation>());
}
TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", &lazy_empty);
  m.impl("empty_strided", &lazy_empty_strided);
  m.impl("as_strided", &lazy_as_strided);
  m.impl("view", &lazy_view);
  m.impl("_copy_from", &lazy_copy_from);
  m.impl("record_stream", &lazy_record_stream);
}

}  // namespace orthant::test
