#include "orthant/plan/estimate/pipeline_traffic.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <random>

#include "base/error_text.h"
#include "models/small_models.h"
#include "orthant/base/ranges.h"
#include "orthant/layout/tensor_policy.h"
#include "orthant/models/encoder_lm/config.h"
#include "orthant/models/llama/config.h"
#include "orthant/models/trimodal/config.h"
#include "orthant/schedule/named_schedules.h"
#include "orthant/schedule/pipeline.h"
#include "plan/estimate/data_graphs.h"
#include "schedule/random_tables.h"

namespace orthant {

// For gtest's messages.
static void PrintTo(const PipelineTraffic& traffic, std::ostream* out) {
  const auto print = [&](const char* name, const PipelineTraffic::Entry& entry) {
    *out << name << " " << entry.calls << " calls " << entry.bytes << " bytes, ";
  };
  print("sent", traffic.sent_values);
  print("received", traffic.received_values);
  print("sent gradients", traffic.sent_gradients);
  print("received gradients", traffic.received_gradients);
  print("tied", traffic.tied);
}

namespace pipeline_traffic_test {

using Entry = PipelineTraffic::Entry;
using test::draw;

// Of every pp coordinate; values of the test graphs have 2 elements of 4 bytes.
std::vector<PipelineTraffic> traffic_of(const GraphSpec& graph, const StageMap& map, int microbatches,
                                        DataSettings settings = {}) {
  check_stages(map, graph);
  const auto resolved = resolved_graph(graph, {}, 1);
  const int pp_degree = map.pp_degree();
  settings.mesh = Mesh({{Axis::pp, pp_degree}, {Axis::fsdp, settings.mesh.degree(Axis::fsdp)}});
  settings.unit_pp_coordinates = Pipeline{.map = map, .table = {}}.unit_pp_coordinates();
  settings.microbatches = microbatches;
  std::vector<PipelineTraffic> traffic;
  for (int pp = 0; pp < pp_degree; ++pp) {
    settings.coordinate[Axis::pp] = pp;
    traffic.push_back(pipeline_traffic(resolved, settings));
  }
  return traffic;
}

TEST(PipelineTraffic, OneStageSaysNothing) {
  const auto graph = resolved_graph(test::chain(2, true), {}, 1);
  EXPECT_EQ(pipeline_traffic(graph, test::settings_of("dp=2", 0)), PipelineTraffic{});
  EXPECT_EQ(traffic_of(graph, on_one_pp_coordinate(even_stages(graph, 3)), 4), std::vector<PipelineTraffic>(1));
}

TEST(PipelineTraffic, NeighboursOfAChainExchangeAValueAndItsGradientPerMicrobatch) {
  const auto graph = test::chain(2);
  const auto map = named_stages(graph, {{"embed"}, {"layers.0", "layers.1"}, {"head", "loss"}});
  const Entry three{3, 3 * 8};
  EXPECT_EQ(traffic_of(graph, map, 3), (std::vector<PipelineTraffic>{
                                           {.sent_values = three, .received_gradients = three},
                                           {three, three, three, three, {}},
                                           {.received_values = three, .sent_gradients = three},
                                       }));
}

TEST(PipelineTraffic, AValueTravelsOncePerCoordinateAndAGradientOncePerReader) {
  const auto graph = test::fan_out();
  const auto map = named_stages(graph, {{"trunk"}, {"left", "middle"}, {"right", "loss.left", "loss.right"}});
  // The mask has no gradient. Two units of the last stage read left.out.
  EXPECT_EQ(traffic_of(graph, map, 2), (std::vector<PipelineTraffic>{
                                           {.sent_values = {8, 64}, .received_gradients = {6, 48}},
                                           {.sent_values = {4, 32},
                                            .received_values = {4, 32},
                                            .sent_gradients = {4, 32},
                                            .received_gradients = {6, 48}},
                                           {.received_values = {8, 64}, .sent_gradients = {8, 64}},
                                       }));
}

TEST(PipelineTraffic, StagesOfOneCoordinateExchangeNothing) {
  const auto graph = test::fan_out();
  const auto map =
      named_stages(graph, {{"trunk"}, {"left", "middle"}, {"right", "loss.left", "loss.right"}}, {0, 1, 0});
  EXPECT_EQ(traffic_of(graph, map, 1), (std::vector<PipelineTraffic>{
                                           {.sent_values = {2, 16},
                                            .received_values = {2, 16},
                                            .sent_gradients = {3, 24},
                                            .received_gradients = {2, 16}},
                                           {.sent_values = {2, 16},
                                            .received_values = {2, 16},
                                            .sent_gradients = {2, 16},
                                            .received_gradients = {3, 24}},
                                       }));
}

TEST(PipelineTraffic, ValuesOfDtypesTravelInTheirOwn) {
  auto graph = test::chain(1);
  const auto map = named_stages(graph, {{"embed"}, {"layers.0", "head", "loss"}});
  for (const auto dtype : {DType::float64, DType::bfloat16, DType::int64, DType::boolean}) {
    graph.values[0].dtype = dtype;
    EXPECT_EQ(traffic_of(graph, map, 1)[0].sent_values, (Entry{1, 2 * bytes_of(dtype)})) << dtype_name(dtype);
  }
}

TEST(PipelineTraffic, ARankOfTpSendsItsOwnTokensAndWords) {
  // 6 tokens and 11 words over 4 ranks; 8 channels of float32.
  constexpr std::int64_t kTokens[] = {1, 2, 1, 2};
  constexpr std::int64_t kWords[] = {2, 3, 3, 3};
  const TensorPolicy policy{.sequence_parallel = true, .loss_parallel = true};
  const auto graph = resolved_graph(llama_spec(test::small_llama(), test::small_work()), policy, 4);
  const auto map = named_stages(graph, {{"embed"}, {"layers.0", "layers.1", "head"}, {"loss"}});
  auto settings = test::settings_of("pp=3,tp=4", 0);
  settings.unit_pp_coordinates = Pipeline{.map = map, .table = {}}.unit_pp_coordinates();
  settings.microbatches = 5;
  for (int tp = 0; tp < 4; ++tp) {
    settings.coordinate[Axis::tp] = tp;
    settings.coordinate[Axis::pp] = 1;
    const Entry hidden{5, 5 * kTokens[tp] * 8 * 4};
    const Entry logits{5, 5 * 6 * kWords[tp] * 4};
    EXPECT_EQ(pipeline_traffic(graph, settings), (PipelineTraffic{logits, hidden, hidden, logits, {}})) << tp;
  }
  // Whole otherwise.
  const auto whole = resolved_graph(llama_spec(test::small_llama(), test::small_work()), {}, 4);
  EXPECT_EQ(pipeline_traffic(whole, settings).sent_values, (Entry{5, 5 * 6 * 11 * 4}));
  EXPECT_EQ(pipeline_traffic(whole, settings).received_values, (Entry{5, 5 * 6 * 8 * 4}));
}

TEST(PipelineTraffic, OwnersOfATiedParameterSumTheirShardsOnceAStep) {
  const auto graph = test::sized_chain(/*tied=*/true);  // embed 128, which head borrows
  const auto map = named_stages(graph, {{"embed"}, {"layers.0", "layers.1"}, {"head", "loss"}});
  for (int zero = 0; zero <= 3; ++zero) {
    auto settings = test::settings_of("fsdp=2", zero);
    settings.bf16_hook = true;  // of the data axes
    const std::int64_t owned = zero == 0 ? 128 : 64;
    for (const int microbatches : {1, 3}) {
      const auto traffic = traffic_of(graph, map, microbatches, settings);
      EXPECT_EQ(traffic[0].tied, (Entry{1, owned * 4})) << "zero " << zero;
      EXPECT_EQ(traffic[1].tied, Entry{});
      EXPECT_EQ(traffic[2].tied, (Entry{1, owned * 4}));
    }
    settings.reduce = DType::bfloat16;
    EXPECT_EQ(traffic_of(graph, map, 1, settings)[2].tied, (Entry{1, owned * 2}));
  }
  const auto together = named_stages(graph, {{"embed"}, {"layers.0", "layers.1"}, {"head", "loss"}}, {0, 1, 0});
  for (const auto& traffic : traffic_of(graph, together, 1)) EXPECT_EQ(traffic.tied, Entry{});
  auto frozen = graph;
  test::freeze_unit(frozen, "embed");
  for (const auto& traffic : traffic_of(frozen, map, 1)) EXPECT_EQ(traffic.tied, Entry{});
}

TEST(PipelineTraffic, EverySetOfOwnersHasACallOfItsOwn) {
  const auto graph = test::GraphMaker("tied")
                         .unit("a", {"ids"})
                         .unit("b", {"a.out"})
                         .unit("c", {"b.out"}, false)
                         .borrow("a.weight")
                         .unit("d", {"c.out"}, false)
                         .borrow("a.weight")
                         .borrow("b.weight")
                         .unit("e", {"d.out"})
                         .unit("f", {"e.out"}, false)
                         .borrow("b.weight")
                         .borrow("e.weight")
                         .loss("loss", {"f.out"})
                         .done();
  const std::int64_t padded = 32 * 4;
  const auto calls = [&](const StageMap& map) {
    std::vector<Entry> entries;
    for (const auto& traffic : traffic_of(graph, map, 2)) entries.push_back(traffic.tied);
    return entries;
  };
  // a 0+1+2, b 0+2 (twice there), e 2 alone.
  EXPECT_EQ(calls(named_stages(graph, {{"a", "b"}, {"c"}, {"d", "e", "f", "loss"}})),
            (std::vector<Entry>{{2, 2 * padded}, {1, padded}, {2, 2 * padded}}));
  // a and b 0+1, in one call; e 1 alone.
  EXPECT_EQ(calls(named_stages(graph, {{"a", "b"}, {"c", "d", "e", "f", "loss"}})),
            (std::vector<Entry>{{1, 2 * padded}, {1, 2 * padded}}));
}

TEST(PipelineTraffic, RefusesAnOpaqueValueThatCrossesStages) {
  auto graph = test::chain(1);
  graph.values[0].opaque = true;
  const auto message = "graph \"chain\": value embed.out crosses stages, and only a run knows its size";
  for (const auto& stages : std::vector<std::vector<std::vector<std::string>>>{
           {{"embed"}, {"layers.0", "head", "loss"}}, {{"embed"}, {"layers.0"}, {"head", "loss"}}}) {
    EXPECT_EQ(error_text<InternalError>([&] { traffic_of(graph, named_stages(graph, stages), 1); }), message);
  }
  const auto inside = traffic_of(graph, named_stages(graph, {{"embed", "layers.0"}, {"head", "loss"}}), 1);
  EXPECT_EQ(inside[0].sent_values, (Entry{1, 8}));
}

// What an action carries, by the executor's rule.
std::int64_t carried_bytes(const GraphSpec& graph, int index, int tp) {
  const auto& value = graph.values[static_cast<std::size_t>(index)];
  const int degree = graph.tensor->degree;
  auto shape = value.shape;
  if (value.sequence_sharded) {
    const auto tokens = num_elements(graph.value(value.tokens_of).shape);
    shape = {balanced_range(tokens, degree, tp).size(), shape.back()};
  }
  if (value.tp) shape.back() = balanced_range(value.shape.back(), degree, tp).size();
  return num_elements(shape) * bytes_of(value.dtype);
}

PipelineTraffic counted(const GraphSpec& graph, const std::vector<Action>& actions, int tp) {
  PipelineTraffic traffic;
  const auto add = [&](Entry& entry, const Action& action) {
    ++entry.calls;
    entry.bytes += carried_bytes(graph, action.value, tp);
  };
  for (const auto& action : actions) {
    if (action.kind == ActionKind::send) add(traffic.sent_values, action);
    if (action.kind == ActionKind::receive) add(traffic.received_values, action);
    if (action.kind == ActionKind::send_gradient) add(traffic.sent_gradients, action);
    if (action.kind == ActionKind::receive_gradient) add(traffic.received_gradients, action);
  }
  return traffic;
}

// All coordinates: the messages of the lists, and as much received as sent.
void expect_lists(const GraphSpec& graph, const StageMap& map, const StageTable& table, DataSettings settings) {
  settings.unit_pp_coordinates = Pipeline{.map = map, .table = {}}.unit_pp_coordinates();
  PipelineTraffic all;
  for (int pp = 0; pp < map.pp_degree(); ++pp) {
    settings.coordinate[Axis::pp] = pp;
    auto traffic = pipeline_traffic(graph, settings);
    for (const auto member : {&PipelineTraffic::sent_values, &PipelineTraffic::received_values,
                              &PipelineTraffic::sent_gradients, &PipelineTraffic::received_gradients}) {
      (all.*member).calls += (traffic.*member).calls;
      (all.*member).bytes += (traffic.*member).bytes;
    }
    traffic.tied = {};
    EXPECT_EQ(traffic, counted(graph, lower(table, map, graph, pp), settings.coordinate[Axis::tp])) << "pp " << pp;
  }
  EXPECT_EQ(all.sent_values, all.received_values);
  EXPECT_EQ(all.sent_gradients, all.received_gradients);
}

TEST(PipelineTraffic, IsThatOfTheListsOfRandomGraphsAndSchedules) {
  std::mt19937 random(91);
  int crossing = 0;
  for (int trial = 0; trial < 400; ++trial) {
    auto graph = resolved_graph(test::random_graph(random), {}, 1);
    for (auto& value : graph.values) {
      value.dtype =
          std::array{DType::float32, DType::bfloat16, DType::float64}[static_cast<std::size_t>(draw(random, 3))];
      if (!value.shape.empty()) value.shape = {1 + draw(random, 5), 1 + draw(random, 5)};
    }
    const auto map = test::random_stages(graph, random);
    DataSettings settings;
    settings.mesh = Mesh(Degrees{{Axis::pp, map.pp_degree()}});
    settings.microbatches = 1 + draw(random, 3);
    const auto table = test::TableDraw(graph, map, settings.microbatches, 50, random).table();
    SCOPED_TRACE(fmt::format("trial {}: {} stages on {} pp coordinates", trial, map.num_stages(), map.pp_degree()));
    expect_lists(graph, map, table, settings);
    crossing += map.pp_degree() > 1 ? 1 : 0;
  }
  EXPECT_GT(crossing, 200);
}

TEST(PipelineTraffic, IsThatOfTheListsOfEveryModelAndSchedule) {
  const auto work = test::small_work();
  std::vector<GraphSpec> models = {test::llama(), test::gpt2(true), test::gpt2(false), test::bert()};
  models.push_back(encoder_lm_spec(test::small_encoder_lm(), work));
  models.push_back(trimodal_spec(test::small_trimodal(), work));
  models.push_back(trimodal_spec(test::small_trimodal(true), work));
  for (const auto& model : models) {
    for (const auto& schedule : schedule_names()) {
      for (const int tp : {1, 2}) {
        const auto graph = resolved_graph(model, {.sequence_parallel = tp > 1, .loss_parallel = tp > 1}, tp);
        DataSettings settings;
        settings.mesh = Mesh({{Axis::pp, 2}, {Axis::tp, tp}});
        settings.coordinate[Axis::tp] = tp - 1;
        settings.microbatches = 3;
        const auto pipeline = make_pipeline(graph, 2, settings.microbatches, {.schedule = schedule});
        SCOPED_TRACE(fmt::format("{} {} tp={}", graph.name, schedule, tp));
        expect_lists(graph, pipeline.map, pipeline.table, settings);
      }
    }
  }
}

}  // namespace pipeline_traffic_test
}  // namespace orthant
