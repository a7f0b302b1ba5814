#include "orthant/plan/estimate/collective_time.h"

#include <algorithm>
#include <bit>
#include <map>
#include <numeric>
#include <optional>

namespace orthant {
namespace {

// How many coordinates of an axis a node holds, when nodes begin and end where the axis does; nothing otherwise.
std::optional<int> coordinates_per_node(const Mesh& mesh, Axis axis, int cards_per_node) {
  Coordinate next;
  next[axis] = 1;
  const int stride = mesh.rank_of(next);
  const int extent = stride * mesh.degree(axis);
  if (stride % cards_per_node == 0) return 1;
  if (cards_per_node % extent == 0) return mesh.degree(axis);
  if (cards_per_node % stride == 0 && extent % cards_per_node == 0) return cards_per_node / stride;
  return std::nullopt;
}

std::optional<int> even_ranks_per_node(const Mesh& mesh, AxisSet axes, int cards_per_node) {
  int ranks = 1;
  for (const Axis axis : axes) {
    if (mesh.degree(axis) == 1) continue;
    const auto share = axis == Axis::ep ? std::nullopt : coordinates_per_node(mesh, axis, cards_per_node);
    if (!share) return std::nullopt;
    ranks *= *share;
  }
  return ranks;
}

int uneven_ranks_per_node(const Mesh& mesh, AxisSet axes, int cards_per_node) {
  int divisor = 0;
  for (const auto& group : mesh.groups(axes)) {
    std::map<int, int> on_node;
    for (const int rank : group) ++on_node[rank / cards_per_node];
    for (const auto& [node, ranks] : on_node) divisor = std::gcd(divisor, ranks);
  }
  return divisor;
}

// All ranks pass a tensor around once: a gather, or a scatter of sums. Each card of a node has its own way out of it.
double ring_seconds(double bytes, const Span& span, const Hardware& hardware) {
  const double n = span.ranks;
  const double nodes = span.nodes();
  const double latency = (n - nodes) * hardware.local.latency + (nodes - 1) * hardware.network.latency;
  const double local = span.per_node > 1 ? hardware.local.rate() : span.per_node * hardware.network.rate();
  const double rate = nodes > 1 ? std::min(local, span.per_node * hardware.network.rate()) : local;
  return latency + (n - 1) / n * bytes / rate;
}

// A sum by a tree, or by halving and doubling where the ranks are a power of two.
double tree_seconds(double bytes, int ranks, const Link& link) {
  const double rounds = std::bit_width(static_cast<unsigned>(ranks - 1));
  const bool halves = std::has_single_bit(static_cast<unsigned>(ranks));
  const double passed = halves ? bytes * (ranks - 1) / ranks : bytes;
  return 2 * rounds * link.latency + 2 * passed / link.rate();
}

double all_reduce_seconds(double bytes, const Span& span, const Hardware& hardware) {
  const double ring = 2 * ring_seconds(bytes, span, hardware);
  if (span.nodes() == 1) return std::min(ring, tree_seconds(bytes, span.ranks, hardware.local));
  const Span node{span.per_node, span.per_node};
  const double within = span.per_node > 1 ? 2 * ring_seconds(bytes, node, hardware) : 0;
  const double part = bytes / span.per_node;
  const Span heads{span.nodes(), 1};
  const double across =
      std::min(2 * ring_seconds(part, heads, hardware), tree_seconds(part, heads.ranks, hardware.network));
  return std::min(ring, within + across);
}

// Every rank has a part for every other one.
double all_to_all_seconds(double bytes, const Span& span, const Hardware& hardware) {
  const double n = span.ranks;
  const double near = span.per_node - 1;
  const double far = n - span.per_node;
  const double local = near > 0 ? near * hardware.local.latency + near / n * bytes / hardware.local.rate() : 0;
  const double network = far > 0 ? far * hardware.network.latency + far / n * bytes / hardware.network.rate() : 0;
  return local + network;
}

// Neighbours pass on what they got; the slowest of them sets the pace.
double pass_on_seconds(double bytes, const Span& span, const Hardware& hardware) {
  const Link& link = link_of(span, hardware);
  return (span.ranks - 1) * link.latency + bytes / link.rate();
}

}  // namespace

Span span_of(const Mesh& mesh, AxisSet axes, int cards_per_node) {
  const int ranks = mesh.group_size(axes);
  if (ranks == 1) return {};
  const auto even = even_ranks_per_node(mesh, axes, cards_per_node);
  return {ranks, even ? *even : uneven_ranks_per_node(mesh, axes, cards_per_node)};
}

const Link& link_of(const Span& span, const Hardware& hardware) {
  return span.nodes() == 1 ? hardware.local : hardware.network;
}

double exchange_seconds(ExchangeKind kind, double bytes, const Span& span, const Hardware& hardware) {
  if (span.ranks == 1) return 0;
  switch (kind) {
    case ExchangeKind::all_reduce:
      return all_reduce_seconds(bytes, span, hardware);
    case ExchangeKind::all_gather:
    case ExchangeKind::reduce_scatter:
      return ring_seconds(bytes, span, hardware);
    case ExchangeKind::all_to_all:
      return all_to_all_seconds(bytes, span, hardware);
    case ExchangeKind::ring:
      break;
  }
  return pass_on_seconds(bytes, span, hardware);
}

HiddenTime overlap(double travelling, double products, const Link& link) {
  const double hidden = std::min(travelling, products);
  return {.hidden = hidden, .exposed = travelling - hidden + hidden * link.slows_compute};
}

double message_seconds(double bytes, const Span& stages, const Hardware& hardware) {
  return stages.ranks == 1 ? 0 : link_of(stages, hardware).seconds(bytes);
}

}  // namespace orthant
