// Steps of a device that are recorded and played back, one recording for each shape of their inputs. Local.
//
// Note [Recorded steps]: a step is a few hundred kernels; starting them one by one takes the host longer than a small
// step takes the device. A shape that comes again is recorded (runtime/device_recording.h) and played back from then
// on, with the same kernels on the same memory and so with the same bits. What differs between steps of a shape lies on
// the device, outside of the recording: inputs, learning rate, streams of dropout, loss scale, counts of updates. What
// the host does once a step (progress, watching, reading numbers a step later) is not part of what is recorded.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "orthant/runtime/device_recording.h"
#include "orthant/train/step_inputs.h"

namespace orthant {

class RecordedSteps {
 public:
  // `recorder`: null where steps are not recorded. `most`: shapes with a recording; others run as they are.
  RecordedSteps(at::Device device, std::unique_ptr<DeviceRecorder> recorder, std::size_t most = kMostShapes);

  // A step. `make`, alike in all calls, takes the inputs where they lie on the device and returns the step's numbers,
  // which lie there until the next step; `warm`: steps of that shape have been made, and with them all that steps keep.
  using Make = std::function<at::Tensor(const StepInputs&, bool warm)>;
  at::Tensor run(const StepInputs& inputs, const Make& make, bool may_record);

  bool records() const { return recorder_ != nullptr; }
  std::size_t num_recordings() const { return recordings_.size(); }
  std::size_t num_played() const { return num_played_; }

  static constexpr std::size_t kMostShapes = 16;

 private:
  struct Recorded {
    InputMemory memory;
    std::unique_ptr<DeviceRecording> recording;
    at::Tensor numbers;
  };

  // Of inputs of that shape, made now when it is time; null: this step runs as it is.
  Recorded* recorded_for(const StepInputs& inputs, const Make& make);

  at::Device device_;
  std::unique_ptr<DeviceRecorder> recorder_;
  std::size_t most_;
  std::size_t num_played_ = 0;
  std::map<std::string, int> seen_;  // steps of a shape that ran as they are
  std::map<std::string, Recorded> recordings_;
};

}  // namespace orthant
