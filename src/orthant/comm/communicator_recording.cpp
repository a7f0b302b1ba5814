// Steps that are recorded: what a communicator does about the calls in them.
#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <set>
#include <utility>

#include "orthant/comm/call_watch.h"
#include "orthant/comm/communicator.h"
#include "orthant/comm/recorded_exchanges.h"

namespace orthant::comm {

void Communicator::begin_recording() const {
  auto calls = std::make_shared<RecordedCalls>();
  for (const auto& state : states_) calls->before.push_back(state->counts());
  recordings_->under_way = std::move(calls);
  watch_->record(true);
  recordings_->exchanges.begin();
}

std::shared_ptr<const RecordedCalls> Communicator::end_recording(bool whole) const {
  if (!recordings_->under_way) return nullptr;
  const auto calls = std::exchange(recordings_->under_way, nullptr);
  watch_->record(false);
  recordings_->exchanges.end(whole);
  if (!whole) {  // nothing of it ran
    for (size_t i = 0; i < states_.size(); ++i) states_[i]->count_as(calls->before[i]);
    return nullptr;
  }
  std::int64_t count = 0;
  std::set<std::string> names;
  for (size_t i = 0; i < states_.size(); ++i) {
    calls->after.push_back(states_[i]->counts());
    const auto more = calls->after[i].counters.total().calls - calls->before[i].counters.total().calls;
    if (more > 0) names.insert(states_[i]->members().name);
    count += more;
  }
  calls->text = fmt::format("{} calls on groups {}", count, fmt::join(names, ", "));
  std::erase_if(recordings_->made, [](const auto& earlier) { return earlier.expired(); });
  recordings_->made.push_back(calls);
  return calls;
}

void Communicator::played(const RecordedCalls& calls, bool again) const {
  for (size_t i = 0; again && i < states_.size(); ++i) states_[i]->count_again(calls.before[i], calls.after[i]);
  auto& own = *recordings_;
  const auto& world = *states_.front();
  if (own.queue < 0) own.queue = watch_->add_queue(world.members(), store_->below("recorded steps"), [] {});
  auto over = std::make_shared<c10::Event>(options_.device.type());
  over->record(c10::impl::VirtualGuardImpl(options_.device.type()).getStream(options_.device));
  watch_->add(own.queue,
              {.what = fmt::format("recorded step #{} ({})", own.num_played, calls.text),
               .subjects = {},
               .line = "recorded",
               .sequence = own.num_played},
              world.timeout_seconds(), [over, device = options_.device] {
                const c10::DeviceGuard on_device(device);  // the watching thread has none yet
                return over->query();
              });
  ++own.num_played;
}

void Communicator::begin_cutting(const std::function<void(std::function<void()>)>& cut) const {
  const auto cuts = std::make_shared<const Cuts>(Cuts{cut, options_.device});
  for (const auto& state : states_) state->cut_calls(cuts);
}

void Communicator::end_cutting() const {
  for (const auto& state : states_) state->cut_calls(nullptr);
}

}  // namespace orthant::comm
