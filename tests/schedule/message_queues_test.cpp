// check_queues() against a simulated NCCL: on random schedules, meshes and ways to share communicators the verdicts
// must be the same. The variable ORTHANT_QUEUES says how many are judged: 2000 unless given.
#include "orthant/schedule/message_queues.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "orthant/schedule/validate.h"
#include "schedule/random_cases.h"
#include "schedule/simulated_nccl.h"

namespace orthant {
namespace message_queues_test {

using test::Case;
using test::draw;
using test::lower_all;
using test::NcclEnd;
using test::SimulatedNccl;
using test::verdict;

int num_cases() {
  const char* text = std::getenv("ORTHANT_QUEUES");
  return text == nullptr ? 2000 : std::atoi(text);
}

// Parameters sharded over the replicas: gathers somewhere before the units that compute with them.
void add_gathers(std::vector<std::vector<Action>>& lists, std::mt19937& random) {
  for (auto& list : lists) {
    std::vector<Action> with;
    for (std::size_t i = 0; i < list.size(); ++i) {
      const bool computes = list[i].kind == ActionKind::forward || list[i].kind == ActionKind::backward ||
                            list[i].kind == ActionKind::backward_input;
      if (computes && draw(random, 2) == 0) {
        const auto early = std::min<std::size_t>(with.size(), static_cast<std::size_t>(draw(random, 4)));
        with.insert(with.end() - static_cast<std::ptrdiff_t>(early),
                    {.kind = ActionKind::gather, .unit = list[i].unit});
      }
      with.push_back(list[i]);
    }
    list = std::move(with);
  }
}

QueueRules random_rules(std::mt19937& random) {
  QueueRules rules;
  rules.carrier = static_cast<MessageCarrier>(draw(random, 3));
  rules.posted_ahead = static_cast<std::size_t>(draw(random, 4));
  rules.joins_calls = draw(random, 2) == 0;
  rules.replicas = 1 + draw(random, 3);
  return rules;
}

// Swaps two calls that a host starts one after the other on different communicators, as an unlucky program would.
void shuffle_starts(QueuePrograms& programs, std::mt19937& random) {
  for (int times = draw(random, 4); times > 0; --times) {
    auto& rank = programs.ranks[static_cast<std::size_t>(draw(random, static_cast<int>(programs.ranks.size())))];
    if (rank.steps.size() < 2) continue;
    const auto place = static_cast<std::size_t>(draw(random, static_cast<int>(rank.steps.size()) - 1));
    auto& a = rank.steps[place];
    auto& b = rank.steps[place + 1];
    if (a.kind == HostStep::Kind::start && b.kind == HostStep::Kind::start) {
      std::swap(rank.calls[to_index(a.call)], rank.calls[to_index(b.call)]);
      for (auto& step : rank.steps) {
        if (step.kind != HostStep::Kind::await) continue;
        const int call = step.call;
        if (call == a.call) step.call = b.call;
        if (call == b.call) step.call = a.call;
      }
    }
  }
}

std::string describe(const Case& c, const QueueRules& rules) {
  return fmt::format("carrier {}, {} ahead, {}, {} replicas\n{}", static_cast<int>(rules.carrier), rules.posted_ahead,
                     rules.joins_calls ? "joined" : "single", rules.replicas, test::describe(c));
}

TEST(MessageQueues, AreJudgedAsASimulatedNcclRunsThem) {
  std::mt19937 random(29);
  int sound = 0;
  int deadlocks = 0;
  int wrong = 0;
  const int count = num_cases();
  for (int i = 0; i < count; ++i) {
    const Case c = test::random_case(random);
    auto lists = lower_all(c);
    add_gathers(lists, random);
    const auto rules = random_rules(random);
    auto programs = queue_programs(lists, c.graph, rules);
    if (draw(random, 3) == 0) shuffle_starts(programs, random);
    const auto fault = verdict([&] { check_queues(programs); });
    const auto end = SimulatedNccl(programs, random).run();
    ASSERT_EQ(fault.empty(), end == NcclEnd::done) << "case " << i << ": " << fault << "\n" << describe(c, rules);
    if (fault.empty()) ++sound;
    if (fault.starts_with("deadlock")) ++deadlocks;
    if (end == NcclEnd::wrong_message) ++wrong;
  }
  EXPECT_GT(sound, count / 10);
  EXPECT_GT(deadlocks, count / 20);
  EXPECT_GT(wrong, count / 200);
  std::printf("%d schedules: %d sound, %d deadlocks, %d with messages that meet others, 0 disagreements\n", count,
              sound, deadlocks, wrong);
}

TEST(MessageQueues, EveryValidScheduleEndsWithACommunicatorForEachChannel) {
  std::mt19937 random(30);
  for (int i = 0; i < num_cases(); ++i) {
    const Case c = test::random_case(random);
    auto lists = lower_all(c);
    validate_actions(lists, c.graph, c.table.num_microbatches);
    add_gathers(lists, random);
    QueueRules rules = random_rules(random);
    rules.carrier = MessageCarrier::channel;
    rules.joins_calls = false;
    const auto programs = queue_programs(lists, c.graph, rules);
    ASSERT_EQ(verdict([&] { check_queues(programs); }), "") << describe(c, rules);
    ASSERT_EQ(SimulatedNccl(programs, random).run(), NcclEnd::done) << describe(c, rules);
  }
}

// The calls of attention over cp by a ring, as ops/attention/context_ring.cpp makes them: keys and values go to every
// other rank, one step ahead of what is computed, and in backward their gradients come back on the same lines.
class Ring {
 public:
  Ring(int degree, bool shared) : degree_(degree), shared_(shared) {
    for (int rank = 0; rank < degree; ++rank) programs_.ranks.emplace_back();
    if (shared) {
      auto& members = programs_.communicators.emplace_back();
      for (int rank = 0; rank < degree; ++rank) members.push_back(rank);
      return;
    }
    for (int from = 0; from < degree; ++from) {
      for (int to = 0; to < degree; ++to) programs_.communicators.push_back({from, to});
    }
  }

