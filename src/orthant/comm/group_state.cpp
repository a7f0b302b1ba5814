#include "orthant/comm/group_state.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <fmt/format.h>

#include "orthant/base/error.h"
#include "orthant/base/error_report.h"

namespace orthant::comm {

GroupState::GroupState(Members members, std::unique_ptr<Transport> transport, std::optional<Store> store,
                       double timeout_seconds, std::shared_ptr<const NoticedFailure> noticed)
    : members_(std::move(members)),
      store_(std::move(store)),
      timeout_seconds_(timeout_seconds),
      noticed_(std::move(noticed)),
      transport_(std::move(transport)) {}

std::unique_ptr<Pending> GroupState::start(Call& call) {
  throw_if_dropped();
  throw_if_failed();
  if (!transport_) {
    throw ConfigError(fmt::format("{} on group {} at {} after the communicator was closed", name_of(call.op),
                                  members_.name, short_location(call.site)),
                      {.remedy = "close the communicator after the last call", .rank = own_rank()}, call.site);
  }
  validate(call, static_cast<int>(members_.ranks.size()), members_.index);
  const at::AutoDispatchBelowADInplaceOrView below_autograd;  // communication is no part of any graph
  call.sequence = counts_.sequences[call.line(members_.index)]++;
  auto& entry = counts_.counters.entries[static_cast<size_t>(call.op)];
  entry.calls += 1;
  entry.bytes += payload_bytes(call);
  try {
    const trace::Span span(recorder(), event_of(call, trace::EventKind::exchange));
    auto pending = transport_->start(call);
    ++num_open_;
    return pending;
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    if (is_out_of_memory(error)) throw;  // nobody else is to blame
    fail(call, error, 0.0);
  }
}

void GroupState::count_again(const CallCounts& before, const CallCounts& after) {
  for (size_t op = 0; op < counts_.counters.entries.size(); ++op) {
    auto& entry = counts_.counters.entries[op];
    entry.calls += after.counters.entries[op].calls - before.counters.entries[op].calls;
    entry.bytes += after.counters.entries[op].bytes - before.counters.entries[op].bytes;
  }
  for (const auto& [line, number] : after.sequences) {
    const auto found = before.sequences.find(line);
    counts_.sequences[line] += number - (found == before.sequences.end() ? 0 : found->second);
  }
}

void GroupState::fail(const Call& call, const std::exception& error, double waited_seconds) {
  throw call_failure(members_, store_, words_of(call, members_.index), error, waited_seconds, timeout_seconds_);
}

void GroupState::connect(const std::vector<MessagePair>& pairs) {
  throw_if_failed();
  if (!transport_) throw ConfigError(fmt::format("group {} after the communicator was closed", members_.name));
  transport_->connect(pairs);
}

void GroupState::set_timeout(double timeout_seconds) {
  timeout_seconds_ = timeout_seconds;
  if (transport_) transport_->set_timeout(timeout_seconds);
}

void GroupState::record_into(std::shared_ptr<trace::Recorder> recorder, const std::string& group_text) {
  if (members_.ranks.size() < 2) return;
  recorder_ = std::move(recorder);
  recorded_group_ = recorder_->name(group_text);
  for (int op = 0; op < kNumOps; ++op)
    recorded_ops_[static_cast<size_t>(op)] = recorder_->name(name_of(static_cast<Op>(op)));
}

trace::Event GroupState::event_of(const Call& call, trace::EventKind kind) const {
  trace::Event event;
  event.kind = kind;
  event.bytes = payload_bytes(call);
  event.sequence = static_cast<std::uint32_t>(call.sequence);
  event.name = recorded_ops_[static_cast<size_t>(call.op)];
  event.group = recorded_group_;
  if (call.peer >= 0) event.peer = members_.ranks[static_cast<size_t>(call.peer)];
  event.tag = static_cast<std::int16_t>(call.tag);
  return event;
}

void GroupState::close() {
  transport_.reset();
  kept_.clear();
}

void GroupState::dropped(const Call& call, std::unique_ptr<Pending> pending) {
  std::lock_guard lock(dropped_mutex_);
  if (dropped_call_.empty()) dropped_call_ = fmt::format("{} at {}", describe(call), short_location(call.site));
  kept_.push_back(std::move(pending));
}

void GroupState::throw_if_dropped() {
  std::lock_guard lock(dropped_mutex_);
  if (dropped_call_.empty()) return;
  const auto call = std::exchange(dropped_call_, {});
  throw ConfigError(fmt::format("the Work of {} on group {} was destroyed without wait()", call, members_.name),
                    {.remedy = "keep every Work and wait for it", .rank = own_rank()});
}

}  // namespace orthant::comm
