#include "orthant/train/recorded_steps.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "orthant/base/error.h"
#include "orthant/base/error_report.h"

namespace orthant {
namespace {

constexpr std::size_t kMostSeen = 4096;  // bounds the set where every batch has another shape

}  // namespace

RecordedSteps::RecordedSteps(at::Device device, std::unique_ptr<DeviceRecorder> recorder,
                             std::function<void(const std::string&)> failed)
    : device_(device), recorder_(std::move(recorder)), failed_(std::move(failed)), copies_(device) {}

at::Tensor RecordedSteps::run(const StepInputs& inputs, const Work& work, bool may_record) {
  ++num_steps_;
  Recorded* recorded = nullptr;
  auto start = StepStart::first;
  if (may_record && (recorder_ || !device_.is_cpu())) {
    const std::string shape = shape_of(inputs);
    if (comes_again(shape)) start = StepStart::later;
    if (recorder_ && start == StepStart::later) recorded = recorded_for(inputs, shape, work);
  }
  if (recorded == nullptr) {
    InputMemory memory(inputs, device_);
    memory.fill(inputs, &copies_);
    return work.make(memory.held(), start);
  }
  if (work.before_play) work.before_play();
  recorded->memory.fill(inputs, &copies_);
  recorded->recording->play();
  if (recorded->after_play) recorded->after_play(std::exchange(recorded->played, true));
  recorded->last_step = num_steps_;
  ++num_played_;
  return recorded->numbers;
}

// The first step of a run compiles kernels, asks libraries for plans and makes tables, and products are measured behind
// it: a shape comes again once it has run after that.
bool RecordedSteps::comes_again(const std::string& shape) {
  if (!std::exchange(any_ran_, true)) return false;
  if (seen_.contains(shape)) return true;
  if (seen_.size() < kMostSeen) seen_.insert(shape);
  return false;
}

RecordedSteps::Recorded* RecordedSteps::recorded_for(const StepInputs& inputs, const std::string& shape,
                                                     const Work& work) {
  if (const auto found = recordings_.find(shape); found != recordings_.end()) return &found->second;
  if (!makes_room()) return nullptr;
  auto& recorded = recordings_.emplace(shape, Recorded{InputMemory(inputs, device_), nullptr, {}}).first->second;
  std::exception_ptr error;
  std::string why;
  bool told = false;  // the error says by itself what to do
  if (work.before_play) work.before_play();
  try {
    recorded.recording = recorder_->record(
        [&recorded, make = work.make] { recorded.numbers = make(recorded.memory.held(), StepStart::recorded); });
    if (work.recorded) recorded.after_play = work.recorded();
  } catch (const std::exception& thrown) {
    error = std::current_exception();
    why = thrown.what();
    told = dynamic_cast<const Error*>(&thrown) != nullptr || is_out_of_memory(thrown);
  }
  if (work.agree ? work.agree(!error) : !error) return &recorded;
  recordings_.erase(shape);
  if (!error) why = "another rank could not record it";
  if (!failed_) {
    if (told) std::rethrow_exception(error);
    throw ConfigError("train.cuda_graph=on, but the step cannot be recorded: " + why,
                      {.remedy = error ? "set train.cuda_graph=auto, which then goes on without a graph, or off"
                                       : "see that rank's message"});
  }
  forget();
  recorder_.reset();
  failed_(why);
  return nullptr;
}

void RecordedSteps::cut(std::function<void()> between) {
  if (!recorder_) throw InternalError("a call of a step whose recording has failed is waited for");
  recorder_->cut(std::move(between));
}

bool RecordedSteps::makes_room() {
  if (recordings_.size() < kMostShapes) return true;
  const auto idle = std::ranges::min_element(
      recordings_, {}, [](const auto& shape_and_recorded) { return shape_and_recorded.second.last_step; });
  if (num_steps_ - idle->second.last_step <= kIdleSteps) return false;
  recordings_.erase(idle);
  return true;
}

void RecordedSteps::forget() {
  recordings_.clear();
  seen_.clear();
  any_ran_ = false;
}

}  // namespace orthant
