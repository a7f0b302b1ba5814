#include "orthant/plan/estimate/inference_size.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error_text.h"
#include "orthant/base/error.h"

namespace orthant {
namespace inference_size_test {

constexpr std::int64_t kGiB = std::int64_t{1} << 30;

// A card that keeps nothing back.
Hardware card(std::int64_t memory_bytes) {
  Hardware hardware;
  hardware.name = "card";
  hardware.memory_bytes = memory_bytes;
  hardware.cards_per_node = 8;
  return hardware;
}

InferenceRequest request(const std::string& model, const std::string& mesh, std::int64_t context, std::int64_t batch) {
  InferenceRequest asked;
  asked.model = find_plan_model(model);
  asked.hardware = card(80 * kGiB);
  asked.mesh = Mesh::parse(mesh);
  asked.context = context;
  asked.batch = batch;
  return asked;
}

PlanModel with_kv_heads(const std::string& name, std::int64_t kv_heads) {
  PlanModel model = find_plan_model(name);
  model.config.reset();
  model.shape->kv_heads = kv_heads;
  return model;
}

TEST(InferenceSize, WeightsAndCacheOfLlama3On8Cards) {
  const InferenceSize size = size_inference(request("llama3-70b", "pp=2,tp=4", 2048, 32));
  ASSERT_EQ(size.stages.size(), 2U);
  // A layer: q and o 8192 x 8192, k and v 8192 x 1024, three of 8192 x 28672, all over 4; two norms.
  const std::int64_t layer = (2 * 8192 * 8192 + 2 * 8192 * 1024 + 3 * std::int64_t{8192} * 28672) / 4 + 2 * 8192;
  const std::int64_t table = std::int64_t{128256} * 8192 / 4;
  EXPECT_EQ(size.stages[0].weights, 2 * (40 * layer + table));
  EXPECT_EQ(size.stages[1].weights, 2 * (40 * layer + table + 8192));
  EXPECT_EQ(size.stages[0].weights, 17'639'407'616);
  EXPECT_EQ(size.stages[0].cache, 2'684'354'560);  // 2 x 40 layers x 2 heads x 128 x 2 bytes x 65536 tokens
  EXPECT_EQ(size.stages[1].cache, 2'684'354'560);
  EXPECT_EQ(size.cache_bytes_per_token, 40'960);
  EXPECT_EQ(size.cache_copies, 1);
  EXPECT_TRUE(size.fits);
}

TEST(InferenceSize, OneCardHoldsEveryParameterOnce) {
  for (const char* name :
       {"llama2-7b", "llama3-8b", "llama3-70b", "llama2-70b", "llama3-405b", "gpt2-xl", "llama-1b"}) {
    const PlanModel model = find_plan_model(name);
    const InferenceSize size = size_inference(request(name, "dp=1", 1024, 1));
    EXPECT_EQ(size.stages.at(0).weights, 2 * model.num_parameters()) << name;
  }
}

TEST(InferenceSize, SharedHeadsShrinkTheCache) {
  EXPECT_EQ(size_inference(request("llama2-7b", "dp=1", 4096, 1)).cache_bytes_per_token, 2 * 32 * 32 * 128 * 2);
  EXPECT_EQ(size_inference(request("llama3-8b", "dp=1", 4096, 1)).cache_bytes_per_token, 2 * 32 * 8 * 128 * 2);
  auto asked = request("llama2-70b", "tp=8", 4096, 1);
  EXPECT_EQ(size_inference(asked).cache_bytes_per_token, 2 * 80 * 1 * 128 * 2);
  asked.model = with_kv_heads("llama2-70b", 64);
  EXPECT_EQ(size_inference(asked).cache_bytes_per_token, 2 * 80 * 8 * 128 * 2);
  asked.cache = DType::uint8;
  EXPECT_EQ(size_inference(asked).cache_bytes_per_token, 2 * 80 * 8 * 128);
}

TEST(InferenceSize, MoreRanksThanKeyValueHeadsHoldCopies) {
  const InferenceSize eight = size_inference(request("llama3-405b", "tp=8", 8192, 1));
  const InferenceSize sixteen = size_inference(request("llama3-405b", "tp=16", 8192, 1));
  EXPECT_EQ(eight.cache_bytes_per_token, 2 * 126 * 1 * 128 * 2);
  EXPECT_EQ(sixteen.cache_bytes_per_token, eight.cache_bytes_per_token);
  EXPECT_EQ(eight.cache_copies, 1);
  EXPECT_EQ(sixteen.cache_copies, 2);
  // Of keys and values a rank has a whole head's rows, of everything else a sixteenth.
  const std::int64_t hidden = 16384;
  const std::int64_t layer = 2 * hidden * hidden / 16 + 2 * hidden * 128 + 3 * hidden * 53248 / 16 + 2 * hidden;
  EXPECT_EQ(sixteen.stages[0].weights, 2 * (126 * layer + 2 * 128256 * hidden / 16 + hidden));
}

TEST(InferenceSize, ExpertsAreSpreadOverTensorRanks) {
  const InferenceSize size = size_inference(request("mixtral-8x7b", "tp=4", 4096, 1));
  const std::int64_t attention = (2 * 4096 * 4096 + 2 * 4096 * 1024) / 4 + 2 * 4096;
  const std::int64_t experts = 2 * 3 * std::int64_t{4096} * 14336 + 8 * 4096;  // two of eight, and the router
  EXPECT_EQ(size.stages[0].weights, 2 * (32 * (attention + experts) + 2 * 32000 * 4096 / 4 + 4096));
}

TEST(InferenceSize, StagesShareTheLayers) {
  const InferenceSize size = size_inference(request("llama3-405b", "pp=4,tp=8", 8192, 1));
  std::int64_t layers = 0;
  std::int64_t most = 0;
  for (const InferenceStage& stage : size.stages) {
    EXPECT_EQ(stage.cache, 2 * stage.layers * 128 * 2 * 8192);
    layers += stage.layers;
    most = std::max(most, stage.layers);
  }
  EXPECT_EQ(layers, 126);
  EXPECT_EQ(most, 32);
  EXPECT_EQ(size.cache_bytes_per_token, 2 * 32 * 128 * 2);
}

TEST(InferenceSize, LargestBatchFillsTheCard) {
  auto asked = request("llama2-7b", "dp=1", 4096, 1);
  asked.hardware = card(40 * kGiB);
  const InferenceSize size = size_inference(asked);
  EXPECT_EQ(size.stages[0].weights, 13'476'831'232);
  // 2048 tokens at once: two hidden states and three channels of the MLP; logits of one token.
  EXPECT_EQ(size.stages[0].working, 2048 * (2 * 4096 + 3 * 11008) * 2 + 32000 * 4);
  // (42949672960 - 13476831232 - 168820736) / (4096 x 524288 + 128000) = 13.6
  EXPECT_EQ(size.largest_batch, 13);
  asked.batch = 13;
  EXPECT_TRUE(size_inference(asked).fits);
  asked.batch = 14;
  const InferenceSize large = size_inference(asked);
  EXPECT_FALSE(large.fits);
  EXPECT_EQ(large.why_not, "a card needs 40.7 GiB (12.6 GiB weights, 28 GiB cache) and has 40 GiB");
  EXPECT_EQ(large.largest_context, 3992);  // (29304020992 - 14 x 128000) / (14 x 524288)
  EXPECT_EQ(large.smallest_mesh, Mesh::parse("tp=2"));
  for (const ContextRow& row : large.contexts) {
    asked.context = row.context;
    asked.batch = row.largest_batch;
    EXPECT_TRUE(size_inference(asked).fits) << row.context;
    ++asked.batch;
    EXPECT_FALSE(size_inference(asked).fits) << row.context;
  }
}

TEST(InferenceSize, WeightsThatDoNotFitLeaveNoBatch) {
  auto asked = request("llama3-70b", "tp=1", 8192, 1);
  const InferenceSize size = size_inference(asked);
  EXPECT_FALSE(size.fits);
  EXPECT_EQ(size.largest_batch, 0);
  EXPECT_EQ(size.largest_context, 0);
  EXPECT_EQ(size.smallest_mesh, Mesh::parse("tp=2"));
  asked.hardware = card(4 * kGiB);
  asked.hardware.cards_per_node = 1;
  EXPECT_EQ(size_inference(asked).smallest_mesh, Mesh::parse("pp=41"));
  asked.hardware = card(kGiB / 4);
  EXPECT_EQ(size_inference(asked).smallest_mesh, std::nullopt);
}

TEST(InferenceSize, WithoutAMeshItIsTheOneOfFewestCards) {
  auto asked = request("llama3-70b", "dp=1", 8192, 16);
  asked.mesh.reset();
  const InferenceSize size = size_inference(asked);
  EXPECT_TRUE(size.fits);
  EXPECT_EQ(size.mesh, size.smallest_mesh);
  EXPECT_EQ(size.mesh, Mesh::parse("pp=3"));  // weights 131.4 GiB, cache 40 GiB; tp 3 divides no heads
}

TEST(InferenceSize, ReserveOfTheCardCounts) {
  auto asked = request("llama2-7b", "dp=1", 4096, 1);
  asked.hardware.reserve_bytes = kGiB;
  asked.hardware.reserve_share = 0.5;
  const InferenceStage stage = size_inference(asked).stages[0];
  EXPECT_EQ(stage.reserve, kGiB + (stage.weights + stage.cache + stage.working) / 2);
}

TEST(InferenceSize, ContextIsTheLongestUnlessGiven) {
  EXPECT_EQ(size_inference(request("llama3-8b", "dp=1", 0, 1)).request.context, 8192);
  const InferenceSize size = size_inference(request("llama3-8b", "dp=1", 3000, 1));
  std::vector<std::int64_t> contexts;
  for (const ContextRow& row : size.contexts) contexts.push_back(row.context);
  EXPECT_EQ(contexts, (std::vector<std::int64_t>{1024, 2048, 3000, 4096, 8192}));
}

std::string refused(const std::string& model, const std::string& mesh, std::int64_t context, std::int64_t batch) {
  return error_text<ConfigError>([&] { size_inference(request(model, mesh, context, batch)); });
}

TEST(InferenceSize, RefusesWhatCannotBeServed) {
  EXPECT_EQ(refused("bert-base-cased", "dp=1", 512, 1),
            "--inference: bert-base-cased keeps no cache of keys and values: it is no causal decoder\n"
            "  fix: name a language model, as in --model llama3-70b");
  EXPECT_EQ(refused("llama3-8b", "fsdp=2", 4096, 1),
            "--inference: mesh fsdp=2 has fsdp=2\n"
            "  fix: a served model is cut over tp and pp; dp copies serve on their own");
  EXPECT_EQ(refused("llama3-8b", "tp=3", 4096, 1),
            "tp=3 does not divide 32 heads and 8 key/value heads\n"
            "  fix: set tp to a divisor of both, or to a multiple of the key/value heads that divides the heads");
  EXPECT_EQ(refused("llama3-8b", "pp=33", 4096, 1), "pp=33 is more than 32 layers\n  fix: set pp=32 or less");
  EXPECT_EQ(refused("llama3-8b", "dp=1", 9000, 1),
            "--context is 9000, but llama3-8b reads 8192 tokens at most\n"
            "  fix: set --context 8192 or less, or name a model with more positions");
  EXPECT_EQ(refused("llama3-8b", "dp=1", 4096, 0), "--batch is 0\n  fix: set it from 1 to 1099511627776");
  EXPECT_EQ(refused("llama3-8b", "dp=1", 8192, std::int64_t{1} << 40),
            "--batch 1099511627776 of --context 8192 is more than any card holds\n"
            "  fix: set smaller ones; the largest that fit are printed");
  EXPECT_EQ(refused("llama3-8b", "dp=1", -1, 1), "--context is -1\n  fix: set it from 1 to 1099511627776");
}

TEST(InferenceSize, TextAndJsonSayTheSame) {
  const InferenceSize size = size_inference(request("llama3-405b", "pp=2,tp=16", 8192, 4));
  const std::string text = inference_text(size);
  EXPECT_NE(text.find("llama3-405b in bfloat16 on pp=2,tp=16, 4 sequences of 8192 tokens: fits\n"), std::string::npos)
      << text;
  EXPECT_NE(text.find("2 tp ranks hold the same key/value head: tp=16, 8 of them.\n"), std::string::npos);
  const auto json = nlohmann::json::parse(to_json(size));
  EXPECT_EQ(json["mesh"], "pp=2,tp=16");
  EXPECT_EQ(json["stages"].size(), 2U);
  EXPECT_EQ(json["stages"][0]["total"], size.stages[0].total());
  EXPECT_EQ(json["largest_batch"], size.largest_batch);
  EXPECT_EQ(json["contexts"].size(), size.contexts.size());
}

}  // namespace inference_size_test
}  // namespace orthant
