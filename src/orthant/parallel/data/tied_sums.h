// Gradients of tied parameters whose users lie on several pipeline stages: every stage that uses one holds a copy of
// it, and after all other sums the copies' gradients are added over these stages. Layout, tp part and fsdp shard of a
// flat buffer follow from the spec and from the other coordinates alone, so that what ranks of different stages own of
// it is the same range. All of them get the same bits and update alike, so that the copies stay equal to the bit.
#pragma once

#include <memory>
#include <vector>

#include "orthant/comm/communicator.h"
#include "orthant/layout/unit_buffers.h"
#include "orthant/parallel/data/flat_parameters.h"

namespace orthant {

// For each set of pp coordinates that share a tied parameter: a group per coordinate on the other axes.
// `unit_pp_coordinates` is the pp coordinate of each unit. Pure.
std::vector<comm::SubgroupRequest> tied_groups(const GraphSpec& graph, const Mesh& mesh,
                                               const std::vector<int>& unit_pp_coordinates);

class TiedSums {
 public:
  // Keeps a reference to `buffers`. Without a communicator there are none.
  TiedSums(const std::vector<std::unique_ptr<FlatParameters>>& buffers, const UnitBuffers& units,
           const comm::Communicator* communicator);

  // Buffers that are shared with other stages, ascending.
  const std::vector<int>& buffers() const { return summed_; }
  bool sums(int buffer) const;  // whether it is one of them

  // Adds owned_gradient() of all of them and blocks until they are sums. Collective over the stages that share one.
  void run();

 private:
  struct Users {
    comm::Group group;
    std::vector<int> buffers;
  };

  const std::vector<std::unique_ptr<FlatParameters>>& buffers_;
  std::vector<Users> users_;  // in the order of their pp coordinates, alike on all ranks
  std::vector<int> summed_;
};

}  // namespace orthant
