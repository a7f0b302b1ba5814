// The tables that this project began from as priced plans: a sizing guide for nodes of four 40 GB cards, deployments on
// 8, 16, 32 and more, and advice for 2 and 4. Each row says whether it fits; what the search chooses for the same cards
// and batch fits too and is at least as fast. docs/planner_deployments.md holds the lines that these rows print.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "orthant/base/human.h"
#include "orthant/plan/estimate/plan.h"
#include "orthant/plan/search/search.h"

namespace orthant {
namespace deployment_rows_test {

struct Row {
  std::string asked;   // the table's words
  std::string config;  // below configs/
  std::string mesh;
  std::string card;
  bool fits = true;
  int zero = -1;  // the configuration's
};

// Sizing by model, four A100 of 40 GB in a node; what it says of 13B besides; its meshes of three and four axes.
const std::vector<Row> kSizing = {
    {"< 3B: TP 1, FSDP 4", "deployments/llama_1b_fsdp4.json", "fsdp=4", "derecho"},
    {"7B: TP 4, FSDP 2", "deployments/llama_7b_fsdp2_tp4.json", "fsdp=2,tp=4", "derecho"},
    {"13B: TP 4, FSDP 4", "deployments/llama_13b_fsdp4_tp4.json", "fsdp=4,tp=4", "derecho"},
    {"30B: TP 4, FSDP 8", "deployments/llama_30b_fsdp8_tp4.json", "fsdp=8,tp=4", "derecho"},
    {"70B: TP 4, FSDP 20", "deployments/llama_70b_fsdp20_tp4.json", "fsdp=20,tp=4", "derecho"},
    {"13B: DDP does not fit", "deployments/llama_13b_fsdp4_tp4.json", "dp=8", "derecho", false},
    {"13B: TP alone, one node", "deployments/llama_13b_fsdp4_tp4.json", "tp=4", "derecho", false},
    {"13B: FSDP alone, 2 nodes", "deployments/llama_13b_fsdp4_tp4.json", "fsdp=8", "derecho"},
    {"13B: FSDP alone, 4 nodes", "deployments/llama_13b_fsdp4_tp4.json", "fsdp=16", "derecho"},
    {"70B: TP 4, PP 4, FSDP 4", "deployments/llama_70b_pp4_fsdp4_tp4.json", "pp=4,fsdp=4,tp=4", "derecho", false},
    {"the same, 80 GB cards", "deployments/llama_70b_pp4_fsdp4_tp4.json", "pp=4,fsdp=4,tp=4", "a100-80gb"},
    {"> 100B: TP 4 and SP, PP 4, FSDP 4", "deployments/llama_110b_pp4_fsdp4_tp4_sp.json", "pp=4,fsdp=4,tp=4", "derecho",
     false},
    {"the same, 80 GB cards", "deployments/llama_110b_pp4_fsdp4_tp4_sp.json", "pp=4,fsdp=4,tp=4", "a100-80gb"}};

// Two towers on 8, 16, 32 and more cards.
const std::vector<Row> kDeployments = {
    {"bert-base: PP 2, DP 4", "hybrid_pp_dp_16gpu.json", "pp=2,dp=4", "a100-40gb"},
    {"bert-base: prefer pure DDP", "hybrid_pp_dp_16gpu.json", "dp=8", "a100-40gb"},
    {"bert-large: PP 2, FSDP 4", "deployments/bert_large_pp2_dp8.json", "pp=2,fsdp=4", "a100-40gb", true, 3},
    {"roberta-large > 1B: PP 4, FSDP 2", "deployments/roberta_large_pp4_fsdp2.json", "pp=4,fsdp=2", "a100-40gb"},
    {"bert-base: PP 2, DP 8", "hybrid_pp_dp_16gpu.json", "pp=2,dp=8", "a100-40gb"},
    {"bert-large: PP 2, DP 8", "deployments/bert_large_pp2_dp8.json", "pp=2,dp=8", "a100-40gb"},
    {"bert-large: PP 4, DP 4", "deployments/bert_large_pp2_dp8.json", "pp=4,dp=4", "a100-40gb"},
    {"roberta-large > 1B: PP 4, FSDP 4", "hybrid_fsdp_pp_16gpu.json", "pp=4,fsdp=4", "a100-40gb"},
    {"> 2B: PP 4, TP 2, DP 2", "deployments/trimodal_2b_pp4_tp2_dp2.json", "pp=4,dp=2,tp=2", "a100-40gb"},
    {"bert-large: PP 2, DP 16", "deployments/bert_large_pp2_dp16.json", "pp=2,dp=16", "a100-40gb"},
    {"roberta-large: PP 4, DP 8", "deployments/roberta_large_pp4_dp8.json", "pp=4,dp=8", "a100-40gb"},
    {"roberta-large: PP 4, FSDP 8", "deployments/roberta_large_pp4_dp8.json", "pp=4,fsdp=8", "a100-40gb", true, 3},
    {"5B-10B: PP 8, TP 2, DP 2", "deployments/trimodal_6b_pp8_tp2_dp2.json", "pp=8,dp=2,tp=2", "a100-40gb"},
    {"> 10B: PP 8, TP 4, DP 2", "deployments/trimodal_12b_pp8_tp4_dp2.json", "pp=8,dp=2,tp=4", "a100-40gb"},
    {"> 10B: PP 8, TP 4, DP 1", "deployments/trimodal_12b_pp8_tp4_dp2.json", "pp=8,tp=4", "a100-40gb"}};

// Two towers on 2 and 4 cards.
const std::vector<Row> kFewCards = {
    {"< 1B: DDP on 2", "hybrid_pp_dp_16gpu.json", "dp=2", "a100-40gb"},
    {"< 1B: DDP on 4", "hybrid_pp_dp_16gpu.json", "dp=4", "a100-40gb"},
    {"< 1B: FSDP on 4", "hybrid_pp_dp_16gpu.json", "fsdp=4", "a100-40gb", true, 3},
    {"> 1B: FSDP on 2", "deployments/roberta_large_pp4_fsdp2.json", "fsdp=2", "a100-40gb"},
    {"> 1B: FSDP on 4", "deployments/roberta_large_pp4_fsdp2.json", "fsdp=4", "a100-40gb"},
    {"bert-base: PP 2", "hybrid_pp_dp_16gpu.json", "pp=2", "a100-40gb"},
    {"bert-base: PP 4", "hybrid_pp_dp_16gpu.json", "pp=4", "a100-40gb"}};

std::string config_path(const Row& row) {
  return ORTHANT_SOURCE_DIR "/configs/" + row.config;
}

// As `train` would read the file, on the row's mesh.
PlanSettings settings_of(const Row& row) {
  std::ifstream file(config_path(row));
  const auto config = nlohmann::json::parse(file);
  const auto parallel = config.value("parallel", nlohmann::json::object());
  const auto precision = config.value("precision", nlohmann::json::object());
  PlanSettings settings;
  settings.mesh = Mesh::parse(row.mesh);
  settings.global_batch = config["train"]["global_batch_size"];
  settings.sequence = config["data"]["sequence_length"];
  const std::int64_t shares = settings.replicas() * parallel.value("microbatches", 1);
  settings.micro_batch = std::max<std::int64_t>(1, settings.global_batch / shares);
  settings.stages.schedule = parallel.value("schedule", "1f1b");
  settings.split = "auto";
  settings.data.zero = row.zero >= 0 ? row.zero : parallel.value("zero", 0);
  settings.data.accumulate_sharded =
      settings.mesh.degree(Axis::fsdp) > 1 && parallel.value("accumulate", "full") == "sharded";
  settings.data = effective_policy(settings.data, settings.mesh);
  settings.tensor.sequence_parallel = parallel.value("sequence_parallel", false);
  settings.tensor.loss_parallel = parallel.value("loss_parallel", false);
  settings.tensor.regather = parallel.value("regather", false);
  settings.recompute = parse_plan_recompute(parallel.value("recompute", "none"));
  settings.compute = parse_dtype(precision.value("compute", "float32"));
  return settings;
}

SearchRequest request_of(const Row& row, const PlanSettings& settings) {
  SearchRequest request;
  request.model = find_plan_model(config_path(row));
  request.hardware = find_hardware(row.card);
  request.cards = settings.mesh.world_size();
  request.global_batch = settings.global_batch;
  request.sequence = settings.sequence;
  request.compute = settings.compute;
  request.top = 1;
  return request;
}

// Rows of the same model, cards and batch share a search.
const SearchResult& found_for(const Row& row, const SearchRequest& request) {
  static std::map<std::string, SearchResult> found;
  const std::string key = fmt::format("{} {} {}", row.config, row.card, request.cards);
  const auto known = found.find(key);
  return known != found.end() ? known->second : found.emplace(key, search(request)).first->second;
}

// "pp=2,fsdp=4, zero 3, recompute full".
std::string choice_text(const PlanSettings& settings) {
  std::string text = settings.mesh.to_string();
  if (settings.mesh.degree(Axis::fsdp) > 1) text += fmt::format(", zero {}", settings.data.zero);
  if (settings.mesh.degree(Axis::pp) > 1) text += ", " + settings.stages.schedule;
  if (settings.recompute != PlanRecompute::none) {
    text += fmt::format(", recompute {}", plan_recompute_name(settings.recompute));
  }
  return text;
}

void expect_good_choice(const SearchResult& found, const SearchRequest& request, const Plan& asked) {
  if (found.plans.empty()) {
    EXPECT_FALSE(asked.fits);
    EXPECT_FALSE(found.advice.empty());
    return;
  }
  const Plan& chosen = found.plans.front();
  EXPECT_TRUE(chosen.fits);
  EXPECT_LE(chosen.peak_bytes(), request.hardware.memory_bytes);
  EXPECT_EQ(chosen.settings.mesh.world_size(), request.cards);
  // Replicas alone are chosen where they are almost as fast.
  const double slower = found.simple.empty() ? 1.001 : 1.05;
  if (asked.fits) EXPECT_LE(chosen.time.step, asked.time.step * slower) << choice_text(chosen.settings);
}

// Searches of large machines take seconds each: all of them with ORTHANT_EXHAUSTIVE=1.
bool exhaustive() {
  return std::getenv("ORTHANT_EXHAUSTIVE") != nullptr;
}

bool is_searched(const SearchRequest& request) {
  return exhaustive() || request.cards <= 4;
}

// | asked | configuration | mesh | card | memory | fits | we choose | gain | plain dp |
std::string priced_line(const Row& row) {
  SCOPED_TRACE(row.asked + " on " + row.mesh);
  const PlanSettings settings = settings_of(row);
  const SearchRequest request = request_of(row, settings);
  const Plan asked = estimate(request.model, settings, request.hardware, find_stack("orthant"));
  EXPECT_EQ(asked.fits, row.fits) << asked.why_not;
  EXPECT_EQ(asked.fits, asked.peak_bytes() <= request.hardware.memory_bytes);

  if (!is_searched(request)) return "";
  const SearchResult& found = found_for(row, request);
  expect_good_choice(found, request, asked);
  const std::string choice = found.plans.empty() ? "nothing fits" : choice_text(found.plans.front().settings);
  const std::string gain =
      found.plans.empty() || !asked.fits ? "" : fmt::format("{:.2f}", asked.time.step / found.plans.front().time.step);
  return fmt::format("| {} | `{}` | {} | {} | {} | {} | {} | {} | {} |\n", row.asked, row.config, row.mesh, row.card,
                     format_bytes(asked.peak_bytes()), asked.fits ? "yes" : "no", choice, gain,
                     found.simple.empty() ? "" : "yes");
}

std::string documented(const std::string& title) {
  std::ifstream page(ORTHANT_SOURCE_DIR "/docs/planner_deployments.md");
  std::string text;
  bool inside = false;
  for (std::string line; std::getline(page, line);) {
    if (line.starts_with("## ")) inside = line == "## " + title;
    if (inside && line.find("| `") != std::string::npos) text += line + "\n";
  }
  return text;
}

void expect_documented(const std::string& title, const std::vector<Row>& rows) {
  std::string lines;
  for (const Row& row : rows) lines += priced_line(row);
  if (exhaustive()) EXPECT_EQ(documented(title), lines) << "docs/planner_deployments.md: " << title << "\n" << lines;
}

TEST(DeploymentRows, SizingByModelOnNodesOfFourCards) {
  expect_documented("Sizing by model", kSizing);
}

TEST(DeploymentRows, TwoTowersOn8And16And32Cards) {
  expect_documented("Two towers on 8, 16 and 32 cards", kDeployments);
}

TEST(DeploymentRows, TwoTowersOn2And4Cards) {
  expect_documented("Two towers on 2 and 4 cards", kFewCards);
}

// Llama 3 405B, 131,072 tokens a row on 16,384 H100: 380 TFLOP/s a card were published, which is a step of 10.9 s where
// a causal mask halves attention's FLOPs and 15.3 s where it does not.
TEST(DeploymentRows, ALongContextAsItWasPublished) {
  PlanSettings settings;
  settings.mesh = Mesh::parse("pp=16,fsdp=8,cp=16,tp=8");
  settings.global_batch = 128;
  settings.sequence = 131072;
  settings.stages.schedule = "interleaved";
  settings.stages.virtual_stages = 8;
  settings.data.zero = 2;
  settings.tensor = {.sequence_parallel = true, .loss_parallel = true};
  settings.context = ContextWay::gather;
  std::string lines;
  for (const char* stack : {"megatron", "orthant"}) {
    const Plan plan = estimate(find_plan_model("llama3-405b"), settings, find_hardware("h100-80gb"), find_stack(stack));
    lines += fmt::format("| llama3-405b | `--stack {}` | {} | {} | {:.1f} s | {} |\n", stack,
                         format_bytes(plan.peak_bytes()), plan.fits ? "yes" : "no", plan.time.step,
                         format_bytes(plan.traffic.front().cp.bytes));
    if (std::string(stack) != "megatron") continue;
    EXPECT_GT(plan.time.step, 10.9 * 0.9);
    EXPECT_LT(plan.time.step, 15.3 * 1.1);
  }
  EXPECT_EQ(documented("A long context"), lines) << lines;
}

// Fewer than 500M parameters on 2 to 8 cards.
TEST(DeploymentRows, SmallModelsAreToldToUsePlainReplicas) {
  const auto simple = [](const Row& row) { return found_for(row, request_of(row, settings_of(row))).simple; };
  for (const auto& rows : {kFewCards, kDeployments}) {
    for (const Row& row : rows) {
      const int most = exhaustive() ? 8 : 4;
      const bool small = row.config == "hybrid_pp_dp_16gpu.json" && settings_of(row).mesh.world_size() <= most;
      if (small) EXPECT_NE(simple(row), "") << row.asked;
    }
  }
  for (const Row& row : kSizing) {
    if (!exhaustive()) break;
    if (row.config != "deployments/llama_1b_fsdp4.json") EXPECT_EQ(simple(row), "") << row.asked;
  }
}

}  // namespace deployment_rows_test
}  // namespace orthant
