#include "orthant/train/recorded_steps.h"

#include <utility>

namespace orthant {
namespace {

// The first step of a run compiles kernels, asks libraries for plans and makes tables; the second takes measured plans.
constexpr int kFirstSteps = 2;
constexpr std::size_t kMostSeen =
    4096;  // shapes that are counted: all lengths of texts, not every batch of a bad input

}  // namespace

RecordedSteps::RecordedSteps(at::Device device, std::unique_ptr<DeviceRecorder> recorder, std::size_t most)
    : device_(device), recorder_(std::move(recorder)), most_(most) {}

at::Tensor RecordedSteps::run(const StepInputs& inputs, const Make& make, bool may_record) {
  Recorded* recorded = recorder_ && may_record ? recorded_for(inputs, make) : nullptr;
  if (recorded == nullptr) {
    InputMemory memory(inputs, device_);
    memory.fill(inputs);
    return make(memory.held(), /*warm=*/false);
  }
  recorded->memory.fill(inputs);
  recorded->recording->play();
  ++num_played_;
  return recorded->numbers;
}

RecordedSteps::Recorded* RecordedSteps::recorded_for(const StepInputs& inputs, const Make& make) {
  const std::string shape = shape_of(inputs);
  if (const auto found = recordings_.find(shape); found != recordings_.end()) return &found->second;
  if (recordings_.size() == most_ || (seen_.size() >= kMostSeen && !seen_.contains(shape))) return nullptr;
  if (seen_[shape] < (recordings_.empty() ? kFirstSteps : 1)) {
    ++seen_[shape];
    return nullptr;
  }
  auto& recorded = recordings_.emplace(shape, Recorded{InputMemory(inputs, device_), nullptr, {}}).first->second;
  try {
    recorded.recording =
        recorder_->record([&recorded, make] { recorded.numbers = make(recorded.memory.held(), /*warm=*/true); });
  } catch (...) {
    recordings_.erase(shape);
    throw;
  }
  return &recorded;
}

}  // namespace orthant
