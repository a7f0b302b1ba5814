#include "orthant/train/recorded_steps.h"

#include <exception>
#include <utility>

#include "orthant/base/error.h"

namespace orthant {
namespace {

constexpr std::size_t kMostSeen = 4096;  // bounds the set where every batch has another shape

}  // namespace

RecordedSteps::RecordedSteps(at::Device device, std::unique_ptr<DeviceRecorder> recorder,
                             std::function<void(const std::string&)> failed)
    : device_(device), recorder_(std::move(recorder)), failed_(std::move(failed)) {}

at::Tensor RecordedSteps::run(const StepInputs& inputs, const Work& work, bool may_record) {
  Recorded* recorded = recorder_ && may_record ? recorded_for(inputs, work) : nullptr;
  if (recorded == nullptr) {
    InputMemory memory(inputs, device_);
    memory.fill(inputs);
    return work.make(memory.held(), /*recorded=*/false);
  }
  if (work.before_play) work.before_play();
  recorded->memory.fill(inputs);
  recorded->recording->play();
  if (recorded->after_play) recorded->after_play(std::exchange(recorded->played, true));
  ++num_played_;
  return recorded->numbers;
}

// The first step of a run compiles kernels, asks libraries for plans and makes tables, and products are measured behind
// it: what is recorded has run once after it.
RecordedSteps::Recorded* RecordedSteps::recorded_for(const StepInputs& inputs, const Work& work) {
  const std::string shape = shape_of(inputs);
  if (const auto found = recordings_.find(shape); found != recordings_.end()) return &found->second;
  if (!std::exchange(any_ran_, true) || recordings_.size() == kMostShapes) return nullptr;
  if (!seen_.contains(shape)) {
    if (seen_.size() < kMostSeen) seen_.insert(shape);
    return nullptr;
  }
  auto& recorded = recordings_.emplace(shape, Recorded{InputMemory(inputs, device_), nullptr, {}, {}}).first->second;
  std::exception_ptr error;
  std::string why;
  if (work.before_play) work.before_play();
  try {
    recorded.recording =
        recorder_->record([&recorded, make = work.make] { recorded.numbers = make(recorded.memory.held(), true); });
    if (work.recorded) recorded.after_play = work.recorded();
  } catch (const std::exception& thrown) {
    error = std::current_exception();
    why = thrown.what();
  }
  if (work.agree ? work.agree(!error) : !error) return &recorded;
  recordings_.erase(shape);
  if (!error) why = "another rank could not record it";
  if (!failed_) {
    if (error) std::rethrow_exception(error);
    throw ConfigError("train.cuda_graph=on: " + why, {.remedy = "see that rank's message"});
  }
  forget();
  recorder_.reset();
  failed_(why);
  return nullptr;
}

void RecordedSteps::forget() {
  recordings_.clear();
  seen_.clear();
  any_ran_ = false;
}

}  // namespace orthant
