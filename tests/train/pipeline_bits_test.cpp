// A model with skips, fan-out, two losses, an integer edge and a shared table trains under every schedule with the bits
// of one rank.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "orthant/files/whole_file.h"
#include "orthant/schedule/named_schedules.h"
#include "schedule/csv_table.h"
#include "train/branching_model.h"
#include "train/trainers_on_ranks.h"
#include "train/training_ranks.h"

namespace orthant {
namespace pipeline_bits_test {

using test::Outcome;

constexpr int kSteps = 5;

Outcome outcome_of(const Mesh& mesh, const TrainerOptions& options, int users) {
  const auto graph = test::branching_spec(users);
  std::mutex mutex;
  std::vector<Outcome> found;
  test::on_trainers(graph, test::branching_units, mesh, options, [&](Trainer& trainer) {
    auto outcome = test::train_steps(trainer, test::branching_batch(), kSteps);
    const std::lock_guard lock(mutex);
    found.push_back(std::move(outcome));
  });
  for (const auto& other : found) EXPECT_EQ(other, found.front()) << "ranks disagree";
  return found.front();
}

// Of one rank with as many microbatches and one stage.
const Outcome& expected_outcome(int microbatches, int users) {
  static std::map<std::pair<int, int>, Outcome> known;
  const std::pair key(microbatches, users);
  if (!known.contains(key)) known[key] = outcome_of(Mesh(), test::branching_options(microbatches), users);
  return known.at(key);
}

// All forwards, then all input gradients, then all weight gradients, the first rank's as soon as it can.
StageTable hand_made_table(int ranks, int microbatches) {
  StageTable table{.num_stages = ranks, .num_microbatches = microbatches, .actions = {}};
  for (int rank = 0; rank < ranks; ++rank) {
    auto& list = table.actions.emplace_back();
    for (int m = 0; m < microbatches; ++m) list.push_back({rank, StageKind::F, m});
    for (int m = 0; m < microbatches; ++m) list.push_back({rank, rank == 0 ? StageKind::BW : StageKind::B, m});
    for (int m = 0; m < microbatches && rank > 0; ++m) list.push_back({rank, StageKind::W, m});
  }
  return table;
}

struct Case {
  int pp;
  std::string schedule;
  friend std::ostream& operator<<(std::ostream& out, const Case& one) {
    return out << "pp=" << one.pp << " " << one.schedule;
  }
};

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const int pp : {2, 3, 4}) {
    for (const auto& schedule : schedule_names()) cases.push_back({pp, schedule});
    cases.push_back({pp, "file"});
  }
  return cases;
}

class PipelineBits : public testing::TestWithParam<Case> {};

// Looped schedules put the users of a table on ranks in another order than that of units: one of three users would be
// added in another order there, one of two is not.
int users_of(const std::string& schedule) {
  return schedule == "interleaved" || schedule == "zbv" ? 2 : 3;
}

TEST_P(PipelineBits, AreThoseOfOneRank) {
  const auto& [pp, schedule] = GetParam();
  const TestFolder folder("orthant-pipeline-bits");
  for (const int microbatches : {1, 3, 4}) {
    SCOPED_TRACE(std::to_string(microbatches) + " microbatches");
    auto options = test::branching_options(microbatches);
    options.stages.schedule = schedule;
    int stages = pp;
    if (schedule != "file") {
      stages *= virtual_stages(schedule);
    } else {
      options.stages.schedule = (folder.path / "table.csv").string();
      write_file_atomically(options.stages.schedule, test::csv_table(hand_made_table(pp, microbatches)));
    }
    options.stages.split = test::branching_split(stages);
    const auto found = outcome_of(Mesh(Degrees{{Axis::pp, pp}}), options, users_of(schedule));
    EXPECT_EQ(found, expected_outcome(microbatches, users_of(schedule)));
  }
}

INSTANTIATE_TEST_SUITE_P(Schedules, PipelineBits, testing::ValuesIn(all_cases()), [](const auto& info) {
  return "pp" + std::to_string(info.param.pp) + (info.param.schedule == "1f1b" ? "one_f_one_b" : info.param.schedule);
});

// What the cases above rely on.
TEST(PipelineBits, TheModelIsClippedAndItsStagesAreBranched) {
  for (const int microbatches : {1, 3, 4}) {
    const auto& expected = expected_outcome(microbatches, 3);
    for (const double norm : expected.norms) EXPECT_GT(norm, test::branching_options(1).optimizer.clip);
    EXPECT_LT(expected.losses.back(), expected.losses.front());
  }
  EXPECT_NE(expected_outcome(3, 3).hash, expected_outcome(4, 3).hash) << "rows are padded alike";
  const auto graph = test::branching_spec(3);
  const auto map = named_stages(graph, test::branching_split(4));
  const auto stages_of = [&](const std::vector<int>& units) {
    std::set<int> stages;
    for (int s = 0; s < map.num_stages(); ++s) {
      for (const int unit : map.units[static_cast<std::size_t>(s)]) {
        if (std::ranges::find(units, unit) != units.end()) stages.insert(s);
      }
    }
    return stages;
  };
  EXPECT_EQ(stages_of(graph.consumers("a")), (std::set<int>{0, 1, 2, 3}));
  EXPECT_EQ(stages_of(graph.consumers("x")), (std::set<int>{0, 3}));
  EXPECT_EQ(stages_of(graph.consumers("codes")), (std::set<int>{3}));
  EXPECT_EQ(stages_of(graph.users("embed.weight")), (std::set<int>{0, 1, 3}));
  EXPECT_EQ(stages_of({graph.unit_index("side"), graph.unit_index("loss")}), (std::set<int>{1, 3}));
}

TEST(PipelineBits, OfRecomputedLayersAreThoseOfOneRank) {
  for (const char* schedule : {"1f1b", "zbh1"}) {
    auto options = test::branching_options(4);
    options.stages = {.schedule = schedule, .split = test::branching_split(3)};
    options.recompute = Recompute::full;
    EXPECT_EQ(outcome_of(Mesh::parse("pp=3"), options, 3), expected_outcome(4, 3)) << schedule;
  }
}

// Gloo carries the same values; a sum of two is the same in either order.
TEST(PipelineBits, OverGlooAreThoseOfOneRank) {
  auto options = test::branching_options(3);
  options.stages.split = test::branching_split(2);
  auto comm = test::quick_comm();
  comm.backend = comm::BackendKind::gloo;
  const auto& expected = expected_outcome(3, 3);
  const auto body = [&](Trainer& trainer) {
    EXPECT_EQ(test::train_steps(trainer, test::branching_batch(), kSteps), expected);
  };
  test::on_trainers(test::branching_spec(3), test::branching_units, Mesh::parse("pp=2"), options, body, comm);
}

// Without a shared table, whose uses are added before replicas on one stage and after them on several.
TEST(PipelineBits, OfReplicasAreThoseOfReplicasWithoutStages) {
  auto options = test::branching_options(2);
  options.pad_to_longest = false;
  const auto expected = outcome_of(Mesh::parse("dp=2"), options, 1);
  options.stages.split = test::branching_split(2);
  for (const char* order : {"pp,dp,fsdp,cp,tp", "dp,pp,fsdp,cp,tp"}) {
    EXPECT_EQ(outcome_of(Mesh::parse("pp=2,dp=2", order), options, 1), expected) << order;
  }
}

}  // namespace pipeline_bits_test
}  // namespace orthant
