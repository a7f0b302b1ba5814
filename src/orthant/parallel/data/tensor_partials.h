// Gradients that are complete on no tp rank alone: of whole parameters that each rank used for its own tokens, and of
// copies that each rank used for its own heads. They are summed over tp before anything over fsdp or dp. All ranks get
// the same bits of a sum, and update whole parameters and copies alike: so these stay equal to the bit.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <string_view>
#include <vector>

#include "orthant/comm/communicator.h"
#include "orthant/layout/unit_buffers.h"
#include "orthant/parallel/data/flat_parameters.h"

namespace orthant {

// What the copies of the graph's parameters are summed over: disjoint groups of tp ranks that hold one copy, one
// request for each number of holders. The graph is resolved. Pure.
std::vector<comm::SubgroupRequest> copy_groups(const GraphSpec& graph, const Mesh& mesh);

class TensorPartials {
 public:
  // Keeps a reference to `buffers`. Without a communicator, or on one tp rank, there are none.
  TensorPartials(const std::vector<std::unique_ptr<FlatParameters>>& buffers, const UnitBuffers& units,
                 const GraphSpec& graph, const Mesh& mesh, const comm::Communicator* communicator);

  // The gradients of buffers that the unit holds are complete on this rank: starts their sums. Collective over tp.
  void start(int unit);
  // Blocks until all that were started are sums.
  void finish();

 private:
  // A part of a buffer's full gradient.
  struct Part {
    int buffer;
    Range range;
    std::array<std::string_view, 2> names;  // of the unit that owns it and of the parameter
  };
  struct Sums {
    comm::Group group;
    std::vector<Part> parts;
  };

  void add_entry(int unit, int buffer, const FlatEntry& entry, const ParameterSpec& spec, const Mesh& mesh,
                 const comm::Communicator& communicator);

  const std::vector<std::unique_ptr<FlatParameters>>& buffers_;
  std::vector<std::map<std::int64_t, Sums>> unit_sums_;  // per unit, by number of ranks
  std::vector<comm::Work> under_way_;
};

}  // namespace orthant
