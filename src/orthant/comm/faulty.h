// Sums that are left out on purpose, to show that a comparison notices: `orthant parity --inject skip-reduce=...`. The
// one place that knows of such a fault; whoever asks for a sum only says for what it is.
#pragma once

#include <string>

#include "orthant/comm/transport.h"
#include "orthant/mesh/mesh.h"

namespace orthant::comm {

// Which sums: those over groups whose ranks differ in `axis`, of tensors that belong to the unit or parameter `name`,
// or to any when it is empty. Tensors without a subject are always summed.
struct LeftOutSums {
  Axis axis = Axis::dp;
  std::string name = {};
};

// For CommOptions::wrap, on every rank of the mesh alike. Each rank then keeps its own addend in place of the sum: its
// tensor as it is, or its part of what was to be scattered.
WrapTransport leave_out_sums(const Mesh& mesh, const LeftOutSums& which);

}  // namespace orthant::comm
