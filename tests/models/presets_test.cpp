#include "orthant/models/presets.h"

#include <gtest/gtest.h>

#include <map>

#include "models/model_text.h"
#include "orthant/models/bert/config.h"
#include "orthant/models/bert/tower.h"
#include "orthant/models/gpt2/config.h"
#include "orthant/models/llama/config.h"
#include "orthant/models/mistral/config.h"
#include "orthant/models/mixtral/config.h"
#include "orthant/models/qwen2_moe/config.h"
#include "orthant/models/qwen3/config.h"
#include "orthant/models/qwen3_moe/config.h"
#include "orthant/models/trimodal/config.h"

namespace orthant {
namespace presets_test {

using Counts = std::map<std::string, std::int64_t>;

TEST(Presets, LlamasHaveTheirPublishedParameterCounts) {
  const Counts expected = {{"llama2-7b", 6'738'415'616},
                           {"llama2-13b", 13'015'864'320},
                           {"llama2-70b", 68'976'648'192},
                           {"llama3-8b", 8'030'261'248},
                           {"llama3-70b", 70'553'706'496},
                           {"llama3.1-8b", 8'030'261'248},
                           {"llama3.1-70b", 70'553'706'496},
                           {"llama3-405b", 405'853'388'800},
                           {"llama-1b", 1'100'048'384},
                           {"llama-tiny", 2 * (12288 + 36864 + 128) + 64 + 32768},
                           {"llama-16", 14 * (3072 + 9216 + 64) + 32 + 16384}};
  Counts counts;
  for (const auto& name : preset_names(llama_family())) {
    counts[name] = llama_spec(llama_preset(name), work_of(1, 1)).num_parameters();
  }
  EXPECT_EQ(counts, expected);
}

TEST(Presets, FamiliesOfLlamaHaveTheirPublishedParameterCounts) {
  const Counts expected = {{"qwen3-0.6b", 596'049'920},
                           {"qwen3-1.7b", 1'720'574'976},
                           {"qwen3-4b", 4'022'468'096},
                           {"qwen3-8b", 8'190'735'360},
                           {"qwen3-14b", 14'768'307'200},
                           {"qwen3-32b", 32'762'123'264},
                           {"qwen3-tiny", 2 * (24576 + 36864 + 128 + 64) + 64 + 32768},
                           {"mistral-7b", 7'241'732'096},
                           {"mistral-tiny", 2 * (12288 + 36864 + 128) + 64 + 32768}};
  Counts counts;
  for (const Family* family : {&qwen3_family(), &mistral_family()}) {
    for (const auto& name : preset_names(*family)) {
      counts[name] = build_spec(llama_preset(name), work_of(1, 1)).num_parameters();
    }
  }
  EXPECT_EQ(counts, expected);
  EXPECT_EQ(llama_preset("mistral-7b").sliding_window, 4096);
  EXPECT_EQ(llama_preset("qwen3-8b").head_dim, 128);
}

TEST(Presets, MixturesOfExpertsHaveTheirPublishedParameterCounts) {
  const Counts expected = {
      {"mixtral-8x7b", 46'702'792'704},
      {"mixtral-8x22b", 140'620'634'112},
      {"mixtral-tiny", 2 * (12288 + 4 * (64 + 3 * 64 * 96) + 128) + 64 + 32768},
      {"qwen3-30b-a3b", 30'532'122'624},
      {"qwen3-235b-a22b", 235'093'634'560},
      {"qwen3-moe-tiny", 2 * (24576 + 8 * (64 + 3 * 64 * 48) + 128 + 64) + 64 + 32768},
      {"qwen1.5-moe-a2.7b", 14'315'784'192},
      {"qwen2-57b-a14b", 57'408'658'944},
      {"qwen2-moe-tiny", 2 * (12288 + 128 + 8 * (64 + 3 * 64 * 48) + 3 * 64 * 96 + 64 + 128) + 64 + 32768}};
  Counts counts;
  for (const Family* family : {&mixtral_family(), &qwen3_moe_family(), &qwen2_moe_family()}) {
    for (const auto& name : preset_names(*family)) {
      counts[name] = build_spec(llama_preset(name), work_of(1, 1)).num_parameters();
    }
  }
  EXPECT_EQ(counts, expected);
  EXPECT_TRUE(llama_preset("qwen3-30b-a3b").experts.normalised);
  EXPECT_FALSE(llama_preset("qwen1.5-moe-a2.7b").experts.normalised);
}

TEST(Presets, BertsHaveTheirPublishedParameterCountsWithPooler) {
  const Counts expected = {
      {"bert-base-cased", 108'310'272},          {"bert-large-cased", 333'579'264}, {"bert-base-uncased", 109'482'240},
      {"bert-large-uncased", 335'141'888},       {"roberta-base", 124'645'632},     {"roberta-large", 355'359'744},
      {"bert-tiny", 73'984 + 2 * 49'984 + 4'160}};
  Counts counts;
  for (const auto& name : preset_names(bert_family())) {
    GraphSpec spec;
    append_bert_tower(spec, {"primary", bert_preset(name)}, work_of(1, 1));
    counts[name] = spec.num_parameters();
  }
  EXPECT_EQ(counts, expected);
}

// Narayanan 2021, equation 2, and a last norm.
TEST(Presets, ModelsOfGpt3StyleHaveTheirPublishedParameterCounts) {
  const std::map<std::string, double> billions = {{"gpt-1.7b", 1.7},      {"gpt-3.6b", 3.6},    {"gpt-7.5b", 7.5},
                                                  {"gpt-18.4b", 18.4},    {"gpt-39.1b", 39.1},  {"gpt-76.1b", 76.1},
                                                  {"gpt-145.6b", 145.6},  {"gpt3-175b", 174.6}, {"gpt-310.1b", 310.1},
                                                  {"mt-nlg-530b", 529.6}, {"gpt-1t", 1008.0},   {"gpt-22b", 22.1}};
  for (const auto& [name, count] : billions) {
    const Gpt2Config config = gpt2_preset(name);
    const std::int64_t h = config.hidden_size;
    const std::int64_t exact = config.num_hidden_layers * (12 * h * h + 13 * h) + (51200 + 2048) * h + 2 * h;
    EXPECT_EQ(gpt2_spec(config, work_of(1, 1)).num_parameters(), exact) << name;
    EXPECT_NEAR(static_cast<double>(exact) / 1e9, count, 0.05) << name;
  }
}

TEST(Presets, SmallModelsHaveUnitsForSixteenStages) {
  EXPECT_EQ(llama_spec(llama_preset("llama-16"), work_of(1, 1)).units.size(), 17U);
  EXPECT_EQ(trimodal_spec(trimodal_preset("trimodal-16"), work_of(1, 1)).units.size(), 17U);
  EXPECT_EQ(trimodal_spec(trimodal_preset("trimodal-tiny"), work_of(1, 1)).units.size(), 11U);
  EXPECT_EQ(preset_names(trimodal_family()), (std::vector<std::string>{"trimodal-tiny", "trimodal-16"}));
}

TEST(Presets, HavePublishedConstants) {
  EXPECT_EQ(llama_preset("llama3-70b").rope_theta, 500000);
  EXPECT_EQ(llama_preset("llama3.1-8b").rope_scaling.factor, 8);
  EXPECT_EQ(llama_preset("llama3-405b").rope_scaling.original_max_position_embeddings, 8192);
  EXPECT_EQ(llama_preset("llama3-8b").rope_scaling, RopeScaling{});
  EXPECT_EQ(llama_preset("llama2-7b").rms_norm_eps, 1e-5);
  EXPECT_EQ(llama_preset("llama2-7b").max_position_embeddings, 4096);
  EXPECT_EQ(bert_preset("bert-base-cased").layer_norm_eps, 1e-12);
  const BertConfig roberta = bert_preset("roberta-large");
  EXPECT_EQ(roberta.layer_norm_eps, 1e-5);
  EXPECT_EQ(roberta.position_offset, roberta.pad_token_id + 1);
  EXPECT_EQ(roberta.max_sequence(), 512);
}

TEST(Presets, BelongToOneFamily) {
  for (const Family* family : families()) {
    for (const auto& name : preset_names(*family)) EXPECT_EQ(family_of_preset(name), family) << name;
  }
  EXPECT_EQ(family_of_preset("gpt3"), nullptr);
}

TEST(Presets, SuggestTheNearestName) {
  EXPECT_EQ(error_text<ConfigError>([] { llama_preset("llama3-7b"); }),
            "llama.preset: unknown preset \"llama3-7b\"\n  fix: did you mean \"llama2-7b\"? (one of llama2-7b, "
            "llama2-13b, llama2-70b, llama3-8b, llama3-70b, llama3.1-8b, llama3.1-70b, llama3-405b, llama-1b, "
            "llama-tiny, llama-16)");
  EXPECT_EQ(error_text<ConfigError>([] { trimodal_preset("bert-tiny"); }),
            "trimodal.preset: \"bert-tiny\" is a bert preset; a trimodal preset is expected here\n"
            "  fix: one of trimodal-tiny, trimodal-16");
}

}  // namespace presets_test
}  // namespace orthant
