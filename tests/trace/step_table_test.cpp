#include "orthant/trace/step_table.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "orthant/trace/chrome_trace.h"

namespace step_table_test {
namespace {

using namespace orthant::trace;

// Events of a rank in milliseconds.
class Rank {
 public:
  explicit Rank(int rank) { trace_.rank = rank; }

  NamedEvent& add(EventKind kind, const std::string& text, double begin, double end) {
    NamedEvent event;
    event.kind = kind;
    event.text = text;
    event.begin_ns = std::llround(begin * 1e6);
    event.end_ns = std::llround(end * 1e6);
    trace_.events.push_back(event);
    return trace_.events.back();
  }

  void call(const std::string& op, int peer, double begin, double waits, double end) {
    for (const auto kind : {EventKind::exchange, EventKind::wait}) {
      auto& event = kind == EventKind::wait ? add(kind, op, waits, end) : add(kind, op, begin, begin + 0.5);
      event.group_text = "pp/activations@0 0,1";
      event.peer = peer;
      event.bytes = 1000;
    }
  }

  const RankTrace& trace() const { return trace_; }

 private:
  RankTrace trace_;
};

double part(const RankParts& rank, Part which) {
  return 1e3 * rank.seconds[static_cast<std::size_t>(which)];
}

// Rank 1 comes late to an all-reduce: what rank 0 waits until then is not exchange.
std::vector<RankTrace> two_ranks() {
  Rank first(0), second(1);
  for (auto* rank : {&first, &second}) {
    const double late = rank == &first ? 0 : 3;
    rank->add(EventKind::phase, "step", 0, 10);
    rank->add(EventKind::phase, "data", 0, 1);
    auto& action = rank->add(EventKind::action, "F layers.0", 1, 4 + late);
    action.unit = 0;
    auto& product = rank->add(EventKind::operation, "project", 1, 2 + late);
    product.unit = 0;
    product.flops = 4e6;
    product.bytes = 1000;
    rank->add(EventKind::operation, "rms_norm", 2 + late, 3 + late).unit = 0;
    rank->call("all_reduce", -1, 4 + late, 4.5 + late, 9);
    rank->add(EventKind::phase, "update", 9, 10);
  }
  return {first.trace(), second.trace()};
}

TEST(StepTable, PartsAddUpToTheStep) {
  const auto table = step_table(two_ranks(), {"layers.0"}, {});
  ASSERT_EQ(table.ranks.size(), 2U);
  EXPECT_EQ(table.num_steps, 1);
  for (const auto& rank : table.ranks) {
    EXPECT_NEAR(std::accumulate(rank.seconds.begin(), rank.seconds.end(), 0.0), rank.step_seconds, 1e-12);
    EXPECT_NEAR(rank.step_seconds, 0.010, 1e-12);
  }
  const auto& first = table.ranks[0];
  EXPECT_NEAR(part(first, Part::data), 1, 1e-9);
  EXPECT_NEAR(part(first, Part::products), 1, 1e-9);
  EXPECT_NEAR(part(first, Part::other_operations), 1, 1e-9);
  EXPECT_NEAR(part(first, Part::between), 1, 1e-9);
  EXPECT_NEAR(part(first, Part::slower_ranks), 2.5, 1e-9);  // from 4.5 to 7
  EXPECT_NEAR(part(first, Part::exchange), 0.5 + 2, 1e-9);  // its start, and from 7 to 9
  EXPECT_NEAR(part(table.ranks[1], Part::slower_ranks), 0, 1e-9);
  EXPECT_NEAR(part(table.ranks[1], Part::products), 4, 1e-9);
}

TEST(StepTable, RowsHaveRatesAndShares) {
  const auto table = step_table(two_ranks(), {"layers.0"}, {.flops_per_second = 3.2e9, .bytes_per_second = 1e9});
  const auto& product = table.operations.at(1);
  EXPECT_EQ(table.operations[0].name, "all_reduce over pp");
  EXPECT_EQ(product.name, "project");
  EXPECT_EQ(product.calls, 2);
  EXPECT_NEAR(product.seconds, 0.005, 1e-12);
  EXPECT_NEAR(product.share_of_limit(table.limits), 8e6 / 3.2e9 / 0.005, 1e-9);
  ASSERT_EQ(table.units.size(), 1U);
  EXPECT_EQ(table.units[0].name, "layers.0");
  const auto text = to_text(table, 1);
  EXPECT_NE(text.find("and 2 more"), std::string::npos) << text;
  EXPECT_NE(text.find("1 steps of 10 ms on 2 ranks"), std::string::npos) << text;
  EXPECT_EQ(nlohmann::json::parse(to_json(table)).at("ranks").size(), 2U);
}

TEST(StepTable, WaitsForMessagesAreTheBubble) {
  Rank first(0), second(1);
  first.add(EventKind::phase, "work", 0, 10);
  first.call("send", 1, 6, 6.5, 7);
  second.add(EventKind::phase, "work", 0, 10);
  second.call("receive", 0, 1, 2, 8);
  const auto table = step_table({first.trace(), second.trace()}, {}, {});
  EXPECT_NEAR(part(table.ranks[1], Part::other_stages), 6, 1e-9);
  EXPECT_NEAR(part(table.ranks[0], Part::other_stages), 0, 1e-9);
  EXPECT_NEAR(part(table.ranks[0], Part::exchange), 1, 1e-9);
}

TEST(StepTable, ExchangesThatAreHiddenAreCounted) {
  Rank rank(0);
  rank.add(EventKind::phase, "work", 0, 10);
  rank.call("all_gather", -1, 1, 8, 8.5);
  const auto table = step_table({rank.trace()}, {}, {});
  EXPECT_NEAR(1e3 * table.ranks[0].hidden_exchange, 6.5, 1e-9);  // from 1.5 to 8
}

TEST(RankTrace, TravelsAsBytes) {
  auto trace = two_ranks()[1];
  trace.place = "pp=1";
  trace.clock_error_ns = 77;
  const auto back = unpacked(packed(trace));
  EXPECT_EQ(back.place, "pp=1");
  EXPECT_EQ(back.clock_error_ns, 77);
  ASSERT_EQ(back.events.size(), trace.events.size());
  for (std::size_t i = 0; i < back.events.size(); ++i) {
    EXPECT_EQ(back.events[i].text, trace.events[i].text);
    EXPECT_EQ(back.events[i].group_text, trace.events[i].group_text);
    EXPECT_EQ(back.events[i].begin_ns, trace.events[i].begin_ns);
    EXPECT_EQ(back.events[i].flops, trace.events[i].flops);
  }
}

TEST(ChromeTrace, DrawsArrowsFromTheLastMemberAndFromSends) {
  auto ranks = two_ranks();
  Rank third(2);
  third.call("send", 3, 1, 2, 3);
  Rank fourth(3);
  fourth.call("receive", 2, 0, 1, 4);
  ranks.push_back(third.trace());
  ranks.push_back(fourth.trace());
  const auto document = nlohmann::json::parse(chrome_trace(ranks));
  std::vector<std::pair<int, std::string>> from, to;
  for (const auto& event : document.at("traceEvents")) {
    if (event.at("ph") == "s") from.emplace_back(event.at("pid"), event.at("name"));
    if (event.at("ph") == "f") to.emplace_back(event.at("pid"), event.at("name"));
  }
  EXPECT_EQ(from, (std::vector<std::pair<int, std::string>>{{1, "last to come"}, {2, "message"}}));
  EXPECT_EQ(to, (std::vector<std::pair<int, std::string>>{{0, "last to come"}, {3, "message"}}));
}

}  // namespace
}  // namespace step_table_test
