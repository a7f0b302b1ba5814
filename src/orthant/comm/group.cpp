#include "orthant/comm/group.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <fmt/format.h>

#include <chrono>

#include "orthant/base/error.h"
#include "orthant/base/error_report.h"
#include "orthant/comm/cut_calls.h"
#include "orthant/comm/group_state.h"

namespace orthant::comm {

Work::Work() = default;

Work::Work(std::shared_ptr<GroupState> group, Call call, std::unique_ptr<Pending> pending)
    : group_(std::move(group)), call_(std::move(call)), pending_(std::move(pending)) {}

Work::Work(Work&& other) noexcept = default;

Work& Work::operator=(Work&& other) noexcept {
  if (this != &other) {
    drop();
    group_ = std::move(other.group_);
    call_ = std::move(other.call_);
    pending_ = std::move(other.pending_);
  }
  return *this;
}

Work::~Work() {
  drop();
}

void Work::drop() {
  if (!pending_) return;
  group_->settled();
  group_->dropped(call_, std::move(pending_));
  pending_.reset();
}

void Work::wait() {
  if (!pending_) return;
  const auto pending = std::move(pending_);
  group_->settled();
  group_->throw_if_failed();
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const auto began = std::chrono::steady_clock::now();
  try {
    const trace::Span span(group_->recorder(), group_->event_of(call_, trace::EventKind::wait));
    pending->wait();
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    if (is_out_of_memory(error)) throw;  // nobody else is to blame
    group_->fail(call_, error, std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count());
  }
}

bool Work::done() const {
  return !pending_ || pending_->done();
}

const std::string& Group::name() const {
  return state_->members().name;
}
const std::vector<int>& Group::ranks() const {
  return state_->members().ranks;
}
int Group::index() const {
  return state_->members().index;
}
Purpose Group::purpose() const {
  return state_->members().purpose;
}
const Counters& Group::counters() const {
  return state_->counters();
}

Work Group::start(Call call) {
  if (!state_) {
    throw ConfigError(
        fmt::format("{} at {} on a group that was never made", name_of(call.op), short_location(call.site)),
        {.remedy = "take groups from a communicator"}, call.site);
  }
  if (const auto& cuts = state_->cuts()) {
    auto pending = cut_at_call(*cuts, *this, call);
    state_->opened();
    return Work(state_, std::move(call), std::move(pending));
  }
  auto pending = state_->start(call);
  return Work(state_, std::move(call), std::move(pending));
}

Work Group::all_reduce(const at::Tensor& tensor, Reduction reduction, Subject subject, Site site) {
  return start(
      {.op = Op::all_reduce, .reduction = reduction, .outputs = {tensor}, .subjects = {subject}, .site = site});
}

Work Group::all_reduce(const std::vector<at::Tensor>& tensors, Reduction reduction, std::vector<Subject> subjects,
                       Site site) {
  return start({.op = Op::all_reduce,
                .reduction = reduction,
                .outputs = tensors,
                .subjects = std::move(subjects),
                .site = site});
}

Work Group::all_gather(const at::Tensor& output, const at::Tensor& input, const std::vector<int64_t>& counts,
                       Site site) {
  return start({.op = Op::all_gather, .inputs = {input}, .outputs = {output}, .output_counts = counts, .site = site});
}

Work Group::all_gather(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& inputs, Site site) {
  return start({.op = Op::all_gather, .inputs = inputs, .outputs = outputs, .site = site});
}

Work Group::reduce_scatter(const at::Tensor& output, const at::Tensor& input, const std::vector<int64_t>& counts,
                           Reduction reduction, Subject subject, Site site) {
  return start({.op = Op::reduce_scatter,
                .reduction = reduction,
                .inputs = {input},
                .outputs = {output},
                .input_counts = counts,
                .subjects = {subject},
                .site = site});
}

Work Group::reduce_scatter(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& inputs,
                           Reduction reduction, std::vector<Subject> subjects, Site site) {
  return start({.op = Op::reduce_scatter,
                .reduction = reduction,
                .inputs = inputs,
                .outputs = outputs,
                .subjects = std::move(subjects),
                .site = site});
}

Work Group::all_to_all(const at::Tensor& output, const at::Tensor& input, const std::vector<int64_t>& output_counts,
                       const std::vector<int64_t>& input_counts, Site site) {
  return start({.op = Op::all_to_all,
                .inputs = {input},
                .outputs = {output},
                .input_counts = input_counts,
                .output_counts = output_counts,
                .site = site});
}

Work Group::broadcast(const at::Tensor& tensor, int root, Site site) {
  return start({.op = Op::broadcast, .outputs = {tensor}, .peer = root, .site = site});
}

void Group::connect(const std::vector<MessagePair>& pairs) {
  state_->connect(pairs);
}

Work Group::send(const at::Tensor& tensor, int peer, int tag, Site site) {
  return start({.op = Op::send, .inputs = {tensor}, .peer = peer, .tag = tag, .site = site});
}

Work Group::receive(const at::Tensor& tensor, int peer, int tag, Site site) {
  return start({.op = Op::receive, .outputs = {tensor}, .peer = peer, .tag = tag, .site = site});
}

Work Group::barrier(Site site) {
  return start({.op = Op::barrier, .site = site});
}

}  // namespace orthant::comm
