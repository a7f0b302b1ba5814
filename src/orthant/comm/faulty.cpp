#include "orthant/comm/faulty.h"

#include <ATen/core/Tensor.h>

#include <algorithm>

namespace orthant::comm {
namespace {

class NothingPending : public Pending {
 public:
  void wait() override {}
  bool done() override { return true; }
};

// The call without the tensors at `left_out`, ascending.
Call without(const Call& call, const std::vector<size_t>& left_out) {
  Call rest = call;
  const auto erase = [&](auto& list) {
    if (list.empty()) return;
    for (size_t i = left_out.size(); i-- > 0;) list.erase(list.begin() + static_cast<std::ptrdiff_t>(left_out[i]));
  };
  erase(rest.inputs);
  erase(rest.outputs);
  erase(rest.subjects);
  return rest;
}

class FaultyTransport : public Transport {
 public:
  FaultyTransport(std::unique_ptr<Transport> inner, std::string name, int size, int index)
      : inner_(std::move(inner)), name_(std::move(name)), size_(size), index_(index) {}

  std::unique_ptr<Pending> start(const Call& call) override {
    const auto left_out = sums_to_leave_out(call);
    if (left_out.empty()) return inner_->start(call);
    if (call.op == Op::reduce_scatter) {
      for (const size_t i : left_out) keep_own_part(call, i);
    }
    if (left_out.size() == call.outputs.size()) return std::make_unique<NothingPending>();
    return inner_->start(without(call, left_out));
  }

  void connect(const std::vector<MessagePair>& pairs) override { inner_->connect(pairs); }

  void set_timeout(double timeout_seconds) override { inner_->set_timeout(timeout_seconds); }

 private:
  std::vector<size_t> sums_to_leave_out(const Call& call) const {
    std::vector<size_t> found;
    const bool sums = call.op == Op::all_reduce || call.op == Op::reduce_scatter;
    if (!sums || call.reduction != Reduction::sum) return found;
    for (size_t i = 0; i < call.subjects.size(); ++i) {
      const Subject subject = call.subjects[i];
      const bool meant = name_.empty() || std::ranges::find(subject, name_) != subject.end();
      if (!subject.empty() && meant) found.push_back(i);
    }
    return found;
  }

  void keep_own_part(const Call& call, size_t i) const {
    const auto input = call.inputs[i].flatten();
    const auto part = [&](int member) { return part_of(call.input_counts, input.numel(), size_, member); };
    int64_t begin = 0;
    for (int member = 0; member < index_; ++member) begin += part(member);
    const auto own = input.narrow(0, begin, part(index_));
    const auto output = call.outputs[i].flatten();
    if (output.data_ptr() != own.data_ptr()) output.copy_(own);
  }

  std::unique_ptr<Transport> inner_;
  std::string name_;
  int size_;
  int index_;
};

}  // namespace

WrapTransport leave_out_sums(const Mesh& mesh, const LeftOutSums& which) {
  return [mesh, which](std::unique_ptr<Transport> inner, const std::vector<int>& ranks,
                       int index) -> std::unique_ptr<Transport> {
    const auto place = [&](int rank) { return mesh.coordinate(rank)[which.axis]; };
    const auto elsewhere = [&](int rank) { return place(rank) != place(ranks.front()); };
    if (std::ranges::none_of(ranks, elsewhere)) return inner;
    return std::make_unique<FaultyTransport>(std::move(inner), which.name, static_cast<int>(ranks.size()), index);
  };
}

}  // namespace orthant::comm
