// The parts of the search, each against what it abbreviates.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "orthant/plan/estimate/rank_step.h"
#include "orthant/plan/search/engine.h"
#include "orthant/schedule/named_schedules.h"
#include "orthant/schedule/stage_split.h"

namespace orthant {
namespace prices_test {

SearchRequest request_for(const std::string& model, int cards, std::int64_t global_batch, std::int64_t sequence) {
  SearchRequest request;
  request.model = find_plan_model(model);
  request.hardware = find_hardware("h100-80gb");
  request.cards = cards;
  request.global_batch = global_batch;
  request.sequence = sequence;
  return request;
}

// Bytes that a rank keeps at the worst moment of its list, when stages keep and defer so much.
double walked_peak(const std::vector<StageAction>& actions, const std::vector<double>& kept,
                   const std::vector<double>& deferred) {
  double now = 0;
  double peak = 0;
  for (const StageAction& action : actions) {
    const auto stage = static_cast<std::size_t>(action.stage);
    if (action.kind == StageKind::F) now += kept[stage];
    if (action.kind == StageKind::B || action.kind == StageKind::BW) now -= kept[stage];
    if (action.kind == StageKind::B) now += deferred[stage];
    if (action.kind == StageKind::W) now -= deferred[stage];
    peak = std::max(peak, now);
  }
  return peak;
}

double moments_peak(const HeldMoments& moments, const std::vector<double>& kept, const std::vector<double>& deferred,
                    const std::vector<std::size_t>& stages) {
  double peak = 0;
  for (const HeldMoment& moment : moments) {
    double now = 0;
    for (std::size_t i = 0; i < stages.size(); ++i) {
      now += moment.stages[i].whole * kept[stages[i]] + moment.stages[i].deferred * deferred[stages[i]];
    }
    peak = std::max(peak, now);
  }
  return peak;
}

// Of every pp coordinate, for stages that weigh alike but for the first and the last.
void expect_peaks(const ScheduleChoice& schedule, int pp, int microbatches, TableCache& cache, double first,
                  double last, double waiting) {
  const Schedule made = make_schedule(schedule.name, pp, schedule.virtual_stages, microbatches);
  std::vector<double> kept(made.pp_coordinates.size(), 1);
  kept.front() = first;
  kept.back() = last;
  const std::vector<double> deferred(made.pp_coordinates.size(), waiting);
  const auto& moments = cache.moments(schedule, pp, microbatches, {});
  for (int r = 0; r < pp; ++r) {
    std::vector<std::size_t> stages;
    for (std::size_t s = 0; s < made.pp_coordinates.size(); ++s) {
      if (made.pp_coordinates[s] == r) stages.push_back(s);
    }
    const auto pp_coordinate = static_cast<std::size_t>(r);
    const double exact = walked_peak(made.table.actions[pp_coordinate], kept, deferred);
    const double found = moments_peak(moments[pp_coordinate], kept, deferred, stages);
    EXPECT_LE(found, exact + 1e-9) << schedule.name << " " << pp << " " << microbatches << " pp " << r;
    EXPECT_GE(found, 0.97 * exact) << schedule.name << " " << pp << " " << microbatches << " pp " << r;
  }
}

TEST(SearchTables, HoldWhatTheTableHolds) {
  const SearchModel model(find_plan_model("llama-tiny"), 16, DType::bfloat16);
  TableCache cache(model);
  for (const int pp : {2, 3, 4, 8}) {
    for (const ScheduleChoice& schedule : schedule_choices(pp, 5 * pp)) {
      for (const int microbatches : {1, 2, 5, 8, 33, 70}) {
        expect_peaks(schedule, pp, microbatches, cache, 1, 1, 0.5);
        expect_peaks(schedule, pp, microbatches, cache, 1, 1, 3);
        expect_peaks(schedule, pp, microbatches, cache, 1.5, 1, 0.9);
        expect_peaks(schedule, pp, microbatches, cache, 1, 2, 0.9);
      }
    }
  }
}

void expect_likenesses(const std::string& name, int tp, bool on_host) {
  const PlanModel plan_model = find_plan_model(name);
  const SearchModel model(plan_model, 64, DType::bfloat16, on_host);
  PlanSettings settings;
  settings.mesh = Mesh({{Axis::tp, tp}});
  settings.sequence = 64;
  settings.on_host = on_host;
  const WorkSize work{.rows = 1, .sequence = 64, .compute = DType::bfloat16, .tensor = sharing_of({}, tp)};
  const auto few = program_work(model.resolved(settings), settings);
  const auto all = program_work(trained_graph(build_spec(*plan_model.config, work), settings), settings);
  ASSERT_EQ(static_cast<int>(all.size()), model.num_units()) << name << " tp " << tp;
  EXPECT_LT(few.size(), all.size());
  for (int u = 0; u < model.num_units(); ++u) {
    const UnitWork& like = few[static_cast<std::size_t>(model.standing_for(u))];
    const UnitWork& unit = all[static_cast<std::size_t>(u)];
    EXPECT_EQ(like.parameters, unit.parameters) << unit.name;
    EXPECT_EQ(like.borrowed, unit.borrowed) << unit.name;
    EXPECT_EQ(like.kept_bytes, unit.kept_bytes) << unit.name;
    EXPECT_EQ(like.in_forward.has_value(), unit.in_forward.has_value()) << unit.name;
    EXPECT_EQ(like.attention_flops, unit.attention_flops) << unit.name;
    EXPECT_EQ(like.forward_exchanges.size(), unit.forward_exchanges.size()) << unit.name;
  }
}

TEST(SearchModel, FewUnitsStandForAll) {
  for (const char* name : {"gpt2", "llama3-8b", "bert-base-uncased", "encoder-lm", "trimodal-16"}) {
    for (const int tp : {1, 2}) {
      for (const bool on_host : {false, true}) expect_likenesses(name, tp, on_host);
    }
  }
}

TEST(SearchModel, CompilesEachProgramOnceForAllMicrobatches) {
  for (const char* name : {"llama3-8b", "gpt2", "trimodal-16"}) {
    SearchRequest request;
    request.model = find_plan_model(name);
    request.hardware = find_hardware("h100-80gb");
    request.sequence = 64;
    PriceBook book(request);
    book.sized({.tensor = {.tp = 2}}, 1);
    const int compiled = book.model().programs()->compiled();
    for (const std::int64_t rows : {2, 4, 8, 16}) book.sized({.tensor = {.tp = 2}}, rows);
    EXPECT_EQ(book.model().programs()->compiled(), compiled) << name;
  }
}

TEST(SearchModel, CutsAreThoseOfTheWholeGraph) {
  for (const char* name : {"llama3-8b", "gpt2", "trimodal-16", "bert-base-uncased"}) {
    const SearchModel model(find_plan_model(name), 64, DType::bfloat16);
    CutCache cuts(model);
    PlanSettings settings;
    settings.sequence = 64;
    const GraphSpec resolved = model.resolved(settings);
    for (int stages = 1; stages <= model.most_stages(); ++stages) {
      const StageMap map = stage_map(cuts.cut(resolved, stages), {});
      EXPECT_EQ(map.units, split_stages(model.graph(), stages).map.units) << name << " " << stages;
    }
  }
}

TEST(SearchModel, KnowsItsShape) {
  EXPECT_TRUE(SearchModel(find_plan_model("llama3-8b"), 64, DType::bfloat16).is_chain());
  EXPECT_FALSE(SearchModel(find_plan_model("trimodal-tiny"), 64, DType::bfloat16).is_chain());
  const SearchModel gpt2(find_plan_model("gpt2"), 64, DType::bfloat16);
  EXPECT_EQ(gpt2.lenders().size(), 1U);  // the head borrows the table
  EXPECT_TRUE(gpt2.fits_tensor(6));
  EXPECT_FALSE(gpt2.fits_tensor(8));
}

TEST(SearchSpace, HoldsWhatSchedulesAllow) {
  EXPECT_EQ(divisors(12), (std::vector<std::int64_t>{1, 2, 3, 4, 6, 12}));
  for (const ScheduleChoice& choice : schedule_choices(4, 14)) {
    EXPECT_EQ(virtual_stages(choice.name, choice.virtual_stages), choice.virtual_stages);
    EXPECT_LE(4 * choice.virtual_stages, 14);
  }
  EXPECT_EQ(schedule_choices(4, 14).size(), 6U);  // three with one stage, zbv, interleaved with 2 and 3
  EXPECT_EQ(schedule_choices(1, 14).size(), 1U);
  EXPECT_EQ(data_choices(4).size(), 11U);  // dp=4, and five ways for fsdp of 2 and of 4
  EXPECT_EQ(tensor_choices(1).size(), 1U);
  EXPECT_EQ(tensor_choices(8).size(), 3U);
}

// What the closed forms say of a sample, beside what estimate() says: memory is hardly ever above, and time near.
void expect_near_estimates(const SearchRequest& request, std::size_t stride) {
  const Stack stack = find_stack("orthant");
  const auto points = SearchEngine(request).run().points;
  ASSERT_GT(points.size(), 100U);
  double error = 0;
  double compared = 0;
  for (std::size_t i = 0; i < points.size(); i += stride) {
    const PricedPoint& point = points[i];
    const Plan plan = estimate(request.model, settings_of(point, request), request.hardware, stack);
    const auto memory = static_cast<double>(plan.peak_bytes());
    const std::string what = train_words(plan.settings);
    EXPECT_LE(point.memory_bytes, memory * 1.01) << what;  // the search keeps what is so far beyond a card
    EXPECT_GE(point.memory_bytes, memory * 0.9) << what;
    const double faster = point.tokens_per_second_per_gpu / plan.tokens_per_second_per_gpu;
    EXPECT_NEAR(faster, 1, 0.12) << what;
    error += std::abs(faster - 1);
    ++compared;
  }
  EXPECT_LT(error / compared, 0.025);
}

TEST(SearchPrices, FollowEstimates) {
  expect_near_estimates(request_for("llama3-8b", 8, 64, 4096), 37);
  expect_near_estimates(request_for("gpt2-xl", 16, 64, 1024), 41);
  expect_near_estimates(request_for("bert-large-cased", 8, 48, 512), 43);
}

TEST(SearchPrices, SimulateWhatEstimatesSimulate) {
  const auto request = request_for("llama3-8b", 16, 512, 2048);
  SearchEngine engine(request);
  const Stack stack = find_stack("orthant");
  const auto best = engine.run().best;
  for (std::size_t i = 0; i < best.size(); i += 50) {
    const Plan plan = estimate(request.model, settings_of(best[i].point, request), request.hardware, stack);
    EXPECT_NEAR(engine.prices().simulated_seconds(best[i].point) / simulate_plan(plan).makespan, 1, 2e-3)
        << train_words(plan.settings);
  }
}

}  // namespace prices_test
}  // namespace orthant
