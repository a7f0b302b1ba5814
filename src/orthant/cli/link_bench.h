// What travels between the ranks of this machine, measured.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "orthant/cli/rank_clock.h"
#include "orthant/comm/communicator.h"
#include "orthant/plan/estimate/hardware.h"

namespace orthant::cli {

class LinkBench {
 public:
  // Gives its work to the clock: collectives and messages of several sizes, and a sum beside products. Of two ranks or
  // more; keeps a reference to both.
  LinkBench(RankClock& clock, const comm::Communicator& communicator);

  // After the clock has run. Nobody measures a network here: it is set to what is within the machine. Local.
  void fill_in(Hardware& hardware) const;

 private:
  struct Travel {
    double hops = 0;
    double bytes = 0;
    std::size_t piece = 0;
  };

  at::Tensor tensor(std::int64_t elements, bool placed) const;
  void add(double hops, double bytes, std::function<void()> call);
  void add_collectives(std::int64_t bytes, bool placed);
  void add_message(std::int64_t bytes);
  void add_beside();

  RankClock& clock_;
  const comm::Communicator& communicator_;
  comm::Group group_;
  std::vector<Travel> travels_;
  std::size_t computing_ = 0, travelling_ = 0, both_ = 0;  // pieces
};

}  // namespace orthant::cli
