// The pipeline of a run: which stages settings lead to, which settings are refused and with which words, and that every
// named schedule runs on models of both shapes, a chain and branches.
#include "orthant/schedule/pipeline.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "mesh/thrown_error.h"
#include "orthant/models/llama/config.h"
#include "orthant/models/model_config.h"
#include "orthant/models/presets.h"
#include "orthant/models/trimodal/config.h"
#include "orthant/schedule/generators.h"
#include "orthant/schedule/named_schedules.h"
#include "orthant/schedule/validate.h"
#include "schedule/graphs.h"
#include "schedule/schedule_file.h"

namespace orthant {
namespace pipeline_test {

using test::chain;
using test::ScheduleFile;
using test::thrown_text;
using Units = std::vector<std::vector<int>>;

// Two towers of which the first is twice as heavy, and their fusion.
GraphSpec towers() {
  return test::GraphMaker("towers")
      .unit("left", {"ids"})
      .flops(2, 2, 2)
      .unit("right", {"ids"})
      .flops(1, 1, 1)
      .unit("fusion", {"left.out", "right.out"})
      .flops(1, 1, 1)
      .loss("loss", {"fusion.out"})
      .done();
}

const std::vector<std::vector<std::string>> kTowerStages = {{"left"}, {"right"}, {"fusion", "loss"}};

// What is refused when a chain of six layers is put on so many pp coordinates with four microbatches.
std::string refusal(int pp_degree, const PipelineSettings& settings) {
  return thrown_text([&] { make_pipeline(chain(6), pp_degree, 4, settings); });
}

// The same for a schedule file, which is called FILE.
std::string file_refusal(const ScheduleFile& file, const GraphSpec& graph, int pp_degree, int microbatches,
                         PipelineSettings settings = {}) {
  settings.schedule = file.path();
  std::string found = thrown_text([&] { make_pipeline(graph, pp_degree, microbatches, settings); });
  const auto at = found.find(file.path());
  return at == std::string::npos ? found : found.replace(at, file.path().size(), "FILE");
}

TEST(Pipeline, EveryScheduleRunsEveryModelOnAnyNumberOfPpCoordinates) {
  const WorkSize work{.rows = 2, .sequence = 8};
  for (const GraphSpec& graph : {build_spec(llama_preset("llama-16"), work),
                                 build_spec(trimodal_preset("trimodal-16"), work), chain(14, /*tied=*/true)}) {
    for (const std::string& name : schedule_names()) {
      for (const int pp_degree : {1, 2, 3, 4, 8}) {
        for (int m = 1; m <= 9; ++m) {
          SCOPED_TRACE(graph.name + " " + name + " pp=" + std::to_string(pp_degree) + " m=" + std::to_string(m));
          const Pipeline pipeline = make_pipeline(graph, pp_degree, m, {.schedule = name});
          EXPECT_EQ(pipeline.pp_degree(), pp_degree);
          EXPECT_EQ(pipeline.map.num_stages(), pp_degree == 1 ? 1 : pp_degree * virtual_stages(name));
          EXPECT_NO_THROW(validate(pipeline.table, pipeline.map, graph));
          EXPECT_NO_THROW(validate(make_forward_schedule(pipeline.map, graph, 1), pipeline.map, graph));
          EXPECT_GE(pipeline.imbalance, 1 - 1e-9);
          const auto unit_pp_coordinates = pipeline.unit_pp_coordinates();
          ASSERT_EQ(unit_pp_coordinates.size(), graph.units.size());
          for (int pp_coordinate = 0; pp_coordinate < pp_degree; ++pp_coordinate)
            EXPECT_GT(std::ranges::count(unit_pp_coordinates, pp_coordinate), 0) << pp_coordinate;
        }
      }
    }
  }
}

TEST(Pipeline, WithoutASplitThePpCoordinatesDecideTheNumberOfStages) {
  const Pipeline pipeline = make_pipeline(chain(6), 3, 4, {});
  EXPECT_EQ(pipeline.map.units, (Units{{0, 1, 2}, {3, 4}, {5, 6, 7, 8}}));
  EXPECT_EQ(pipeline.map.pp_coordinates, (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(pipeline.table, one_forward_one_backward(3, 4));
  EXPECT_DOUBLE_EQ(pipeline.imbalance, 1);
  EXPECT_EQ(pipeline.unit_pp_coordinates(), (std::vector<int>{0, 0, 0, 1, 1, 2, 2, 2, 2}));
  EXPECT_EQ(make_pipeline(chain(6), 2, 4, {.schedule = "zbv"}).table, zbv(2, 4));
}

TEST(Pipeline, InterleavedTakesItsVirtualStagesFromTheSplit) {
  const auto six = make_pipeline(chain(6), 2, 4, {.schedule = "interleaved", .stages = 6});
  EXPECT_EQ(six.table, interleaved(2, 3, 4));
  const auto named = make_pipeline(
      chain(2), 2, 4, {.schedule = "interleaved", .split = {{"embed"}, {"layers.0"}, {"layers.1"}, {"head", "loss"}}});
  EXPECT_EQ(named.table, interleaved(2, 2, 4));
  EXPECT_EQ(make_pipeline(chain(6), 2, 4, {.schedule = "interleaved", .virtual_stages = 3}).table,
            interleaved(2, 3, 4));
}

TEST(Pipeline, BranchesShareAPpCoordinateByPlacement) {
  const Pipeline pipeline = make_pipeline(towers(), 2, 4, {.split = kTowerStages, .placement = {0, 1, 1}});
  EXPECT_EQ(pipeline.pp_degree(), 2);
  EXPECT_EQ(pipeline.map.pp_coordinates, (std::vector<int>{0, 1, 1}));
  EXPECT_EQ(pipeline.table.actions[1].front(), (StageAction{1, StageKind::F, 0})) << "the towers begin together";
  EXPECT_DOUBLE_EQ(pipeline.imbalance, 1) << "twice one tower on pp 0, one tower and the fusion on pp 1";
  for (const char* name : {"gpipe", "zbh1"}) {
    EXPECT_EQ(make_pipeline(towers(), 2, 4,
                            {.schedule = name, .virtual_stages = 1, .split = kTowerStages, .placement = {0, 1, 1}})
                  .map.num_stages(),
              3);
  }
  const Pipeline turned = make_pipeline(chain(6), 2, 4, {.placement = {1, 0}});
  EXPECT_EQ(turned.map.pp_coordinates, (std::vector<int>{1, 0}));
  EXPECT_EQ(make_pipeline(chain(6), 2, 4, {.placement = {0, 1, 0}}).map.num_stages(), 3) << "cut automatically";
}

TEST(Pipeline, OnePpCoordinateRunsOneStageUnlessMoreAreAskedFor) {
  for (const auto& name : schedule_names()) {
    const Pipeline one = make_pipeline(chain(6), 1, 3, {.schedule = name, .virtual_stages = 2, .placement = {3, 1}});
    EXPECT_EQ(one.table, one_stage(3)) << name;
    EXPECT_EQ(one.unit_pp_coordinates(), std::vector<int>(9, 0));
    EXPECT_DOUBLE_EQ(one.imbalance, 1);
  }
  EXPECT_EQ(make_pipeline(chain(6), 1, 3, {.stages = 3}).table, on_one_pp_coordinate(one_forward_one_backward(3, 3)));
  EXPECT_EQ(make_pipeline(chain(6), 1, 3, {.schedule = "gpipe", .stages = 3}).table, on_one_pp_coordinate(gpipe(3, 3)));
  EXPECT_EQ(make_pipeline(chain(6), 1, 3, {.schedule = "zbh1", .stages = 3}).table, on_one_pp_coordinate(zbh1(3, 3)));
  for (const char* name : {"interleaved", "zbv", "not/read.txt"}) {
    const Pipeline pipeline = make_pipeline(chain(6), 1, 3, {.schedule = name, .stages = 3});
    EXPECT_EQ(pipeline.table, on_one_pp_coordinate(one_forward_one_backward(3, 3))) << name;
    EXPECT_EQ(pipeline.map.pp_coordinates, std::vector<int>(3, 0)) << name;
  }
  const Pipeline split = make_pipeline(towers(), 1, 3, {.split = kTowerStages, .placement = {0, 1, 1}});
  EXPECT_EQ(split.map.units, (Units{{0}, {1}, {2, 3}}));
  EXPECT_EQ(split.pp_degree(), 1);
}

TEST(Pipeline, MeasuredCostsMoveTheCut) {
  const GraphSpec graph = chain(2);
  EXPECT_EQ(make_pipeline(graph, 2, 4, {}).map.units, (Units{{0, 1}, {2, 3, 4}}));
  PipelineSettings settings;
  settings.unit_costs = {{"embed", 5}, {"layers.0", 1}, {"layers.1", 2}, {"head", 1}, {"loss", 0}};
  const Pipeline pipeline = make_pipeline(graph, 2, 4, settings);
  EXPECT_EQ(pipeline.map.units, (Units{{0}, {1, 2, 3, 4}}));
  EXPECT_DOUBLE_EQ(pipeline.imbalance, 5 / 4.5);
  settings.stages = 2;
  EXPECT_EQ(make_pipeline(graph, 1, 4, settings).map.units, (Units{{0}, {1, 2, 3, 4}}));
}

TEST(Pipeline, CostsAreOfAllUnitsAndOfNoOthers) {
  EXPECT_EQ(
      refusal(2, {.unit_costs = {{"layer.0", 1}}}),
      "parallel.split_costs has \"layer.0\", which is no unit of graph \"chain\"\n"
      "did you mean \"layers.0\"? (one of embed, layers.0, layers.1, layers.2, layers.3, layers.4, layers.5, head, "
      "loss)");
  EXPECT_EQ(thrown_text([] { make_pipeline(chain(1), 1, 4, {.unit_costs = {{"embed", 1}, {"head", 1}}}); }),
            "parallel.split_costs has no cost of layers.0, loss\n"
            "give the seconds of every unit, 0 where there are none");
}

TEST(Pipeline, AMemoryBoundMovesTheCutByWhatIsInFlight) {
  const GraphSpec graph = chain(4);
  PipelineSettings settings;
  settings.memory.kept_bytes = {0, 10, 10, 10, 10, 0, 0};
  EXPECT_EQ(make_pipeline(graph, 2, 4, settings).map.units, (Units{{0, 1, 2}, {3, 4, 5, 6}}));
  settings.memory.rank_bytes = 30;  // pp 0 keeps two microbatches under 1f1b, pp 1 one
  EXPECT_EQ(make_pipeline(graph, 2, 4, settings).map.units, (Units{{0, 1}, {2, 3, 4, 5, 6}}));
  settings.memory.rank_bytes = 60;  // gpipe keeps all four on both
  settings.schedule = "gpipe";
  const std::string refused = thrown_text([&] { make_pipeline(graph, 2, 4, settings); });
  EXPECT_EQ(
      refused,
      "graph \"chain\" cannot be cut into 2 stages that fit into 60 B per rank: in the cut that comes nearest, stage "
      "0 (units \"embed\" to \"layers.1\", 4 microbatches in flight) needs 80 B\n"
      "set parallel.split_memory_gb=0.000001 or more, more stages, recompute, or a schedule that keeps fewer "
      "microbatches");
  const ScheduleFile file(to_text(gpipe(2, 4)));
  settings.schedule = file.path();
  EXPECT_EQ(thrown_text([&] { make_pipeline(graph, 2, 4, settings); }), refused) << "a file's table counts as well";
  EXPECT_EQ(make_pipeline(graph, 1, 4, settings).map.num_stages(), 1) << "one pp coordinate holds all in any case";
}

TEST(Pipeline, AMemoryBoundKnowsTheStagesOfAPpCoordinate) {
  const GraphSpec graph = chain(4);
  PipelineSettings settings;
  settings.memory.kept_bytes = {0, 10, 10, 10, 10, 0, 0};
  for (const auto& name : schedule_names()) {
    settings.schedule = name;
    settings.memory.rank_bytes = 1000;
    EXPECT_EQ(make_pipeline(graph, 2, 4, settings).pp_degree(), 2) << name;
    settings.memory.rank_bytes = 10;
    EXPECT_NE(thrown_text([&] { make_pipeline(graph, 2, 4, settings); }).find("that fit into 10 B per rank"),
              std::string::npos)
        << name;
  }
  settings = {.schedule = "1f1b", .placement = {0, 1, 1}};
  settings.memory = {.rank_bytes = 60, .kept_bytes = {0, 10, 10, 10, 10, 0, 0}};
  // Of three in a row, the first keeps three microbatches and has 60 bytes, the others two and one and 30 each. Two
  // layers in the last stage fill a rank less than two in the first.
  EXPECT_EQ(make_pipeline(graph, 2, 4, settings).map.units, (Units{{0, 1}, {2}, {3, 4, 5, 6}}));
  settings.memory.kept_bytes = {0, 10, 10, 10, 20, 0, 0};
  EXPECT_EQ(make_pipeline(graph, 2, 4, settings).map.units, (Units{{0, 1, 2}, {3}, {4, 5, 6}}));
}

TEST(Pipeline, AFileSaysItAll) {
  const StageTable table = zbv(2, 3);
  const ScheduleFile file(to_text(table));
  EXPECT_TRUE(is_schedule_file(file.path()));
  EXPECT_TRUE(is_schedule_file("mine.txt"));
  EXPECT_FALSE(is_schedule_file("1f1b"));
  EXPECT_FALSE(is_schedule_file("1f2b"));
  const Pipeline pipeline = make_pipeline(chain(6), 2, 3, {.schedule = file.path()});
  EXPECT_EQ(pipeline.table, table);
  EXPECT_EQ(pipeline.map.pp_coordinates, (std::vector<int>{0, 1, 1, 0}));
  const PipelineSettings same{
      .schedule = file.path(), .virtual_stages = 2, .stages = 4, .split = {}, .placement = {0, 1, 1, 0}};
  EXPECT_EQ(make_pipeline(chain(6), 2, 3, same).map, pipeline.map);
}

TEST(Pipeline, WhatAFileDoesNotSayIsRefused) {
  const ScheduleFile file("0F0 0F1 0BW0 0BW1\n1F0 1BW0 1F1 1BW1\n");
  const auto text = [&](int pp_degree, int microbatches, const PipelineSettings& settings) {
    return file_refusal(file, chain(6), pp_degree, microbatches, settings);
  };
  EXPECT_EQ(text(3, 2, {}),
            "schedule file FILE is for 2 pp coordinates; mesh.pp is 3\nset mesh.pp=2, or write a line for each of 3 pp "
            "coordinates");
  EXPECT_EQ(text(2, 4, {}),
            "schedule file FILE has 2 microbatches; parallel.microbatches is 4\n"
            "set parallel.microbatches=2, or write actions of microbatches 0 to 3");
  EXPECT_EQ(text(2, 2, {.stages = 3}),
            "parallel.split has 3 stages; schedule file FILE has 2\n"
            "cut the model into 2 stages, or set parallel.split=auto");
  EXPECT_EQ(text(2, 2, {.placement = {1, 0}}),
            "parallel.placement is 1, 0; schedule file FILE has its stages on pp coordinates 0, 1\n"
            "leave parallel.placement out, or move the stages in the file");
  EXPECT_EQ(text(2, 2, {.virtual_stages = 2}),
            "parallel.virtual_stages is 2; schedule file FILE has 2 stages on 2 pp coordinates\n"
            "leave parallel.virtual_stages out");
  EXPECT_EQ(thrown_text([] { make_pipeline(chain(6), 2, 4, {.schedule = "no/such.txt"}); }),
            "schedule file no/such.txt cannot be read: No such file or directory\n"
            "name a file that exists and may be read, one line of actions per pp coordinate");
}

TEST(Pipeline, UnsoundFilesAreRefused) {
  const auto text = [](const std::string& table, int pp_degree, const GraphSpec& graph) {
    return file_refusal(ScheduleFile(table), graph, pp_degree, 2);
  };
  EXPECT_EQ(text("0F0 0F1\n1F0 1F1\n", 2, chain(6)),
            "schedule file FILE has no backward action: it is one of evaluation\n"
            "write a BW, or a B and a W, for every F");
  EXPECT_EQ(text("0F0 0F1 1F0 1BW0 1F1 1BW1 0BW0 0BW1\n-\n", 2, chain(6)),
            "schedule file FILE leaves pp coordinate 1 without a stage; mesh.pp is 2\n"
            "put a stage on every pp coordinate, or set a smaller mesh.pp");
  EXPECT_EQ(text(to_text(gpipe(8, 2)), 8, chain(4)),
            "schedule file FILE asks for 8 stages; graph \"chain\" has 7 units, and a loss stays with the unit "
            "that feeds it\n"
            "use at most 6 stages: a smaller mesh.pp, fewer stages per pp coordinate, or another parallel.split");
  EXPECT_NE(text("0F0 0BW0 0F1 0BW1\n1F0 1F1 1BW0 1BW1\n", 2, chain(6)).find("deadlock"), std::string::npos);
  EXPECT_NE(text("0F0 0F1 0BW0\n1F0 1BW0 1F1 1BW1\n", 2, chain(6)).find("0BW1"), std::string::npos);
}

TEST(Pipeline, UnknownSchedulesAndNoMicrobatchesAreRefused) {
  EXPECT_EQ(thrown_text([] { make_pipeline(chain(1), 2, 0, {}); }),
            "parallel.schedule: schedule 1f1b of 2 pp coordinates and 0 microbatches\nset at least one pp coordinate "
            "and one microbatch");
  for (const int pp_degree : {1, 2}) {
    EXPECT_EQ(refusal(pp_degree, {.schedule = "1f2b"}),
              "unknown schedule \"1f2b\"\ndid you mean \"1f1b\"? (one of gpipe, 1f1b, interleaved, zbh1, zbv)");
  }
}

TEST(Pipeline, AnotherNumberOfStagesThanTheScheduleHasIsRefused) {
  EXPECT_EQ(refusal(2, {.stages = 3}),
            "parallel.split has 3 stages; parallel.schedule=1f1b on mesh.pp=2 with 1 stage per pp coordinate has 2\n"
            "set 2 stages, give parallel.placement the pp coordinate of each stage, or set mesh.pp=3");
  EXPECT_EQ(
      refusal(2, {.schedule = "zbh1", .stages = 4}),
      "parallel.split has 4 stages; parallel.schedule=zbh1 on mesh.pp=2 with 1 stage per pp coordinate has 2\n"
      "set 2 stages, give parallel.placement the pp coordinate of each stage, set parallel.schedule=interleaved, or "
      "set mesh.pp=4");
  EXPECT_EQ(refusal(3, {.stages = 2}),
            "parallel.split has 2 stages; parallel.schedule=1f1b on mesh.pp=3 with 1 stage per pp coordinate has 3\n"
            "set 3 stages, or set mesh.pp=2");
  EXPECT_EQ(refusal(2, {.schedule = "zbv", .stages = 2}),
            "parallel.split has 2 stages; parallel.schedule=zbv on mesh.pp=2 with 2 stages per pp coordinate has 4\n"
            "set 4 stages, or parallel.schedule=1f1b");
  EXPECT_EQ(
      refusal(2, {.schedule = "interleaved", .stages = 5}),
      "parallel.split has 5 stages; parallel.schedule=interleaved on mesh.pp=2 with 2 stages per pp coordinate has 4\n"
      "set 4, 6 or another multiple of mesh.pp=2 stages");
  EXPECT_EQ(
      refusal(2, {.schedule = "interleaved", .virtual_stages = 2, .stages = 6}),
      "parallel.split has 6 stages; parallel.schedule=interleaved on mesh.pp=2 with 2 stages per pp coordinate has 4\n"
      "set 4 stages, or parallel.virtual_stages=3");
  EXPECT_EQ(
      refusal(2, {.virtual_stages = 2}),
      "parallel.virtual_stages: schedule 1f1b with 2 stages per pp coordinate\nset 1 virtual stage, or the schedule "
      "interleaved");
  EXPECT_EQ(refusal(2, {.stages = 3, .split = {{"embed"}, {"head"}}}),
            "parallel.split lists 2 stages beside a number of 3\nset one of them");
}

TEST(Pipeline, MoreStagesThanUnitsAreRefused) {
  EXPECT_EQ(refusal(10, {}),
            "parallel.schedule=1f1b on mesh.pp=10 with 1 stage per pp coordinate asks for 10 stages; graph \"chain\" "
            "has 9 units, "
            "and a loss stays with the unit that feeds it\n"
            "use at most 8 stages: a smaller mesh.pp, fewer stages per pp coordinate, or another parallel.split");
  EXPECT_EQ(
      refusal(4, {.schedule = "interleaved", .virtual_stages = 1 << 20}),
      "parallel.schedule=interleaved on mesh.pp=4 with 1048576 stages per pp coordinate asks for 4194304 stages; graph "
      "\"chain\" has 9 units, and a loss stays with the unit that feeds it\n"
      "use at most 8 stages: a smaller mesh.pp, fewer stages per pp coordinate, or another parallel.split");
  EXPECT_EQ(refusal(1, {.stages = 10}),
            "parallel.split asks for 10 stages; graph \"chain\" has 9 units, and a loss stays with the unit that "
            "feeds it\n"
            "use at most 8 stages: a smaller mesh.pp, fewer stages per pp coordinate, or another parallel.split");
  EXPECT_NE(refusal(9, {}).find("use at most 8 stages"), std::string::npos);
  EXPECT_EQ(make_pipeline(chain(6), 8, 2, {}).map.num_stages(), 8) << "what the remedy says";
}

TEST(Pipeline, APlacementIsOfEveryStageAndEveryCoordinate) {
  EXPECT_EQ(refusal(2, {.stages = 3, .placement = {0, 1}}),
            "parallel.placement has 2 entries for 3 stages\n"
            "give one pp coordinate per stage, or leave parallel.placement out");
  EXPECT_EQ(refusal(2, {.placement = {0, 1, 2}}),
            "parallel.placement puts stage 2 on pp coordinate 2; mesh.pp is 2\n"
            "use pp coordinates 0 to 1, or set another mesh.pp");
  EXPECT_EQ(refusal(3, {.placement = {0, 2, 2}}),
            "parallel.placement leaves pp coordinate 1 without a stage; mesh.pp is 3\n"
            "put a stage on every pp coordinate, or set a smaller mesh.pp");
  EXPECT_EQ(refusal(2, {.schedule = "interleaved", .placement = {0, 0, 1, 1}}),
            "parallel.schedule: schedule interleaved cannot have its stages on pp coordinates 0, 0, 1, 1\n"
            "leave the placement out, or set it to 0, 1, 0, 1");
}

TEST(Pipeline, ASplitMustHoldEveryUnitOnce) {
  for (const int pp_degree : {1, 2}) {
    const auto text = [&](const std::vector<std::vector<std::string>>& split) {
      return thrown_text([&] { make_pipeline(chain(1), pp_degree, 4, {.split = split}); });
    };
    EXPECT_EQ(text({{"embed"}, {"head", "loss"}}),
              "parallel.split: no stage holds layers.0\nname every unit of the graph in some stage");
    EXPECT_EQ(text({{"embed", "layers.0"}, {"layers.0", "head", "loss"}}),
              "parallel.split: unit \"layers.0\" is in stage 0 and in stage 1\nname every unit once");
  }
}

}  // namespace pipeline_test
}  // namespace orthant
