// What tensor parallelism exchanges, counted without programs: from the splits of parameters and the order that their
// names tell, by the table of Note [Unit traffic] in plan/estimate/unit_traffic.h. It guesses
// from names what programs know: an oracle for them.
#pragma once

#include "orthant/program/exchanged.h"

namespace orthant::test {

// Of one microbatch of a resolved graph with a loss, nothing recomputed. `again`: what the forwards of recomputable
// units with a backward exchange, on top.
struct ProductTraffic {
  Exchanged step = {};
  Exchanged again = {};
};
ProductTraffic product_traffic(const GraphSpec& graph);

}  // namespace orthant::test
