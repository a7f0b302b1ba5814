// The pipeline in a run's configuration: what is read and printed, what is refused and with which words, what a rank's
// memory is counted from, and the configurations that come with the source.
#include "orthant/train/pipeline_config.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/error_text.h"
#include "orthant/layout/tensor_policy.h"
#include "orthant/models/llama/config.h"
#include "orthant/models/model_config.h"
#include "orthant/models/presets.h"
#include "orthant/models/trimodal/config.h"
#include "orthant/train/run_config.h"

namespace orthant {
namespace pipeline_config_test {

// A file that is gone with the test.
class CostFile {
 public:
  explicit CostFile(const std::string& text)
      : path_(testing::TempDir() + "costs_" + testing::UnitTest::GetInstance()->current_test_info()->name() + ".json") {
    std::ofstream(path_) << text;
  }
  CostFile(const CostFile&) = delete;
  CostFile& operator=(const CostFile&) = delete;
  ~CostFile() { std::filesystem::remove(path_); }
  std::string assignment() const { return "parallel.split_costs=" + path_; }

 private:
  std::string path_;
};

JsonDocument document(const std::vector<std::string>& overrides) {
  auto parsed = JsonDocument::parse(R"({"parallel": {}})");
  for (const auto& assignment : overrides) parsed.apply_override(assignment);
  return parsed;
}

PipelineSettings read(const JsonDocument& parsed) {
  JsonReader root(parsed);
  auto section = root.object("parallel");
  auto settings = read_pipeline(section, LlamaConfig());
  root.finish();
  return settings;
}

PipelineSettings read(const std::vector<std::string>& overrides) {
  return read(document(overrides));
}

// "1 default": what --print-config would show of a key.
std::string printed(const std::vector<std::string>& overrides, const std::string& key) {
  const auto parsed = document(overrides);
  read(parsed);
  const auto& entries = parsed.entries();
  const auto found = std::ranges::find(entries, "parallel." + key, &JsonEntry::key);
  return found == entries.end() ? "nothing" : found->value + " " + found->origin;
}

std::string refusal(const std::vector<std::string>& overrides) {
  return error_text<ConfigError>([&] { read(overrides); });
}

void expect_refused(const std::vector<std::string>& overrides, const std::vector<std::string>& texts) {
  const auto found = refusal(overrides);
  for (const auto& text : texts) EXPECT_NE(found.find(text), std::string::npos) << text << " in\n" << found;
}

TEST(PipelineConfig, WhatIsLeftOutIsUpToTheScheduleAndTheRanks) {
  const auto settings = read({});
  EXPECT_EQ(settings.schedule, "1f1b");
  EXPECT_EQ(settings.virtual_stages, 0);
  EXPECT_EQ(settings.stages, 0);
  EXPECT_TRUE(settings.split.empty());
  EXPECT_TRUE(settings.placement.empty());
  EXPECT_TRUE(settings.unit_costs.empty());
  EXPECT_EQ(settings.memory.rank_bytes, 0);
}

TEST(PipelineConfig, ReadsEveryKey) {
  const auto listed = read({"parallel.schedule=interleaved", "parallel.virtual_stages=3",
                            "parallel.placement=[0, 1, 1]", R"(parallel.split=[["embed"],["layers.0","layers.1"]])"});
  EXPECT_EQ(listed.schedule, "interleaved");
  EXPECT_EQ(listed.virtual_stages, 3);
  EXPECT_EQ(listed.placement, (std::vector<int>{0, 1, 1}));
  EXPECT_EQ(listed.split, (std::vector<std::vector<std::string>>{{"embed"}, {"layers.0", "layers.1"}}));
  const CostFile costs(R"({"embed": 0.5, "layers.0": 2})");
  const auto cut =
      read({"parallel.schedule=./mine.txt", "parallel.split=3", "parallel.split_memory_gb=0.5", costs.assignment()});
  EXPECT_EQ(cut.schedule, "./mine.txt");
  EXPECT_EQ(cut.stages, 3);
  EXPECT_EQ(cut.memory.rank_bytes, std::int64_t{1} << 29);
  EXPECT_EQ(cut.unit_costs, (std::map<std::string, double>{{"embed", 0.5}, {"layers.0", 2}}));
}

TEST(PipelineConfig, PrintsTheVirtualStagesOfTheSchedule) {
  EXPECT_EQ(printed({}, "virtual_stages"), "1 default");
  EXPECT_EQ(printed({"parallel.schedule=zbv"}, "virtual_stages"), "2 default");
  EXPECT_EQ(printed({"parallel.schedule=interleaved"}, "virtual_stages"), "2 default");
  EXPECT_EQ(printed({"parallel.schedule=interleaved", "parallel.split=6"}, "virtual_stages"), "null default");
  EXPECT_EQ(printed({"parallel.schedule=mine.txt"}, "virtual_stages"), "null default");
  EXPECT_EQ(printed({"parallel.virtual_stages=1"}, "virtual_stages"), "1 --set parallel.virtual_stages=1");
  EXPECT_EQ(printed({}, "placement"), "null default");
  EXPECT_EQ(printed({}, "split"), "\"auto\" default");
}

TEST(PipelineConfig, WhatIsPrintedReadsTheSame) {
  for (const auto& overrides : std::vector<std::vector<std::string>>{
           {},
           {"parallel.schedule=zbv"},
           {"parallel.schedule=interleaved"},
           {"parallel.schedule=interleaved", "parallel.split=6"},
           {"parallel.split=4", "parallel.placement=[0,1,1,0]", "parallel.split_memory_gb=3"}}) {
    const auto first = document(overrides);
    const auto settings = read(first);
    const auto second = JsonDocument::parse(resolved_config(first));
    const auto again = read(second);
    EXPECT_EQ(again.placement, settings.placement);
    EXPECT_EQ(again.memory.rank_bytes, settings.memory.rank_bytes);
    const auto graph = build_spec(llama_preset("llama-16"), {.rows = 1, .sequence = 8});
    EXPECT_EQ(make_pipeline(graph, 2, 4, again).table, make_pipeline(graph, 2, 4, settings).table)
        << resolved_config(first);
  }
}

TEST(PipelineConfig, RefusesWrongSchedulesAndCounts) {
  expect_refused(
      {"parallel.schedule=1f2b"},
      {"parallel.schedule: unknown schedule \"1f2b\"",
       "did you mean \"1f1b\"? (one of gpipe, 1f1b, interleaved, zbh1, zbv); a file has a '/' or a '.' in its "
       "name"});
  expect_refused({"parallel.virtual_stages=0"}, {"parallel.virtual_stages: is 0; it must be at least 1"});
  expect_refused({"parallel.virtual_stages=2000000"},
                 {"parallel.virtual_stages: is 2000000; it must be at most 1048576"});
  expect_refused({"parallel.placement=0"}, {"parallel.placement: expected an array, each element an integer"});
  expect_refused({"parallel.placement=[0, \"b\"]"}, {"parallel.placement.1: expected an integer"});
}

TEST(PipelineConfig, RefusesASplitThatIsNone) {
  const std::string remedy = "use \"auto\", \"towers\", a number of stages, or a list of lists of unit names";
  expect_refused({"parallel.split=0"}, {"parallel.split: found 0", remedy});
  expect_refused({"parallel.split=half"}, {"parallel.split: found \"half\"", remedy});
  expect_refused({"parallel.split=[]"}, {"parallel.split: found []", "a list of lists of unit names"});
  expect_refused({R"(parallel.split=["embed"])"}, {"parallel.split: is not a list of lists of unit names",
                                                   R"(use [["embed","layers.0"],["head","loss"]])"});
}

TEST(PipelineConfig, RefusesBadCosts) {
  expect_refused({"parallel.split_costs=no/such.json"}, {"cannot read no/such.json: No such file or directory"});
  const CostFile empty("{}");
  expect_refused({empty.assignment()}, {"costs_RefusesBadCosts.json: no unit has a cost",
                                        R"(write {"unit name": seconds, ...} with every unit of the model)"});
}

TEST(PipelineConfig, RefusesCostsThatAreNoSeconds) {
  {
    const CostFile negative(R"({"layers.0": -1})");
    expect_refused({negative.assignment()},
                   {".json:1:14: layers.0: is -1", "give the seconds that the unit takes, 0 or more"});
  }
  const CostFile text(R"({"embed": "fast"})");
  expect_refused({text.assignment()}, {".json:1:11: embed: expected a number, found the string \"fast\""});
}

TEST(PipelineConfig, RefusesWhatAListOfStagesLeavesNoRoomFor) {
  const std::string list = R"(parallel.split=[["embed"],["head"]])";
  expect_refused({list, "parallel.split_costs=costs.json"},
                 {"parallel.split_costs: is given beside a list of stages in parallel.split",
                  "leave split_costs out, or set parallel.split=auto"});
  expect_refused({list, "parallel.split_memory_gb=4"},
                 {"parallel.split_memory_gb: is given beside a list of stages in parallel.split",
                  "leave split_memory_gb out, or set parallel.split=auto"});
  for (const char* value : {"0", "-1", "1e300"}) {
    expect_refused(
        {std::string("parallel.split_memory_gb=") + value},
        {"it must be above 0 and at most 1048576", "give the GiB that a rank may hold, or leave it out for no bound"});
  }
}

TEST(PipelineConfig, TheMemoryOfUnitsIsTheirStateAndWhatTheyKeep) {
  auto config = llama_preset("llama-tiny");
  config.tie_word_embeddings = true;
  config.freeze = {"layers.0.*"};
  const auto graph = resolved_graph(build_spec(config, {.rows = 1, .sequence = 8}), {}, 1);
  PipelineSettings settings;
  set_memory_bound(settings, graph, Precision{}, 2, Recompute::none);
  EXPECT_TRUE(settings.memory.state_bytes.empty()) << "there is no bound";
  settings.memory.rank_bytes = 1;
  set_memory_bound(settings, graph, Precision{.compute = DType::bfloat16}, 2, Recompute::full);
  ASSERT_EQ(settings.memory.state_bytes.size(), graph.units.size());
  const auto state = [&](const char* unit) {
    return settings.memory.state_bytes[static_cast<std::size_t>(graph.unit_index(unit))];
  };
  const std::int64_t table = 256 * 64;
  constexpr std::int64_t kTrained = 4 + 2 + 4 + 2 * 4;  // stored, multiplied, gradient, moments
  EXPECT_EQ(state("embed"), table * kTrained);
  EXPECT_EQ(state("layers.0"), graph.unit("layers.0").num_parameters() * (4 + 2)) << "frozen";
  EXPECT_EQ(state("layers.1"), graph.unit("layers.1").num_parameters() * kTrained);
  EXPECT_EQ(state("head"), (table + graph.unit("head").num_parameters()) * kTrained) << "the tied table as well";
  EXPECT_EQ(state("loss"), 0);
  for (std::size_t u = 0; u < graph.units.size(); ++u) {
    EXPECT_EQ(settings.memory.kept_bytes[u], graph.units[u].cost.kept_bytes[2]) << graph.units[u].name;
  }
}

TEST(PipelineConfig, TheMemoryOfUnitsIsThatOfTheFullestTensorRank) {
  auto config = llama_preset("llama-tiny");
  config.vocab_size = 257;
  const auto graph = resolved_graph(build_spec(config, {.rows = 1, .sequence = 8}), {}, 2);
  PipelineSettings settings;
  settings.memory.rank_bytes = 1;
  set_memory_bound(settings, graph, Precision{}, 0, Recompute::none);
  EXPECT_EQ(settings.memory.state_bytes[0], 129 * 64 * (4 + 4)) << "rows 128 to 256 of the table";
}

Pipeline pipeline_of(const std::string& file, int ranks = 0) {
  const auto config = read_run_config(load_run_document(std::string(ORTHANT_SOURCE_DIR) + "/configs/" + file, {}));
  return make_pipeline(run_spec(config), ranks > 0 ? ranks : config.mesh.degree(Axis::pp), config.trainer.microbatches,
                       config.trainer.stages);
}

TEST(PipelineConfig, TheConfigurationsOfTheSourceRun) {
  const auto two = pipeline_of("trimodal_pp2.json");
  EXPECT_EQ(two.map.pp_coordinates, (std::vector<int>{0, 1}));
  EXPECT_EQ(two.map.units, (std::vector<std::vector<int>>{{0, 1, 2, 3, 4, 5}, {6, 7, 8, 9, 10, 11, 12, 13, 14}}));
  EXPECT_LT(two.imbalance, 1.01);
  EXPECT_EQ(two.table.num_microbatches, 4);
  const auto four = pipeline_of("trimodal_pp4.json");
  EXPECT_EQ(four.map.units, (std::vector<std::vector<int>>{{0, 1, 2}, {3, 4, 5}, {6, 7, 8, 9, 10, 11}, {12, 13, 14}}));
  EXPECT_EQ(four.pp_degree(), 4);
  const auto branch = pipeline_of("trimodal_branch.json");
  EXPECT_EQ(branch.map.pp_coordinates, (std::vector<int>{0, 1, 1}));
  EXPECT_EQ(branch.table.actions[1].front(), (StageAction{1, StageKind::F, 0})) << "the towers begin together";
  EXPECT_EQ(two.unit_pp_coordinates(), branch.unit_pp_coordinates()) << "the same units on each rank";
  const auto llama = pipeline_of("llama_pp.json");
  EXPECT_EQ(llama.pp_degree(), 2);
  EXPECT_EQ(llama.table.num_microbatches, 8);
  EXPECT_LT(llama.imbalance, 1.2);
  for (const char* file : {"trimodal_pp2.json", "trimodal_pp4.json", "trimodal_branch.json", "llama_pp.json"}) {
    EXPECT_EQ(pipeline_of(file, 1).pp_degree(), 1) << file;
  }
}

TEST(PipelineConfig, TowersAreSeed000sCut) {
  const auto read = [](const std::string& text, const ModelConfig& model) {
    JsonReader section(JsonDocument::parse(text));
    return read_pipeline(section, model);
  };
  const auto found = read(R"({"split": "towers"})", trimodal_preset("trimodal-tiny")).split;
  ASSERT_EQ(found.size(), 2U);
  for (const auto& unit : found[0]) EXPECT_TRUE(unit.starts_with("primary.")) << unit;
  for (const auto& unit : found[1]) EXPECT_FALSE(unit.starts_with("primary.")) << unit;
  EXPECT_EQ(found[0].front(), "primary.embed");
  EXPECT_EQ(found[1].front(), "secondary.embed");
  const auto refused = error_text<ConfigError>([&] { read(R"({"split": "towers"})", LlamaConfig()); });
  EXPECT_NE(refused.find("split: is \"towers\", and a model of kind llama has none"), std::string::npos) << refused;
}

}  // namespace pipeline_config_test
}  // namespace orthant
