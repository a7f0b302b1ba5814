#include "orthant/plan/estimate/collective_time.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

namespace orthant {
namespace collective_time_test {

constexpr double kLocal = 4e-6;     // seconds per hop
constexpr double kNetwork = 30e-6;  // likewise
constexpr double kLocalRate = 200e9;
constexpr double kNetworkRate = 10e9;

Hardware machine() {
  Hardware hardware;
  hardware.local = {.name = "in", .bandwidth = 2 * kLocalRate, .efficiency = 0.5, .latency = kLocal};
  hardware.network = {.name = "out", .bandwidth = kNetworkRate, .latency = kNetwork};
  return hardware;
}

double seconds(ExchangeKind kind, double bytes, Span span) {
  return exchange_seconds(kind, bytes, span, machine());
}

constexpr std::array kKinds = {ExchangeKind::all_reduce, ExchangeKind::all_gather, ExchangeKind::reduce_scatter,
                               ExchangeKind::all_to_all, ExchangeKind::ring};

TEST(CollectiveTime, OneRankTakesNone) {
  for (const auto kind : kKinds) EXPECT_EQ(seconds(kind, 1e9, {1, 1}), 0);
  EXPECT_EQ(message_seconds(1e9, {1, 1}, machine()), 0);
}

TEST(CollectiveTime, WithinANode) {
  constexpr double kBytes = 1e9;
  // Powers of two halve and double; six ranks pass a large tensor around a ring and a small one up and down a tree.
  EXPECT_DOUBLE_EQ(seconds(ExchangeKind::all_reduce, kBytes, {8, 8}), 6 * kLocal + 2 * 7.0 / 8 * kBytes / kLocalRate);
  EXPECT_DOUBLE_EQ(seconds(ExchangeKind::all_reduce, kBytes, {2, 2}), 2 * kLocal + kBytes / kLocalRate);
  EXPECT_DOUBLE_EQ(seconds(ExchangeKind::all_reduce, kBytes, {6, 6}), 10 * kLocal + 2 * 5.0 / 6 * kBytes / kLocalRate);
  EXPECT_DOUBLE_EQ(seconds(ExchangeKind::all_reduce, 8, {6, 6}), 6 * kLocal + 2 * 8 / kLocalRate);
  for (const auto kind : {ExchangeKind::all_gather, ExchangeKind::reduce_scatter, ExchangeKind::all_to_all}) {
    EXPECT_DOUBLE_EQ(seconds(kind, kBytes, {8, 8}), 7 * kLocal + 7.0 / 8 * kBytes / kLocalRate);
  }
  EXPECT_DOUBLE_EQ(seconds(ExchangeKind::ring, kBytes, {4, 4}), 3 * kLocal + kBytes / kLocalRate);
  EXPECT_DOUBLE_EQ(message_seconds(kBytes, {4, 4}, machine()), kLocal + kBytes / kLocalRate);
}

TEST(CollectiveTime, OneRankPerNodeUsesTheNetworkAlone) {
  constexpr double kBytes = 1e9;
  EXPECT_DOUBLE_EQ(seconds(ExchangeKind::all_reduce, kBytes, {4, 1}),
                   4 * kNetwork + 2 * 3.0 / 4 * kBytes / kNetworkRate);
  for (const auto kind : {ExchangeKind::all_gather, ExchangeKind::reduce_scatter, ExchangeKind::all_to_all}) {
    EXPECT_DOUBLE_EQ(seconds(kind, kBytes, {4, 1}), 3 * kNetwork + 3.0 / 4 * kBytes / kNetworkRate);
  }
  EXPECT_DOUBLE_EQ(seconds(ExchangeKind::ring, kBytes, {4, 1}), 3 * kNetwork + kBytes / kNetworkRate);
  EXPECT_DOUBLE_EQ(message_seconds(kBytes, {4, 1}, machine()), kNetwork + kBytes / kNetworkRate);
}

TEST(CollectiveTime, TwoLevelsAcrossNodes) {
  constexpr double kBytes = 1e9;
  // Scatter in the node, sum of an eighth over two nodes, gather in the node.
  EXPECT_DOUBLE_EQ(seconds(ExchangeKind::all_reduce, kBytes, {16, 8}),
                   14 * kLocal + 2 * 7.0 / 8 * kBytes / kLocalRate + 2 * kNetwork + kBytes / 8 / kNetworkRate);
  // A ring through all of them: 14 hops within nodes, one between; eight ways out of a node.
  EXPECT_DOUBLE_EQ(seconds(ExchangeKind::all_gather, kBytes, {16, 8}),
                   14 * kLocal + kNetwork + 15.0 / 16 * kBytes / (8 * kNetworkRate));
  // 7 parts to the own node, 8 to the other one.
  EXPECT_DOUBLE_EQ(seconds(ExchangeKind::all_to_all, kBytes, {16, 8}),
                   7 * kLocal + 7.0 / 16 * kBytes / kLocalRate + 8 * kNetwork + 8.0 / 16 * kBytes / kNetworkRate);
  EXPECT_DOUBLE_EQ(message_seconds(kBytes, {16, 8}, machine()), kNetwork + kBytes / kNetworkRate);
}

TEST(CollectiveTime, ASumNeverTakesLongerThanAScatterAndAGather) {
  for (const Span span : {Span{2, 2}, {3, 3}, {8, 8}, {4, 1}, {16, 8}, {24, 4}, {512, 8}, {9, 3}}) {
    for (const double bytes : {8.0, 1e4, 1e6, 1e9}) {
      EXPECT_LE(seconds(ExchangeKind::all_reduce, bytes, span),
                seconds(ExchangeKind::all_gather, bytes, span) + seconds(ExchangeKind::reduce_scatter, bytes, span));
    }
  }
}

TEST(CollectiveTime, MoreBytesTakeLonger) {
  for (const auto kind : kKinds) {
    for (const Span span : {Span{2, 2}, {6, 6}, {4, 1}, {16, 8}, {24, 4}}) {
      double before = 0;
      for (const double bytes : {1.0, 1e3, 1e5, 1e7, 1e9}) {
        EXPECT_GT(seconds(kind, bytes, span), before);
        before = seconds(kind, bytes, span);
      }
    }
  }
}

// Measured by Galvatron on eight A100: 206, 208 and 201 GB/s of bus bandwidth; 1 GB in 8.14 ms, 1 MB in 0.079 ms.
TEST(CollectiveTime, NearMeasuredSumsOfEightA100) {
  const Hardware a100 = find_hardware("a100-80gb");
  for (const auto& [ranks, measured] : std::map<int, double>{{2, 206e9}, {4, 208e9}, {8, 201e9}}) {
    constexpr double kBytes = 1e9;
    const double took = exchange_seconds(ExchangeKind::all_reduce, kBytes, {ranks, ranks}, a100);
    const double bus = 2.0 * (ranks - 1) / ranks * kBytes / took;
    EXPECT_NEAR(bus / measured, 1, 0.08) << ranks;
  }
  EXPECT_NEAR(exchange_seconds(ExchangeKind::all_reduce, 1024e6, {8, 8}, a100), 8.14e-3, 0.05 * 8.14e-3);
  EXPECT_LT(exchange_seconds(ExchangeKind::all_reduce, 1e6, {8, 8}, a100), 79e-6);
}

// There two nodes reach 8.1 GB/s with one pair of cards, through one of four ports, and 44.7 GB/s with all 16.
TEST(CollectiveTime, NearMeasuredSumsOfTwoNodes) {
  Hardware a100 = find_hardware("a100-80gb");
  a100.network.bandwidth = 8.1e9;
  a100.network.efficiency = 4.0 / 8;  // eight cards share four ports
  constexpr double kBytes = 1e9;
  const double took = exchange_seconds(ExchangeKind::all_reduce, kBytes, {16, 8}, a100);
  EXPECT_NEAR(2.0 * 15 / 16 * kBytes / took, 44.7e9, 0.1 * 44.7e9);
}

TEST(SpanOf, FollowsTheOrderOfRanks) {
  const Mesh mesh = Mesh::parse("pp=2,dp=4,tp=4");
  EXPECT_EQ(span_of(mesh, Axis::tp, 8), (Span{4, 4}));
  EXPECT_EQ(span_of(mesh, Axis::dp, 8), (Span{4, 2}));
  EXPECT_EQ(span_of(mesh, Axis::pp, 8), (Span{2, 1}));
  EXPECT_EQ(span_of(mesh, Axis::cp, 8), (Span{1, 1}));
  EXPECT_EQ(span_of(mesh, {Axis::dp, Axis::tp}, 8), (Span{16, 8}));
  EXPECT_EQ(span_of(mesh, Axis::tp, 2), (Span{4, 2}));
  EXPECT_EQ(span_of(mesh, Axis::pp, 32), (Span{2, 2}));
  EXPECT_EQ(span_of(Mesh::parse("pp=2,dp=4,tp=4", "tp,dp,pp"), Axis::tp, 8), (Span{4, 1}));
}

TEST(SpanOf, GroupsThatLieUnevenlyShareByTheirDivisor) {
  EXPECT_EQ(span_of(Mesh::parse("dp=4,tp=6"), Axis::tp, 8), (Span{6, 2}));  // 6; 2 + 4; 4 + 2; 6
  EXPECT_EQ(span_of(Mesh::parse("dp=2,tp=12"), Axis::tp, 8), (Span{12, 4}));
  EXPECT_EQ(span_of(Mesh::parse("dp=3"), Axis::dp, 2), (Span{3, 1}));
}

// The short way and the long one agree.
TEST(SpanOf, CountsRanksOfEveryGroupOnEveryNode) {
  for (const auto* text : {"pp=2,dp=2,tp=4", "dp=4,fsdp=2,tp=2", "pp=4,cp=2,tp=2", "dp=3,tp=4", "fsdp=16", "pp=3,dp=6",
                           "dp=8,tp=2,ep=4", "pp=2,dp=4,ep=4"}) {
    const Mesh mesh = Mesh::parse(text);
    for (const AxisSet axes : {AxisSet{Axis::pp}, AxisSet{Axis::dp}, AxisSet{Axis::tp}, AxisSet{Axis::ep},
                               AxisSet{Axis::dp, Axis::fsdp}, AxisSet{Axis::dp, Axis::fsdp, Axis::cp}}) {
      for (const int cards : {1, 2, 3, 4, 8, 64}) {
        const Span span = span_of(mesh, axes, cards);
        EXPECT_EQ(span.ranks, mesh.group_size(axes));
        EXPECT_EQ(span.ranks % span.per_node, 0);
        int most = 0;
        for (const auto& group : mesh.groups(axes)) {
          std::map<int, int> on_node;
          for (const int rank : group) ++on_node[rank / cards];
          for (const auto& [node, ranks] : on_node) {
            EXPECT_EQ(ranks % span.per_node, 0) << text << " " << axes.name() << " on nodes of " << cards;
            most = std::max(most, ranks);
          }
        }
        if (cards == 1) EXPECT_EQ(span.per_node, 1);
        if (cards == 64) EXPECT_EQ(span.per_node, most);
      }
    }
  }
}

}  // namespace collective_time_test
}  // namespace orthant
