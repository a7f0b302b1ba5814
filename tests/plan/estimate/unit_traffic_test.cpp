#include "orthant/plan/estimate/unit_traffic.h"

#include <gtest/gtest.h>

#include <random>

#include "base/error_text.h"
#include "models/small_models.h"
#include "orthant/layout/tensor_policy.h"
#include "orthant/models/bert/config.h"
#include "orthant/models/encoder_lm/config.h"
#include "orthant/models/freeze.h"
#include "orthant/models/gpt2/config.h"
#include "orthant/models/llama/config.h"
#include "orthant/models/trimodal/config.h"
#include "orthant/schedule/pipeline.h"

namespace orthant {

// For gtest's messages.
static void PrintTo(const TpTraffic& traffic, std::ostream* out) {
  const auto print = [&](const char* name, const TpTraffic::Entry& entry) {
    *out << name << " " << entry.calls << " calls " << entry.bytes << " bytes, ";
  };
  print("sum", traffic.sum);
  print("gather", traffic.gather);
  print("scatter", traffic.scatter);
  print("partials", traffic.partials);
  print("copies", traffic.copies);
}

namespace unit_traffic_test {

using Entry = TpTraffic::Entry;
using test::small_work;

const TensorSettings kPlain{.degree = 2};
const TensorSettings kLoss{.degree = 2, .loss_parallel = true};
const TensorSettings kSequence{.degree = 2, .sequence_parallel = true, .loss_parallel = true};

constexpr std::int64_t kN = 6 * 8 * 4;    // 6 tokens, 8 channels, float32
constexpr std::int64_t kN2 = 10 * 8 * 4;  // of the second tower

TpTraffic traffic_of(const GraphSpec& graph, const TensorSettings& settings,
                     std::vector<std::pair<std::string, TensorStyle>> styles = {}) {
  const TensorPolicy policy{.sequence_parallel = settings.sequence_parallel,
                            .loss_parallel = settings.loss_parallel,
                            .regather = settings.regather,
                            .styles = std::move(styles)};
  return tp_traffic(resolved_graph(graph, policy, settings.degree), settings);
}

GraphSpec llama() {
  return llama_spec(test::small_llama(), small_work());
}

TEST(TpTraffic, OneRankSaysNothing) {
  EXPECT_EQ(traffic_of(llama(), {.degree = 1}), TpTraffic{});
  EXPECT_EQ(traffic_of(llama(), {.degree = 1, .sequence_parallel = true, .loss_parallel = true, .regather = true}),
            TpTraffic{});
}

TEST(TpTraffic, LayersSumTwiceForwardAndTwiceBackward) {
  // Embedding forward, head backward, 4 per layer; whole logits of 11 words.
  EXPECT_EQ(traffic_of(llama(), kPlain), (TpTraffic{.sum = {10, 10 * kN}, .gather = {1, 6 * 11 * 4}}));
  LlamaConfig deeper = test::small_llama();
  deeper.num_hidden_layers = 3;
  EXPECT_EQ(traffic_of(llama_spec(deeper, small_work()), kPlain).sum, (Entry{14, 14 * kN}));
}

TEST(TpTraffic, CutLogitsCostThreeSumsPerToken) {
  EXPECT_EQ(traffic_of(llama(), kLoss), (TpTraffic{.sum = {10 + 3, 10 * kN + 3 * 6 * 8}}));
}

TEST(TpTraffic, SequenceParallelismGathersAndScattersInstead) {
  // Norms: 2 of 8 in each layer, one in the head.
  EXPECT_EQ(traffic_of(llama(), kSequence), (TpTraffic{.sum = {3, 3 * 6 * 8},
                                                       .gather = {10, 10 * kN},
                                                       .scatter = {10, 10 * kN},
                                                       .partials = {3, (16 + 16 + 8) * 4}}));
}

TEST(TpTraffic, RegatherGathersTheInputOfEveryColumnProductAgain) {
  TensorSettings settings = kSequence;
  settings.regather = true;
  EXPECT_EQ(traffic_of(llama(), settings).gather, (Entry{15, 15 * kN}));
  EXPECT_EQ(traffic_of(llama(), settings).scatter, (Entry{10, 10 * kN}));
  settings = kLoss;
  settings.regather = true;  // nothing is gathered
  EXPECT_EQ(traffic_of(llama(), settings), traffic_of(llama(), kLoss));
}

// But for the last sum of a layer, whose result backward does not read.
TEST(TpTraffic, FullRecomputeRepeatsTheForwardOfLayers) {
  TensorSettings settings = kPlain;
  settings.recompute = Recompute::full;
  EXPECT_EQ(traffic_of(llama(), settings).sum, (Entry{12, 12 * kN}));
  settings = kSequence;
  settings.recompute = Recompute::full;
  EXPECT_EQ(traffic_of(llama(), settings).gather, (Entry{14, 14 * kN}));
  EXPECT_EQ(traffic_of(llama(), settings).scatter, (Entry{12, 12 * kN}));
  settings.recompute = Recompute::selective;
  EXPECT_EQ(traffic_of(llama(), settings), traffic_of(llama(), kSequence));
}

TEST(TpTraffic, MicrobatchesMultiplyActivationsAndNotGradients) {
  TensorSettings settings = kSequence;
  settings.microbatches = 3;
  EXPECT_EQ(
      traffic_of(llama(), settings),
      (TpTraffic{.sum = {9, 9 * 6 * 8}, .gather = {30, 30 * kN}, .scatter = {30, 30 * kN}, .partials = {3, 40 * 4}}));
}

TEST(TpTraffic, DtypesSetTheBytes) {
  TensorSettings settings = kSequence;
  settings.compute = DType::bfloat16;
  settings.reduce = DType::float64;
  EXPECT_EQ(traffic_of(llama(), settings), (TpTraffic{.sum = {3, 3 * 6 * 8},  // statistics are float64 always
                                                      .gather = {10, 10 * kN / 2},
                                                      .scatter = {10, 10 * kN / 2},
                                                      .partials = {3, 40 * 8}}));
}

TEST(TpTraffic, CopiesOfKeyAndValueHeadsAreSummedOncePerLayer) {
  TensorSettings settings = kPlain;
  settings.degree = 4;
  // A head of 2 channels of wk and of wv, 8 wide each.
  EXPECT_EQ(traffic_of(llama(), settings).copies, (Entry{2, 2 * (2 * 2 * 8) * 4}));
  LlamaConfig with_bias = test::small_llama();
  with_bias.attention_bias = true;
  EXPECT_EQ(traffic_of(llama_spec(with_bias, small_work()), settings).copies, (Entry{2, 2 * 2 * (2 * 8 + 2) * 4}));
  EXPECT_EQ(traffic_of(gpt2_spec(test::small_gpt2(), small_work()), settings).copies, Entry{});
}

TEST(TpTraffic, ATiedTableIsLookedUpAndMultiplied) {
  for (const bool tied : {true, false}) {
    const GraphSpec graph = gpt2_spec(test::small_gpt2(tied), small_work());
    EXPECT_EQ(traffic_of(graph, kPlain), (TpTraffic{.sum = {10, 10 * kN}, .gather = {1, 6 * 11 * 4}}));
    // Positions 9 x 8; two row biases and two norms of 16 in a layer; the head's norm.
    EXPECT_EQ(traffic_of(graph, kSequence), (TpTraffic{.sum = {3, 3 * 6 * 8},
                                                       .gather = {10, 10 * kN},
                                                       .scatter = {10, 10 * kN},
                                                       .partials = {4, (72 + 2 * 48 + 16) * 4}}));
  }
}

TEST(TpTraffic, BertsHeadMultipliesOnceOverTp) {
  const GraphSpec graph = bert_model_spec(test::small_bert(), small_work());
  EXPECT_EQ(traffic_of(graph, kPlain), (TpTraffic{.sum = {10, 10 * kN}, .gather = {1, 6 * 11 * 4}}));
  // Positions, types and norm 104; a layer 48; dense, its bias and norm 88.
  EXPECT_EQ(traffic_of(graph, kSequence), (TpTraffic{.sum = {3, 3 * 6 * 8},
                                                     .gather = {10, 10 * kN},
                                                     .scatter = {10, 10 * kN},
                                                     .partials = {4, (104 + 2 * 48 + 88) * 4}}));
}

TEST(TpTraffic, EncoderLmIsAnotherPostNormModel) {
  const GraphSpec graph = encoder_lm_spec(test::small_encoder_lm(), small_work());
  EXPECT_EQ(traffic_of(graph, kLoss), (TpTraffic{.sum = {13, 10 * kN + 3 * 6 * 8}}));
  EXPECT_EQ(
      traffic_of(graph, kSequence),
      (TpTraffic{
          .sum = {3, 3 * 6 * 8}, .gather = {10, 10 * kN}, .scatter = {10, 10 * kN}, .partials = {2, 2 * 48 * 4}}));
}

TEST(TpTraffic, TowersHaveTheirOwnTokensAndPoolersSumTheirFirst) {
  for (const bool shared : {false, true}) {
    const GraphSpec graph = trimodal_spec(test::small_trimodal(shared), small_work());
    EXPECT_EQ(traffic_of(graph, kLoss), (TpTraffic{.sum = {18, 9 * kN + 9 * kN2}}));
    const std::int64_t owners = shared ? 1 : 2;
    EXPECT_EQ(traffic_of(graph, kSequence), (TpTraffic{.sum = {2, 2 * 2 * 8 * 4},
                                                       .gather = {18, 9 * kN + 9 * kN2},
                                                       .scatter = {18, 9 * kN + 9 * kN2},
                                                       .partials = {3 * owners, owners * (104 + 2 * 48) * 4}}));
  }
}

TEST(TpTraffic, FrozenTablesAreNotGatheredForBackward) {
  GraphSpec graph = llama();
  freeze(graph, {"embed.*"});
  // The first layer's norm is trained: its product's input has a gradient all the same.
  EXPECT_EQ(traffic_of(graph, kPlain).sum, (Entry{10, 10 * kN}));
  EXPECT_EQ(traffic_of(graph, kSequence).gather, (Entry{9, 9 * kN}));
  EXPECT_EQ(traffic_of(graph, kSequence).scatter, (Entry{10, 10 * kN}));
}

TEST(TpTraffic, NothingIsSummedBelowTheFirstTrainedParameter) {
  GraphSpec graph = encoder_lm_spec(test::small_encoder_lm(), small_work());
  freeze(graph, {"embed.*"});
  // q, k, v of the first layer read the embedding itself.
  EXPECT_EQ(traffic_of(graph, kPlain).sum, (Entry{9, 9 * kN}));
  freeze(graph, {"layers.0.*"});
  // Forward 1 + 2 + 2; backward up of the second layer, and the head.
  EXPECT_EQ(traffic_of(graph, kPlain).sum, (Entry{7, 7 * kN}));
  // Forward 2 + 2 + 1, backward 2 rows.
  EXPECT_EQ(traffic_of(graph, kSequence).gather, (Entry{7, 7 * kN}));
  EXPECT_EQ(traffic_of(graph, kSequence).partials, (Entry{1, 48 * 4}));
  TensorSettings again = kPlain;
  again.recompute = Recompute::full;
  EXPECT_EQ(traffic_of(graph, again).sum, (Entry{9, 9 * kN}));
}

TEST(TpTraffic, AFrozenTowerOnlyRunsForward) {
  GraphSpec graph = trimodal_spec(test::small_trimodal(), small_work());
  freeze(graph, {"primary.*"});
  EXPECT_EQ(traffic_of(graph, kPlain).sum, (Entry{5 + 9, 5 * kN + 9 * kN2}));
  EXPECT_EQ(traffic_of(graph, kSequence).gather, (Entry{4 + 9, 4 * kN + 9 * kN2}));
  EXPECT_EQ(traffic_of(graph, kSequence).scatter, (Entry{5 + 9, 5 * kN + 9 * kN2}));
  EXPECT_EQ(traffic_of(graph, kSequence).partials.calls, 3);
}

TEST(TpTraffic, AGraphWithoutALossOnlyRunsForward) {
  const GraphSpec graph = llama_spec(test::small_llama(), small_work(), {.loss = false});
  EXPECT_EQ(traffic_of(graph, kPlain), (TpTraffic{.sum = {5, 5 * kN}, .gather = {1, 6 * 11 * 4}}));
  EXPECT_EQ(traffic_of(graph, kSequence), (TpTraffic{.gather = {5, 5 * kN}, .scatter = {5, 5 * kN}}));
}

TEST(TpTraffic, WhatAPlanReplicatesIsNotExchanged) {
  const auto replicated = [](const char* pattern, const TensorSettings& settings) {
    return traffic_of(llama(), settings, {{pattern, TensorStyle::replicate}});
  };
  EXPECT_EQ(replicated("mlp", kPlain).sum, (Entry{6, 6 * kN}));
  EXPECT_EQ(replicated("attention", kPlain).sum, (Entry{6, 6 * kN}));
  EXPECT_EQ(replicated("embed", kPlain).sum, (Entry{9, 9 * kN}));
  EXPECT_EQ(replicated("head.weight", kPlain), (TpTraffic{.sum = {9, 9 * kN}}));
  const auto mlp = replicated("mlp", kSequence);
  EXPECT_EQ(mlp.gather, (Entry{6, 6 * kN}));
  EXPECT_EQ(mlp.partials, (Entry{3, (2 * (16 + 3 * 80) + 8) * 4}));
  EXPECT_EQ(replicated("embed", kSequence).partials, (Entry{4, (40 + 88) * 4}));
}

// An all-reduce is a scatter and a gather: sequence parallelism moves the same bytes, whatever the sizes.
TEST(TpTraffic, SequenceParallelismMovesTheSamePayload) {
  std::mt19937 random(8);
  const auto draw = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
  for (int i = 0; i < 50; ++i) {
    LlamaConfig config = test::small_llama();
    const int degree = 1 << draw(1, 3);
    config.num_attention_heads = degree * draw(1, 3);
    config.num_key_value_heads = config.num_attention_heads;
    config.hidden_size = config.num_attention_heads * 2 * draw(1, 5);
    config.intermediate_size = draw(degree, 40);
    config.vocab_size = draw(degree, 50);
    config.num_hidden_layers = draw(1, 4);
    config.tie_word_embeddings = draw(0, 1) == 1;
    const GraphSpec graph = llama_spec(config, {.rows = draw(1, 5), .sequence = draw(1, 9)});
    const auto settings = [&](bool sequence) {
      return TensorSettings{.degree = degree, .sequence_parallel = sequence};
    };
    const auto plain = traffic_of(graph, settings(false));
    const auto cut = traffic_of(graph, settings(true));
    const auto tokens = graph.value("input_ids").shape[0] * graph.value("input_ids").shape[1];
    const std::int64_t calls = 4 * config.num_hidden_layers + 2;
    const Entry expected{calls, calls * tokens * config.hidden_size * 4};
    EXPECT_EQ(plain.sum, expected) << "case " << i;
    EXPECT_EQ(cut.scatter, expected) << "case " << i;
    // The logits are gathered in both.
    EXPECT_EQ(cut.gather.calls - plain.gather.calls, expected.calls) << "case " << i;
    EXPECT_EQ(cut.gather.bytes - plain.gather.bytes, expected.bytes) << "case " << i;
  }
}

// At every pp coordinate, the stages given by unit names.
std::vector<TpTraffic> stage_traffic(const GraphSpec& graph, TensorSettings settings,
                                     const std::vector<std::vector<std::string>>& stages) {
  settings.unit_pp_coordinates = Pipeline{.map = named_stages(graph, stages), .table = {}}.unit_pp_coordinates();
  std::vector<TpTraffic> traffic;
  for (int pp = 0; pp < static_cast<int>(stages.size()); ++pp) {
    settings.pp = pp;
    traffic.push_back(traffic_of(graph, settings));
  }
  return traffic;
}

TEST(TpTraffic, AStageHasTheShareOfItsUnits) {
  const auto traffic = stage_traffic(llama(), kSequence, {{"embed", "layers.0"}, {"layers.1"}, {"head"}, {"loss"}});
  EXPECT_EQ(traffic[0], (TpTraffic{.gather = {5, 5 * kN}, .scatter = {5, 5 * kN}, .partials = {1, 16 * 4}}));
  EXPECT_EQ(traffic[1], (TpTraffic{.gather = {4, 4 * kN}, .scatter = {4, 4 * kN}, .partials = {1, 16 * 4}}));
  EXPECT_EQ(traffic[2], (TpTraffic{.gather = {1, kN}, .scatter = {1, kN}, .partials = {1, 8 * 4}}));
  EXPECT_EQ(traffic[3], (TpTraffic{.sum = {3, 3 * 6 * 8}}));
}

// Primary and what follows on one stage, secondary on the other: each layer has its copy of what it shares.
TEST(TpTraffic, WhoeverBorrowsTiedParametersOnAnotherStageSumsTheirPartials) {
  const std::vector<std::vector<std::string>> split = {
      {"primary.embed", "primary.layers.0", "primary.layers.1", "primary.pooler"},
      {"secondary.embed", "secondary.layers.0", "secondary.layers.1", "secondary.pooler", "tabular", "fusion", "loss"}};
  const auto own = stage_traffic(trimodal_spec(test::small_trimodal(), small_work()), kSequence, split);
  EXPECT_EQ(
      own[0],
      (TpTraffic{
          .sum = {1, 2 * 8 * 4}, .gather = {9, 9 * kN}, .scatter = {9, 9 * kN}, .partials = {3, (104 + 2 * 48) * 4}}));
  EXPECT_EQ(own[1], (TpTraffic{.sum = {1, 2 * 8 * 4},
                               .gather = {9, 9 * kN2},
                               .scatter = {9, 9 * kN2},
                               .partials = {3, (104 + 2 * 48) * 4}}));
  EXPECT_EQ(stage_traffic(trimodal_spec(test::small_trimodal(true), small_work()), kSequence, split), own);
  // On one stage the owner sums for both.
  EXPECT_EQ(traffic_of(trimodal_spec(test::small_trimodal(true), small_work()), kSequence).partials, own[0].partials);
}

TEST(TpTraffic, StagesOfAModelAddUpToIt) {
  std::mt19937 random(92);
  const std::vector<GraphSpec> models = {llama(), test::gpt2(true), test::bert(),
                                         encoder_lm_spec(test::small_encoder_lm(), small_work()),
                                         trimodal_spec(test::small_trimodal(), small_work())};
  for (const auto& graph : models) {
    for (int trial = 0; trial < 20; ++trial) {
      TensorSettings settings = trial % 2 == 0 ? kSequence : kPlain;
      settings.degree = trial % 4 < 2 ? 2 : 4;
      settings.microbatches = 1 + trial % 3;
      const auto whole = traffic_of(graph, settings);
      for (std::size_t u = 0; u < graph.units.size(); ++u) {
        settings.unit_pp_coordinates.push_back(static_cast<int>(random() % 3));
      }
      TpTraffic sum;
      for (settings.pp = 0; settings.pp < 3; ++settings.pp) {
        const auto part = traffic_of(graph, settings);
        for (const auto member :
             {&TpTraffic::sum, &TpTraffic::gather, &TpTraffic::scatter, &TpTraffic::partials, &TpTraffic::copies}) {
          (sum.*member).calls += (part.*member).calls;
          (sum.*member).bytes += (part.*member).bytes;
        }
      }
      EXPECT_EQ(sum, whole) << graph.name << " trial " << trial;
    }
  }
}

TEST(TpTraffic, RefusesAGraphThatOtherSettingsPlaced) {
  const auto refusal = [](const TensorPolicy& policy, const TensorSettings& settings) {
    return error_text<InternalError>([&] { tp_traffic(resolved_graph(llama(), policy, 2), settings); });
  };
  EXPECT_EQ(refusal({.sequence_parallel = true}, kPlain),
            "graph \"llama\": value hidden.0 is cut over tp, but the settings say otherwise");
  EXPECT_EQ(refusal({.loss_parallel = true}, kPlain),
            "graph \"llama\": value logits is cut over tp, but the settings say otherwise");
  EXPECT_EQ(refusal({}, {.degree = 4}), "graph \"llama\" lies over 2 tp ranks, and the settings are for 4");
}

}  // namespace unit_traffic_test
}  // namespace orthant
