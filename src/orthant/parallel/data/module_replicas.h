// Making replicas of one module: ranks first agree that theirs are alike, then take over the first one's values. Used
// once when training begins, before any call that modules of different shapes would hang in.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "orthant/comm/communicator.h"

namespace torch::nn {
class Module;
}

namespace orthant {

// One line per parameter and buffer: name, dtype, shape, what else must be the same on every rank. Local.
std::string description_of(const torch::nn::Module& module);

// ConfigError, on every member, that names the first line in which the texts differ, and the ranks. Only hashes travel
// when they do not. Lines end with a newline. Collective over the group.
void check_same(const comm::Communicator& communicator, comm::Group group, const std::string& text);

// Member 0's values to all, whatever their dtypes and strides, packed into calls of about `call_bytes`. Collective over
// the group.
void broadcast_values(const comm::Communicator& communicator, comm::Group group, const std::vector<at::Tensor>& tensors,
                      std::int64_t call_bytes);

}  // namespace orthant
