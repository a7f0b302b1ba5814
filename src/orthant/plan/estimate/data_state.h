// Bytes that data parallelism keeps on a rank, for good and for a while. Counts flat buffers with their padding, and
// nothing else: no activations, no memory of the communication library.
//
// Note [Data state]: per element of a flat buffer, with p, c and r the bytes of the params, compute and reduce dtypes,
// k optimizer copies and d the degree of fsdp:
//   zero 0   p + c + r + k p                      (when p and c are one dtype they are one buffer: c + r + k c)
//   zero 1   p/d + c + r + k p/d                  (then the optimizer's copy is a part of c: c + r + k c/d)
//   zero 2   p/d + c + r/d + k p/d                (likewise)
//   zero 3   p/d + r/d + k p/d
// A master in halves has 2/d in place of p/d beside c; with zero 3 its upper half is a shard of c, so that nothing
// changes.
// So float32 AdamW costs 16 bytes per parameter with zero 0 and 16/d with zero 3, plus what is full for a while: the
// gathered groups, and full gradients from their first microbatch to the end of their reduction. A tied buffer has a
// full gradient for each of its users; a frozen one has neither gradients nor optimizer state.
#pragma once

#include <cstdint>
#include <vector>

#include "orthant/graph/spec.h"
#include "orthant/layout/data_settings.h"
#include "orthant/layout/unit_buffers.h"
#include "orthant/schedule/actions.h"

namespace orthant {

struct DataState {
  std::int64_t parameters = 0;  // the optimizer's copy, where it is no part of `compute`
  std::int64_t compute = 0;     // what products read, where it stays
  std::int64_t gradients = 0;
  std::int64_t optimizer = 0;

  std::int64_t total() const { return parameters + compute + gradients + optimizer; }
  friend bool operator==(const DataState&, const DataState&) = default;
};

// The same on every rank of the data axes; tp ranks may differ. What is offloaded counts too, wherever it lies.
DataState data_state(const GraphSpec& graph, const DataSettings& settings);

struct DataPeaks {
  std::int64_t gathered = 0;   // the most bytes of gathered parameters alive at one time; zero 3
  std::int64_t gradients = 0;  // the most bytes of full gradients alive at one time; zero 2 and 3
  friend bool operator==(const DataPeaks&, const DataPeaks&) = default;
};

// Of the list that runs: that of data_actions(). Full gradients of a call live until the next call has been started, or
// until the sum over replicas, or until memory for the same gradients is asked for again.
DataPeaks data_peaks(const GraphSpec& graph, const DataSettings& settings, const std::vector<Action>& actions);

// Bytes that both keep once a step has run: a block serves whatever has its length and type, and is not given back.
std::int64_t data_pool(const GraphSpec& graph, const DataSettings& settings, const std::vector<Action>& actions);

}  // namespace orthant
