// What the attentions of a list exchange over cp, as the counters of `comm` count it: the tensor of a message, the
// gathered output, the whole input of a reduce-scatter or an all-to-all. Pure.
//
// Note [Context traffic]: of r rows of S tokens, of which a rank has s; H query and K key/value heads of D channels on
// a tp rank; `seen` are the positions of one rank's keys that another's queries see (graph/context.h).
//   ring        forward a message of 2 r seen K D to every rank that sees some; backward the same, and as much back
//   gather      forward a gather of 2 r S K D; backward the same, and a scatter of as much
//   all_to_all  forward r s (H + 2 K') D and r S h D; backward r s H D, r s H statistics and r S (h + 2 k) D, where
//               h and k are the heads of this rank and K' counts the key/value heads that go to all, copies included
// Under a causal mask a ring computes 1/2 + 1/(4 cp) of all blocks of 2 cp x 2 cp chunks and sends 3/4 of all keys.
#pragma once

#include "orthant/program/exchanged.h"

namespace orthant {

// `sharing`: of the graph that the program is of; at that coordinate. Sums are what a router's loss counts.
Exchanged context_exchanged(const Program& program, const std::vector<Operation>& list, const UnitSizes& sizes,
                            const ContextSharing& sharing, int coordinate);

}  // namespace orthant
