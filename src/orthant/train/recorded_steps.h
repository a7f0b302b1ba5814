// Steps of a device that are recorded and played back, one recording for each shape of their inputs. Local.
//
// Note [Recorded steps]: a step is a few hundred kernels; starting them one by one takes the host longer than a small
// step takes the device. A shape that comes again is recorded (runtime/device_recording.h) and played back from then
// on, with the same kernels on the same memory and so with the same bits. What differs between steps of a shape lies on
// the device, outside of the recording: inputs, learning rate, streams of dropout, loss scale, counts of updates. What
// the host does once a step (counting, watching, reading numbers a step later) is not part of what is recorded.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "orthant/runtime/device_recording.h"
#include "orthant/train/step_inputs.h"

namespace orthant {

// How a step's work is started: as the first one of its shape, or of a step that is like no other; as a later one of a
// shape that has run; or while it is recorded, which is a later one, too. Later ones find made what the first one makes
// once: tables, compiled kernels, plans of libraries.
enum class StepStart { first, later, recorded };

class RecordedSteps {
 public:
  // What a step does, alike in all calls. `make` takes the inputs where they lie on the device and returns the step's
  // numbers, which lie there until the next step. `before_play` is called before what was recorded is played, and
  // before a step is recorded.
  struct Work {
    std::function<at::Tensor(const StepInputs&, StepStart start)> make;
    std::function<void()> before_play = {};
    // Called behind a recording; what it returns is called after each play, with whether it is not the first.
    std::function<std::function<void(bool again)>()> recorded = {};
    // Of several ranks, which must all record a step or none: whether all have, given whether this one has. Collective.
    std::function<bool(bool here)> agree = {};
  };

  // `recorder`: null where steps are not recorded. `failed` is told why a step could not be recorded: from then on none
  // is, and this one runs as it is; where it is empty, the error is the caller's.
  RecordedSteps(at::Device device, std::unique_ptr<DeviceRecorder> recorder,
                std::function<void(const std::string&)> failed = {});

  // `may_record`: whether this one may be recorded or played back.
  at::Tensor run(const StepInputs& inputs, const Work& work, bool may_record);

  // For Work::make, while it is recorded: DeviceRecorder::cut(). InternalError where steps are not recorded any more.
  void cut(std::function<void()> between);

  // What was recorded: for when the next step is not like the last.
  void forget();

  bool records() const { return recorder_ != nullptr; }
  std::size_t num_recordings() const { return recordings_.size(); }
  std::size_t num_played() const { return num_played_; }

  static constexpr std::size_t kMostShapes = 16;  // with a recording; others run as they are
  static constexpr std::size_t kIdleSteps = 256;  // after so many without a play another shape takes its place

 private:
  struct Recorded {
    InputMemory memory;
    std::unique_ptr<DeviceRecording> recording;
    at::Tensor numbers;
    std::function<void(bool again)> after_play = {};
    bool played = false;
    std::size_t last_step = 0;  // that played it
  };
  // Whether steps of that shape have run, besides the first step of all. Notes that one does.
  bool comes_again(const std::string& shape);
  // Of inputs of that shape, which comes again, made now when it is time; null: this step runs as it is.
  Recorded* recorded_for(const StepInputs& inputs, const std::string& shape, const Work& work);
  // Whether there is room for one more, if need be in place of one that has long been idle.
  bool makes_room();

  at::Device device_;
  std::unique_ptr<DeviceRecorder> recorder_;
  std::function<void(const std::string&)> failed_;
  nn::StagedCopy copies_;
  std::size_t num_steps_ = 0;
  std::size_t num_played_ = 0;
  bool any_ran_ = false;
  std::set<std::string> seen_;  // shapes of steps that ran as they are, but for the first
  std::map<std::string, Recorded> recordings_;
};

}  // namespace orthant
