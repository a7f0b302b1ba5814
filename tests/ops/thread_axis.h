// A tensor axis whose ranks are threads of this process. Strict where a real one is lenient: results appear in wait()
// alone, all ranks must call the same exchange with fitting shapes, and a rank that fails or leaves ends the others.
#pragma once

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "orthant/nn/tensor_axis.h"

namespace orthant::nn {

// Where the ranks' threads meet: each posts a tensor and reads all of them.
class ThreadMeeting {
 public:
  explicit ThreadMeeting(int degree) : kinds_(degree), tensors_(degree) {}

  // Blocks until all ranks have posted, runs read(tensors), and blocks until all have read.
  void exchange(int index, const std::string& kind, const at::Tensor& tensor,
                const std::function<void(const std::vector<at::Tensor>&)>& read) {
    kinds_[index] = kind;
    tensors_[index] = tensor;
    arrive(kind);
    for (std::size_t rank = 0; rank < kinds_.size(); ++rank) {
      if (kinds_[rank] == kind) continue;
      throw std::runtime_error(fmt::format("rank {} calls {}, rank {} calls {}", index, kind, rank, kinds_[rank]));
    }
    read(tensors_);
    arrive(kind);
  }

  // A rank that ends, well or not, comes to no further exchange: whoever waits for it throws.
  void leave() {
    const std::lock_guard lock(mutex_);
    left_ = true;
    changed_.notify_all();
  }

 private:
  void arrive(const std::string& kind) {
    std::unique_lock lock(mutex_);
    const std::int64_t mine = meetings_;
    if (++arrived_ == static_cast<int>(kinds_.size())) {
      arrived_ = 0;
      ++meetings_;
      changed_.notify_all();
      return;
    }
    changed_.wait(lock, [&] { return meetings_ != mine || left_; });
    if (meetings_ == mine) throw std::runtime_error("another rank left while this one waits in " + kind);
  }

  std::vector<std::string> kinds_;
  std::vector<at::Tensor> tensors_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int arrived_ = 0;
  std::int64_t meetings_ = 0;
  bool left_ = false;
};

class ThreadAxis : public TensorAxis {
 public:
  struct Call {
    std::string kind;                       // sum, maximum, gather, scatter
    std::int64_t elements = 0;              // of all ranks' tokens: of the output of a gather, of the input otherwise
    std::vector<std::string> subject = {};  // of a sum or scatter
  };

  ThreadAxis(const TensorSharing& sharing, int coordinate, ThreadMeeting& meeting)
      : TensorAxis(sharing, coordinate), meeting_(meeting) {}

  // From now on each rank keeps its own addends of this unit or parameter, as comm/faulty.h has it.
  void leave_out(const std::string& name) { left_out_ = name; }

  std::unique_ptr<Exchange> sum(const at::Tensor& tensor, Subject subject) override {
    return std::make_unique<Later>(tensor, summed("sum", tensor, subject));
  }
  std::unique_ptr<Exchange> maximum(const at::Tensor& tensor) override {
    return std::make_unique<Later>(tensor, reduced("maximum", tensor, raise));
  }
  std::unique_ptr<Exchange> gather(const at::Tensor& output, const at::Tensor& input) override {
    require_part("gather", input, output);
    at::Tensor result;
    post("gather", input, output.numel(), [&](const std::vector<at::Tensor>& all) { result = at::cat(all); });
    return std::make_unique<Later>(output, result);
  }
  std::unique_ptr<Exchange> scatter(const at::Tensor& output, const at::Tensor& input, Subject subject) override {
    require_part("scatter", output, input);
    const Range own = part(input.size(0));
    return std::make_unique<Later>(output, summed("scatter", input, subject).narrow(0, own.begin, own.size()));
  }

  // Of this rank, in their order.
  const std::vector<Call>& calls() const { return calls_; }

 private:
  using Join = void (*)(const at::Tensor& total, const at::Tensor& x);
  static void add(const at::Tensor& total, const at::Tensor& x) { total.add_(x); }
  static void raise(const at::Tensor& total, const at::Tensor& x) { total.copy_(at::maximum(total, x)); }

  struct Later : Exchange {
    Later(at::Tensor to, at::Tensor from) : output(std::move(to)), result(std::move(from)) {}
    void wait() override {
      if (!result.defined()) throw std::runtime_error("a second wait for one exchange");
      at::NoGradGuard no_grad;
      output.copy_(result);
      result.reset();
    }
    at::Tensor output, result;
  };

  at::Tensor summed(const char* kind, const at::Tensor& input, Subject subject) {
    at::Tensor total = reduced(kind, input, add);
    calls_.back().subject.assign(subject.begin(), subject.end());
    const bool left_out = !left_out_.empty() && std::ranges::find(subject, left_out_) != subject.end();
    return left_out ? input.detach().clone() : total;
  }

  // In the order of ranks, so that all get the same bits.
  at::Tensor reduced(const char* kind, const at::Tensor& input, Join join) {
    at::Tensor total;
    post(kind, input, input.numel(), [&](const std::vector<at::Tensor>& all) {
      for (const at::Tensor& x : all) require(x.sizes() == input.sizes(), kind, input, x);
      total = all[0].clone();
      for (std::size_t rank = 1; rank < all.size(); ++rank) join(total, all[rank]);
    });
    return total;
  }

  void post(const char* kind, const at::Tensor& input, std::int64_t elements,
            const std::function<void(const std::vector<at::Tensor>&)>& read) {
    require(input.is_contiguous(), kind, input, input);
    at::NoGradGuard no_grad;
    calls_.push_back({.kind = kind, .elements = elements});
    meeting_.exchange(coordinate(), kind, input.detach(), read);
  }

  void require_part(const char* kind, const at::Tensor& own, const at::Tensor& whole) const {
    require(own.dim() > 0 && own.dim() == whole.dim() && own.size(0) == part(whole.size(0)).size() &&
                own.sizes().slice(1) == whole.sizes().slice(1) && own.is_contiguous() && whole.is_contiguous(),
            kind, own, whole);
  }

  void require(bool holds, const char* kind, const at::Tensor& a, const at::Tensor& b) const {
    if (holds) return;
    throw std::runtime_error(fmt::format("rank {} of {}: {} of shapes [{}] and [{}], strides [{}] and [{}]",
                                         coordinate(), degree(), kind, fmt::join(a.sizes(), ","),
                                         fmt::join(b.sizes(), ","), fmt::join(a.strides(), ","),
                                         fmt::join(b.strides(), ",")));
  }

  ThreadMeeting& meeting_;
  std::vector<Call> calls_;
  std::string left_out_;
};

// Runs body(axis) for each of `degree` ranks on a thread of its own, and rethrows what the first to fail threw. Of
// `sharing` the degree is set here.
inline void run_axis(int degree, TensorSharing sharing, const std::function<void(ThreadAxis&)>& body) {
  ThreadMeeting meeting(degree);
  std::mutex mutex;
  std::exception_ptr first;
  std::vector<std::thread> threads;
  sharing.degree = degree;
  for (int coordinate = 0; coordinate < degree; ++coordinate) {
    threads.emplace_back([&, coordinate] {
      try {
        ThreadAxis axis(sharing, coordinate, meeting);
        body(axis);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!first) first = std::current_exception();
      }
      meeting.leave();
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
}

}  // namespace orthant::nn
