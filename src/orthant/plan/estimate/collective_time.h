// How long a collective takes on a group of ranks, by latency and bandwidth of each level of links: the best of ring,
// tree and halving within a node, of ring and two levels across nodes. docs/planner.md has the formulas. Local.
#pragma once

#include "orthant/mesh/axis.h"
#include "orthant/mesh/mesh.h"
#include "orthant/plan/estimate/hardware.h"
#include "orthant/plan/estimate/unit_work.h"

namespace orthant {

// Where the ranks of a group lie.
struct Span {
  int ranks = 1;
  int per_node = 1;  // that share a node
  int nodes() const { return ranks / per_node; }
  friend bool operator==(const Span&, const Span&) = default;
};

// Of the groups over some axes, when node i has ranks i * cards_per_node and following. Where groups lie unevenly on
// nodes, as many share a node as divide what each node has of each group.
Span span_of(const Mesh& mesh, AxisSet axes, int cards_per_node);

// The slowest link that a group crosses.
const Link& link_of(const Span& span, const Hardware& hardware);

// `bytes` as in PricedExchange. A group of one rank takes no time.
double exchange_seconds(ExchangeKind kind, double bytes, const Span& span, const Hardware& hardware);

// What travels while products of so many seconds run beside it.
struct HiddenTime {
  double hidden = 0;   // seconds of it that they hide
  double exposed = 0;  // that a step takes longer by it: those not hidden, and what the products lose
};
HiddenTime overlap(double travelling, double products, const Link& link);

// From one stage to the next.
double message_seconds(double bytes, const Span& stages, const Hardware& hardware);

}  // namespace orthant
