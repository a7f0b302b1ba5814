// Which parameters on this rank are not finite, and which gradients: by name, after a step that was bad. Local.
//
// Note [Notes of a bad step]: gradients lie in their buffers until the next backward, and the host must not wait for a
// step's numbers before it starts that. So after every update a kernel looks at the numbers on the device: a good step
// costs its start, after a bad one it notes what is not finite. The host reads the notes when it has read the numbers,
// a step later. Where kernels do not serve (on the CPU, float64, what is offloaded), the buffers themselves are looked
// at, before they are overwritten.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstddef>
#include <string>
#include <vector>

namespace orthant {

class ParameterStore;

class EntryWatch {
 public:
  // Keeps a reference to the store, whose buffers stay where they are.
  EntryWatch(const ParameterStore& store, at::Device device);

  // Whether note() takes notes. If not, parameters() and gradients() tell of what the buffers hold now.
  bool takes_notes() const { return served_; }

  // In the order of a step: before it, and after its update with its numbers (pending_step.h), on the device.
  void begin_on_device() const;
  void note(const at::Tensor& numbers) const;

  // Names in this rank's part of a buffer, of the step under way (0) or the one before (1), which was bad.
  std::vector<std::string> parameters(std::size_t buffer, int steps_ago) const;
  std::vector<std::string> gradients(std::size_t buffer, int steps_ago) const;

 private:
  // Rows of the table that belong to one flat tensor: the entries of its buffer that this rank owns a part of.
  struct Tensor {
    at::Tensor flat;
    std::size_t buffer = 0;
    std::size_t first_row = 0;
  };
  std::vector<std::string> names(const Tensor& tensor, int steps_ago) const;
  void make_table(at::Device device);

  const ParameterStore& store_;
  std::vector<Tensor> parameters_;  // per buffer
  std::vector<Tensor> gradients_;   // per buffer; undefined where it is not trained
  bool served_ = true;              // by kernels
  std::size_t num_rows_ = 0;
  at::Tensor rows_;                  // int64 [rows, 3]
  std::array<at::Tensor, 2> flags_;  // of this step and of the one before: uint8 [rows]
};

}  // namespace orthant
