// Calls and payload bytes of a pipeline, per rank and step, as the counters of `comm` count them: the tensor of a
// message, once where it is sent and once where it is received; the tensors of an all-reduce.
//
// Note [Pipeline traffic]: for a value v, b(v) is the bytes that a tp rank holds of it in one microbatch, w(v) the pp
// coordinate that writes it, n(v, q) how many units read it at q. M is the microbatches. The rank at p, over all
// values,
//   sends values        M b(v) for each q other than p with n(v, q) > 0                      where w(v) is p
//   receives gradients  M b(v) n(v, q) for each q other than p       where w(v) is p and v is differentiable
//   receives values     M b(v)                                       where w(v) is another and n(v, p) > 0
//   sends gradients     M b(v) n(v, p)                               where w(v) is another and v is differentiable
// in a message for each b(v). So a value travels once to every coordinate that reads it, a gradient once for every unit
// that reads it: the writer adds them in its own order. Schedule and stages on the same coordinate do not matter. Batch
// fields never travel. With g the bytes of a gradient in the reduce dtype and d the degree of fsdp (1 with zero 0), a
// rank sums, once a step and in one call for each set of coordinates that use the same tied parameters, g/d for every
// element of the flat buffers, padding included, that hold them.
#pragma once

#include "orthant/graph/spec.h"
#include "orthant/layout/data_settings.h"
#include "orthant/program/exchanged.h"

namespace orthant {

struct PipelineTraffic {
  using Entry = CountedCalls;
  Entry sent_values = {};
  Entry received_values = {};
  Entry sent_gradients = {};
  Entry received_gradients = {};
  Entry tied = {};  // all_reduce over the coordinates that share tied parameters
  friend bool operator==(const PipelineTraffic&, const PipelineTraffic&) = default;
};

// Of a resolved graph with the sizes of one microbatch, at settings.coordinate; settings.unit_pp_coordinates is the
// cut. Nothing on one stage. InternalError when a value crosses stages that is opaque, since its size is not known.
PipelineTraffic pipeline_traffic(const GraphSpec& graph, const DataSettings& settings);

}  // namespace orthant
