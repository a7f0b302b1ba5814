// The walk over a list against the formulas, for the models we build and for random graphs and schedules.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "orthant/base/error.h"
#include "orthant/layout/unit_groups.h"
#include "orthant/models/encoder_lm/config.h"
#include "orthant/models/gpt2/config.h"
#include "orthant/models/llama/config.h"
#include "orthant/models/presets.h"
#include "orthant/models/trimodal/config.h"
#include "orthant/plan/estimate/data_state.h"
#include "orthant/plan/estimate/data_traffic.h"
#include "orthant/schedule/pipeline.h"
#include "plan/estimate/data_graphs.h"
#include "plan/estimate/one_stage_traffic.h"
#include "schedule/random_tables.h"

namespace orthant {
namespace data_property_test {

using test::draw;

std::vector<GraphSpec> models() {
  WorkSize work;
  work.rows = 2;
  work.sequence = 4;
  LlamaConfig llama = llama_preset("llama-tiny");
  llama.tie_word_embeddings = false;
  Gpt2Config gpt2 = gpt2_preset("gpt2-tiny");
  gpt2.tie_word_embeddings = false;
  return {llama_spec(llama, work), gpt2_spec(gpt2, work), encoder_lm_spec(encoder_lm_preset("encoder-lm-tiny"), work),
          trimodal_spec(trimodal_preset("trimodal-tiny"), work)};
}

DataSettings random_settings(const GraphSpec& graph, std::mt19937& random) {
  DataSettings settings;
  settings.mesh = Mesh({{Axis::dp, 1 + draw(random, 3)}, {Axis::fsdp, 1 + draw(random, 4)}});
  const int zero = draw(random, 4);
  settings.policy = effective_policy({.zero = zero,
                                      .accumulate_sharded = zero >= 2 && draw(random, 2) == 0,
                                      .limit_all_gathers = 1 + draw(random, 6),
                                      .keep_gathered = draw(random, 4) == 0,
                                      .bucket_bytes = draw(random, 6) * 100'000,
                                      .offload = Offload::none},
                                     settings.mesh);
  settings.compute = draw(random, 2) == 0 ? DType::float32 : DType::bfloat16;
  settings.bf16_hook = draw(random, 3) == 0;
  settings.microbatches = 1 + draw(random, 3);
  if (draw(random, 2) == 0) {
    settings.unit_groups =
        unit_groups(graph, {.kind = UnitGrouping::Kind::min_params, .min_params = draw(random, 200'000), .names = {}});
  }
  return settings;
}

std::string describe(const GraphSpec& graph, const DataSettings& settings) {
  return fmt::format("{} on {}, zero {}, {} microbatches{}{}, limit {}, buckets of {}, {} groups", graph.name,
                     settings.mesh.to_string(), settings.policy.zero, settings.microbatches,
                     settings.policy.accumulate_sharded ? " in shards" : "",
                     settings.policy.keep_gathered ? ", kept" : "", settings.policy.limit_all_gathers,
                     settings.policy.bucket_bytes, settings.unit_groups.empty() ? 0 : settings.unit_groups.back() + 1);
}

TEST(DataProperty, EmbeddingsThatOnlyLookUpAreNotReadInBackward) {
  for (const GraphSpec& graph : models()) {
    for (const UnitSpec& unit : graph.units) {
      const bool looks_up = unit.name == "embed";  // those of BERT towers are "primary.embed" and have a norm
      EXPECT_EQ(unit.backward_reads_parameters, !looks_up) << graph.name << " " << unit.name;
    }
  }
}

TEST(DataProperty, TheWalkAgreesWithTheFormulasOnEveryModel) {
  std::mt19937 random(75);
  for (const GraphSpec& graph : models()) {
    for (int trial = 0; trial < 150; ++trial) {
      const auto settings = random_settings(graph, random);
      SCOPED_TRACE(describe(graph, settings));
      const auto actions = test::one_stage_actions(graph, settings);
      const auto walked = data_traffic(graph, settings, actions);
      const auto formula = test::one_stage_traffic(graph, settings);
      EXPECT_EQ(walked.gather.calls, formula.gather.calls);
      EXPECT_EQ(walked.gather.bytes, formula.gather.bytes);
      EXPECT_EQ(walked.scatter.calls, formula.scatter.calls);
      EXPECT_EQ(walked.scatter.bytes, formula.scatter.bytes);
      EXPECT_EQ(walked.sum.calls, formula.sum.calls);
      EXPECT_EQ(walked.sum.bytes, formula.sum.bytes);
    }
  }
}

TEST(DataProperty, ShardsOfAllRanksMakeTheWholeState) {
  for (const GraphSpec& graph : models()) {
    for (const int degree : {2, 3, 4, 8}) {
      const auto state = [&](int zero) {
        return data_state(graph, test::settings_of(fmt::format("dp=2,fsdp={}", degree), zero));
      };
      SCOPED_TRACE(fmt::format("{} over {} shards", graph.name, degree));
      EXPECT_EQ(degree * state(3).total(), state(0).total());
      EXPECT_EQ(degree * state(3).parameters, state(0).compute);
      EXPECT_EQ(degree * state(2).gradients, state(1).gradients);
      for (int zero = 1; zero <= 3; ++zero) {
        EXPECT_EQ(degree * state(zero).optimizer, state(0).optimizer);
        EXPECT_LT(state(zero).total(), state(zero - 1).total());
      }
      EXPECT_GE(state(0).total(), 16 * graph.num_parameters());
    }
  }
}

// Whatever the graph, its ties and the schedule: gradients of every trainable buffer travel once a step (or
// microbatch), no more is ever full than everything, and no less than the largest group that is used.
TEST(DataProperty, RandomSchedulesMoveEveryGradientOnceAndKeepTheirPeaksWithinTheWhole) {
  std::mt19937 random(76);
  int refused = 0;
  for (int trial = 0; trial < 300; ++trial) {
    const GraphSpec graph = test::random_graph(random);
    auto settings = random_settings(graph, random);
    SCOPED_TRACE(fmt::format("trial {}: {}", trial, describe(graph, settings)));
    StageMap map = test::random_stages(graph, random);
    map = on_one_pp_coordinate(std::move(map));
    const StageTable table = test::TableDraw(graph, map, settings.microbatches, 50, random).table();
    const auto lowered = lower(table, map, graph, 0);
    std::vector<Action> actions;
    try {
      actions = data_actions(lowered, graph, settings);
    } catch (const ConfigError&) {  // units of one group that this schedule does not finish together
      ++refused;
      settings.unit_groups.clear();
      actions = data_actions(lowered, graph, settings);
    }
    const auto traffic = data_traffic(graph, settings, actions);
    const auto peaks = data_peaks(graph, settings, actions);
    std::int64_t trainable = 0;
    std::int64_t uses = 0;
    std::int64_t all = 0;
    for (const FlatBuffer& buffer : unit_buffers(graph, settings.mesh, {}, settings.unit_groups).all) {
      all += buffer.size;
      if (buffer.trainable) trainable += buffer.size;
      if (buffer.trainable) uses += buffer.size * static_cast<std::int64_t>(buffer.users.size());
    }
    const bool sharded = settings.policy.shards_state();
    const std::int64_t element = settings.bf16_hook ? 2 : 4;
    const int times = settings.policy.accumulate_sharded ? settings.microbatches : 1;
    EXPECT_EQ(traffic.scatter.bytes, sharded ? times * trainable * element : 0);
    const bool replicas = settings.mesh.degree(Axis::dp) > 1 || (!sharded && settings.mesh.degree(Axis::fsdp) > 1);
    const std::int64_t shards = sharded ? settings.mesh.degree(Axis::fsdp) : 1;
    EXPECT_EQ(traffic.sum.bytes, replicas ? trainable * element / shards : 0);
    EXPECT_EQ(traffic.gather.bytes == 0, !sharded || all == 0);
    EXPECT_LE(peaks.gathered, all * bytes_of(settings.compute));
    EXPECT_EQ(peaks.gathered > 0, settings.policy.shards_parameters() && all > 0);
    EXPECT_LE(peaks.gradients, uses * 4);
    EXPECT_EQ(peaks.gradients > 0, settings.policy.shards_gradients() && trainable > 0);
  }
  EXPECT_GT(refused, 0);
  EXPECT_LT(refused, 100);
}

// Of all pp coordinates together.
struct Together {
  DataState state = {};
  DataTraffic traffic = {};
};

void add(DataTraffic::Entry& sum, const DataTraffic::Entry& entry) {
  sum.calls += entry.calls;
  sum.bytes += entry.bytes;
}

// Also that no coordinate has more full than it has in all, and nothing when it has nothing.
Together all_stages(const GraphSpec& graph, const StageMap& map, const StageTable& table, DataSettings settings) {
  Together all;
  for (int pp = 0; pp < map.pp_degree(); ++pp) {
    SCOPED_TRACE(fmt::format("pp {}", pp));
    settings.coordinate[Axis::pp] = pp;
    const auto actions = data_actions(lower(table, map, graph, pp), graph, settings);
    const auto state = data_state(graph, settings);
    all.state.parameters += state.parameters;
    all.state.compute += state.compute;
    all.state.gradients += state.gradients;
    all.state.optimizer += state.optimizer;
    const auto traffic = data_traffic(graph, settings, actions);
    add(all.traffic.gather, traffic.gather);
    add(all.traffic.scatter, traffic.scatter);
    add(all.traffic.sum, traffic.sum);
    std::int64_t here = 0;
    std::int64_t uses = 0;
    const auto buffers = unit_buffers(graph, settings.mesh, settings.coordinate, {}, settings.unit_pp_coordinates);
    for (const auto& buffer : buffers.all) {
      here += buffer.size;
      if (buffer.trainable) uses += buffer.size * static_cast<std::int64_t>(buffer.users.size());
    }
    const auto peaks = data_peaks(graph, settings, actions);
    EXPECT_LE(peaks.gathered, here * bytes_of(settings.compute));
    EXPECT_EQ(peaks.gathered > 0, settings.policy.shards_parameters() && here > 0);
    EXPECT_LE(peaks.gradients, uses * bytes_of(settings.reduce));
    EXPECT_EQ(peaks.gradients > 0, settings.policy.shards_gradients() && uses > 0);
    if (settings.policy.shards_parameters()) {
      EXPECT_GE(traffic.gather.bytes, here * bytes_of(settings.compute));
    }
  }
  return all;
}

// Elements of flat buffers, and those of the copies that further coordinates keep of tied ones.
struct Elements {
  std::int64_t whole = 0;
  std::int64_t copies = 0;

  // Whether a figure that grows with the elements has grown by the copies.
  bool scale(std::int64_t one_stage, std::int64_t all_stages) const {
    return all_stages * whole == one_stage * (whole + copies);
  }
};

Elements elements_of(const GraphSpec& graph, const DataSettings& settings, bool trainable) {
  Elements found;
  for (const auto& buffer : unit_buffers(graph, settings.mesh, {}, {}).all) {
    if (trainable && !buffer.trainable) continue;
    std::set<int> owners;
    for (const int user : buffer.users) owners.insert(settings.unit_pp_coordinates[static_cast<std::size_t>(user)]);
    found.whole += buffer.size;
    found.copies += buffer.size * static_cast<std::int64_t>(owners.size() - 1);
  }
  return found;
}

void expect_stages_make_the_whole(const GraphSpec& graph, const StageMap& map, const StageTable& table,
                                  const DataSettings& settings) {
  const auto all = all_stages(graph, map, table, settings);
  auto whole = settings;
  whole.unit_pp_coordinates.clear();
  const auto state = data_state(graph, whole);
  const auto traffic = data_traffic(graph, whole, test::one_stage_actions(graph, whole));
  const auto kept = elements_of(graph, settings, false);
  const auto trained = elements_of(graph, settings, true);
  EXPECT_TRUE(kept.scale(state.parameters, all.state.parameters));
  EXPECT_TRUE(kept.scale(state.compute, all.state.compute));
  EXPECT_TRUE(trained.scale(state.optimizer, all.state.optimizer));
  if (settings.policy.shards_gradients()) {
    EXPECT_TRUE(trained.scale(state.gradients, all.state.gradients));
  } else {
    EXPECT_EQ(all.state.gradients, state.gradients);  // one for every use, wherever it is
  }
  EXPECT_TRUE(trained.scale(traffic.scatter.bytes, all.traffic.scatter.bytes));
  EXPECT_TRUE(trained.scale(traffic.sum.bytes, all.traffic.sum.bytes));
  if (!settings.policy.shards_parameters()) {
    EXPECT_TRUE(trained.scale(traffic.gather.bytes, all.traffic.gather.bytes));
  }
}

TEST(DataProperty, StagesOfEveryModelMakeItsStateAndCopiesOfTiedParameters) {
  std::mt19937 random(77);
  auto graphs = models();
  graphs.push_back(gpt2_spec(gpt2_preset("gpt2-tiny"), {.rows = 2, .sequence = 4}));
  TrimodalConfig shared = trimodal_preset("trimodal-tiny");
  shared.shared_towers = true;
  graphs.push_back(trimodal_spec(shared, {.rows = 2, .sequence = 4}));
  for (const GraphSpec& graph : graphs) {
    for (int trial = 0; trial < 40; ++trial) {
      auto settings = random_settings(graph, random);
      settings.unit_groups.clear();
      const int pp_degree = 1 + draw(random, 4);
      settings.mesh = Mesh({{Axis::pp, pp_degree}, {Axis::dp, 2}, {Axis::fsdp, settings.mesh.degree(Axis::fsdp)}});
      settings.policy = effective_policy(settings.policy, settings.mesh);
      const char* schedule = draw(random, 2) == 0 ? "1f1b" : "zbh1";
      const auto pipeline = make_pipeline(graph, pp_degree, settings.microbatches, {.schedule = schedule});
      settings.unit_pp_coordinates = pipeline.unit_pp_coordinates();
      SCOPED_TRACE(describe(graph, settings) + ", " + schedule);
      expect_stages_make_the_whole(graph, pipeline.map, pipeline.table, settings);
    }
  }
}

TEST(DataProperty, StagesOfRandomGraphsMakeTheirStateAndCopiesOfTiedParameters) {
  std::mt19937 random(78);
  int with_copies = 0;
  for (int trial = 0; trial < 300; ++trial) {
    const GraphSpec graph = test::random_graph(random);
    auto settings = random_settings(graph, random);
    settings.unit_groups.clear();
    const StageMap map = test::random_stages(graph, random);
    const Mesh& drawn = settings.mesh;
    settings.mesh =
        Mesh({{Axis::pp, map.pp_degree()}, {Axis::dp, drawn.degree(Axis::dp)}, {Axis::fsdp, drawn.degree(Axis::fsdp)}});
    settings.unit_pp_coordinates = Pipeline{.map = map, .table = {}}.unit_pp_coordinates();
    SCOPED_TRACE(fmt::format("trial {}: {}", trial, describe(graph, settings)));
    const StageTable table = test::TableDraw(graph, map, settings.microbatches, 50, random).table();
    expect_stages_make_the_whole(graph, map, table, settings);
    with_copies += elements_of(graph, settings, true).copies > 0 ? 1 : 0;
  }
  EXPECT_GT(with_copies, 50);
}

}  // namespace data_property_test
}  // namespace orthant