  void layer(bool backward) {
    for (int rank = 0; rank < degree_; ++rank) layer_of(rank, backward);
    ++layers_;
  }

  const QueuePrograms& programs() {
    for (auto& rank : programs_.ranks) {
      for (int call = 0; call < static_cast<int>(rank.calls.size()); ++call) {
        rank.steps.push_back({HostStep::Kind::await, call});
      }
    }
    return programs_;
  }

 private:
  int reader(int rank, int step) const { return (rank + step) % degree_; }
  int holder(int rank, int step) const { return (rank - step + degree_) % degree_; }

  int start(int rank, int from, int to, const char* what) {
    auto& program = programs_.ranks[to_index(rank)];
    const auto name = fmt::format("{} {} {}-{}", what, layers_, from, to);
    auto found = std::ranges::find(programs_.contents, name);
    if (found == programs_.contents.end()) found = programs_.contents.insert(found, name);
    const int content = static_cast<int>(found - programs_.contents.begin());
    const bool sends = rank == from;
    program.calls.push_back(
        {shared_ ? 0 : from * degree_ + to, {{.peer = sends ? to : from, .sends = sends, .content = content}}});
    const int call = static_cast<int>(program.calls.size()) - 1;
    program.steps.push_back({HostStep::Kind::start, call});
    return call;
  }

  int start_values(int rank, int step) {
    const int arriving = start(rank, holder(rank, step), rank, "values");
    start(rank, rank, reader(rank, step), "values");
    return arriving;
  }

  void layer_of(int rank, bool backward) {
    auto& steps = programs_.ranks[to_index(rank)].steps;
    std::vector<int> returning;
    int next = start_values(rank, 1);
    steps.push_back({HostStep::Kind::compute, -1});
    for (int step = 1; step < degree_; ++step) {
      const int here = next;
      if (step + 1 < degree_) next = start_values(rank, step + 1);
      if (backward) returning.push_back(start(rank, reader(rank, step), rank, "gradients"));
      steps.push_back({HostStep::Kind::await, here});
      steps.push_back({HostStep::Kind::compute, -1});
      if (!backward) continue;
      start(rank, rank, holder(rank, step), "gradients");
      if (returning.size() > 1) steps.push_back({HostStep::Kind::await, returning[returning.size() - 2]});
    }
    if (!returning.empty()) steps.push_back({HostStep::Kind::await, returning.back()});
  }

  int degree_;
  bool shared_;
  int layers_ = 0;
  QueuePrograms programs_;
};

TEST(MessageQueues, RingsOfAnyDegreeEndWithACommunicatorForEachDirectedPair) {
  std::mt19937 random(31);
  for (int degree = 2; degree <= 8; ++degree) {
    Ring ring(degree, /*shared=*/false);
    for (const bool backward : {false, false, true, true}) ring.layer(backward);
    const auto& programs = ring.programs();
    EXPECT_EQ(verdict([&] { check_queues(programs); }), "") << degree;
    EXPECT_EQ(SimulatedNccl(programs, random).run(), NcclEnd::done) << degree;
  }
}

TEST(MessageQueues, RingsHangOverOneCommunicator) {
  std::mt19937 random(32);
  for (int degree = 2; degree <= 8; ++degree) {
    Ring ring(degree, /*shared=*/true);
    ring.layer(/*backward=*/false);
    const auto& programs = ring.programs();
    EXPECT_TRUE(verdict([&] { check_queues(programs); }).starts_with("deadlock")) << degree;
    EXPECT_EQ(SimulatedNccl(programs, random).run(), NcclEnd::hangs) << degree;
  }
}

// embed | head, loss on two pp coordinates, two microbatches, 1f1b: both sides post the receives of a step when it
// begins, and on one communicator for both directions neither gets to its send.
class TwoStages : public testing::Test {
 protected:
  std::vector<std::vector<Action>> lists() const {
    return lower_all({graph, map, make_schedule("1f1b", map, graph, 2)});
  }

  GraphSpec graph = test::chain(0);
  StageMap map = even_stages(graph, 2);
};

TEST_F(TwoStages, HangOverOneCommunicatorWhenReceivesAreEarly) {
  const QueueRules rules{.carrier = MessageCarrier::pair};
  std::mt19937 random(1);
  EXPECT_EQ(SimulatedNccl(queue_programs(lists(), graph, rules), random).run(), NcclEnd::hangs);
  EXPECT_EQ(
      verdict([&] { validate_queues(lists(), graph, rules); }),
      "deadlock: rank 0 in \"receive gradient of embed.out m0 of head from rank 1\", rank 1 in \"send gradient of "
      "embed.out m0 of head to rank 0\", rank 1 in \"receive embed.out m0 from rank 0\", rank 0 in \"send embed.out "
      "m0 to rank 1\", rank 0 in \"receive gradient of embed.out m1 of head from rank 1\" wait for each other in "
      "the queues of their communicators");
}

TEST_F(TwoStages, EndWithACommunicatorForEachDirection) {
  EXPECT_NO_THROW(validate_queues(lists(), graph, {}));
}

TEST_F(TwoStages, NeedAConnectionForEachChannel) {
  const std::vector<Channel> expected{{0, 1, false}, {1, 0, true}};
  EXPECT_EQ(channels_of(lists()), expected);
}

}  // namespace message_queues_test
}  // namespace orthant
