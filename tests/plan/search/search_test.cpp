// The search against what it must agree with: estimates of everything that estimate() accepts on small machines, its
// own rules, and itself.
#include "orthant/plan/search/search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error_text.h"
#include "orthant/base/error.h"
#include "orthant/plan/search/candidates.h"
#include "orthant/schedule/named_schedules.h"

namespace orthant {
namespace search_test {

constexpr std::int64_t kMiB = 1 << 20;

// Cards that differ from a preset in memory and in how many share a node.
Hardware cards_of(std::int64_t memory_bytes, int per_node = 8) {
  Hardware hardware = find_hardware("a100-80gb");
  hardware.memory_bytes = memory_bytes;
  hardware.reserve_bytes = 0;
  hardware.cards_per_node = per_node;
  return hardware;
}

SearchRequest request_for(const std::string& model, int cards, std::int64_t global_batch, std::int64_t sequence,
                          const Hardware& hardware, Strategy strategy = Strategy::throughput) {
  SearchRequest request;
  request.model = find_plan_model(model);
  request.hardware = hardware;
  request.cards = cards;
  request.global_batch = global_batch;
  request.sequence = sequence;
  request.strategy = strategy;
  return request;
}

// A small Llama that reads long rows.
SearchRequest long_request(int cards, std::int64_t global_batch, std::int64_t sequence, const Hardware& hardware) {
  return request_for(ORTHANT_SOURCE_DIR "/configs/llama_long_cp.json", cards, global_batch, sequence, hardware);
}

// Tells every choice there is, sensible or not: what cannot be, estimate() refuses.
template <typename Visit>
void for_all_meshes(const SearchRequest& request, const Visit& visit) {
  const int cards = request.cards;
  PricedPoint point;
  for (point.tp = 1; point.tp <= cards; ++point.tp) {
    for (point.pp = 1; point.pp * point.tp <= cards; ++point.pp) {
      for (point.cp = 1; point.cp * point.pp * point.tp <= cards; ++point.cp) {
        if (point.cp > 1 && request.sequence / point.cp < kLeastContextTokens) continue;
        for (point.dp = 1; point.dp * point.cp * point.pp * point.tp <= cards; ++point.dp) {
          point.fsdp = cards / (point.tp * point.pp * point.dp * point.cp);
          if (point.fsdp * point.dp * point.cp * point.pp * point.tp == cards) visit(point);
        }
      }
    }
  }
}

template <typename Visit>
void for_all_points(const SearchRequest& request, const Visit& visit) {
  for_all_meshes(request, [&](PricedPoint point) {
    for (const ContextWay way : {ContextWay::ring, ContextWay::all_to_all, ContextWay::gather}) {
      for (const bool over_context : {true, false}) {
        if (point.cp == 1 && (way != ContextWay::ring || !over_context)) continue;
        if (point.fsdp == 1 && !over_context) continue;
        point.way = way;
        point.shard_over_context = over_context;
        visit(point);
      }
    }
  });
}

// Of a model with experts: each degree of ep with each way to share an expert.
template <typename Visit>
void for_all_experts(const SearchRequest& request, PricedPoint point, const Visit& visit) {
  visit(point);
  if (request.model.name.find("mixtral") == std::string::npos) return;
  for (point.ep = 1; point.ep <= request.cards; ++point.ep) {
    for (const bool shared : {false, true}) {
      point.expert_tp = shared;
      visit(point);
    }
  }
}

template <typename Visit>
void for_all_settings(const SearchRequest& request, const Visit& visit) {
  for_all_points(request, [&](PricedPoint point) {
    for (point.micro_batch = 1; point.micro_batch <= request.global_batch; ++point.micro_batch) {
      for (const std::string& schedule : schedule_names()) {
        if (point.pp == 1 && schedule != "1f1b") continue;
        point.schedule = schedule;
        for (point.virtual_stages = 1; point.virtual_stages <= 6; ++point.virtual_stages) {
          if (point.pp == 1 && point.virtual_stages > 1) continue;
          for_all_experts(request, point, visit);
        }
      }
    }
  });
}

std::optional<Plan> accepted(const PricedPoint& point, const SearchRequest& request, const Stack& stack) {
  try {
    return estimate(request.model, settings_of(point, request), request.hardware, stack);
  } catch (const ConfigError&) {
    return std::nullopt;
  }
}

// The best of all plans that fit, in the terms of the strategy.
std::optional<Candidate> best_by_estimates(const SearchRequest& request, int& fitting) {
  const Stack stack = find_stack("orthant");
  std::optional<Candidate> best;
  fitting = 0;
  const auto consider = [&](const PricedPoint& point) {
    const auto plan = accepted(point, request, stack);
    if (!plan || !plan->fits) return;
    const Candidate candidate = candidate_of(*plan, fitting++);
    if (!best || is_better(candidate, *best, request.strategy)) best = candidate;
  };
  for_all_settings(request, [&](PricedPoint point) {
    point.sequence_parallel = point.expert_tp == false && point.tp > 1;
    if (!accepted(point, request, stack)) return;  // neither with anything else
    for (const PlanRecompute recompute : {PlanRecompute::none, PlanRecompute::selective, PlanRecompute::full}) {
      for (const bool sequence_parallel : {false, true}) {
        for (const bool regather : {false, true}) {
          for (int zero = 0; zero <= 3; ++zero) {
            for (const bool sharded : {false, true}) {
              if (point.tp == 1 && (sequence_parallel || regather)) continue;
              if (regather && !sequence_parallel) continue;
              if (point.fsdp == 1 && (zero > 0 || sharded)) continue;
              point.recompute = recompute;
              point.sequence_parallel = sequence_parallel;
              point.regather = regather;
              point.zero = zero;
              point.accumulate_sharded = sharded;
              consider(point);
            }
          }
        }
      }
    }
  });
  return best;
}

double wish(const Candidate& candidate, Strategy strategy) {
  switch (strategy) {
    case Strategy::memory:
      return candidate.memory_bytes;
    case Strategy::latency:
      return candidate.microbatch_seconds;
    case Strategy::throughput:
      break;
  }
  return candidate.step_seconds;
}

void expect_the_optimum(const SearchRequest& request) {
  int fitting = 0;
  const auto optimum = best_by_estimates(request, fitting);
  const SearchResult result = search(request);
  ASSERT_EQ(optimum.has_value(), !result.plans.empty());
  if (!optimum) return;
  ASSERT_GT(fitting, 10);
  double best = wish(candidate_of(result.plans.front(), 0), request.strategy);
  // Plain data parallelism may be put before a plan that is hardly faster.
  for (const Plan& plan : result.plans) best = std::min(best, wish(candidate_of(plan, 0), request.strategy));
  EXPECT_LE(best, wish(*optimum, request.strategy) * (1 + 1e-6)) << fitting << " plans fit";
  EXPECT_GE(best, wish(*optimum, request.strategy) * (1 - 1e-6)) << "the search knows what estimate() refuses";
}

TEST(Search, FindsTheBestOfAllThatEstimateAccepts) {
  expect_the_optimum(request_for("llama-tiny", 4, 4, 64, cards_of(std::int64_t{1} << 34)));
  expect_the_optimum(request_for("gpt2-tiny", 4, 4, 64, cards_of(std::int64_t{1} << 34, 2)));
  expect_the_optimum(request_for("encoder-lm-tiny", 3, 6, 32, cards_of(std::int64_t{1} << 34)));
}

// Links between cards decide whether tokens or channels are cut.
TEST(Search, FindsTheBestOverCp) {
  expect_the_optimum(long_request(2, 2, 8192, cards_of(std::int64_t{1} << 34)));
  expect_the_optimum(long_request(2, 1, 8192, cards_of(std::int64_t{1} << 34, 1)));
  expect_the_optimum(long_request(2, 1, 8192, cards_of(40 * kMiB, 1)));
  expect_the_optimum(long_request(4, 2, 16384, cards_of(std::int64_t{1} << 34, 1)));
}

TEST(Search, FindsTheBestOverEp) {
  expect_the_optimum(request_for("mixtral-tiny", 2, 4, 64, cards_of(std::int64_t{1} << 34)));
  expect_the_optimum(request_for("mixtral-tiny", 2, 4, 64, cards_of(3 * kMiB)));
}

TEST(Search, CutsLongRowsWhereRanksOutnumberThem) {
  const SearchResult result = search(long_request(4, 1, 32768, find_hardware("cpu")));
  ASSERT_FALSE(result.plans.empty());
  const PlanSettings& best = result.plans.front().settings;
  EXPECT_EQ(best.mesh.to_string(), "cp=4");
  ASSERT_TRUE(best.context.has_value());
  EXPECT_NE(train_words(best).find(" --set parallel.context="), std::string::npos) << train_words(best);
}

TEST(Search, DealsExpertsToRanks) {
  const SearchResult result = search(request_for("mixtral-8x7b", 16, 64, 4096, find_hardware("h100-80gb")));
  ASSERT_FALSE(result.plans.empty());
  const PlanSettings& best = result.plans.front().settings;
  EXPECT_GT(best.mesh.degree(Axis::ep), 1);
  EXPECT_NE(train_words(best).find(" --set parallel.expert_tp="), std::string::npos) << train_words(best);
}

TEST(Search, PricesAModelOnItsMachine) {
  auto request = request_for("gpt2-tiny", 1, 4, 64, find_hardware("cpu"));
  request.hardware.widens_products = false;
  const auto settings = settings_of(PricedPoint(), request);
  EXPECT_TRUE(settings.on_host);
  EXPECT_FALSE(settings.widens_products);
}

TEST(Search, FindsTheBestWhereMemoryIsShort) {
  for (const std::int64_t mib : {3, 2}) {
    expect_the_optimum(request_for("llama-tiny", 4, 8, 512, cards_of(mib * kMiB)));
  }
  expect_the_optimum(request_for("bert-tiny", 2, 4, 128, cards_of(6 * kMiB)));
}

TEST(Search, FindsTheBestByEveryStrategy) {
  for (const Strategy strategy : {Strategy::memory, Strategy::latency}) {
    expect_the_optimum(request_for("llama-tiny", 4, 4, 128, cards_of(std::int64_t{1} << 34, 2), strategy));
  }
}

TEST(Search, FindsTheBestOfABranchingModel) {
  expect_the_optimum(request_for("trimodal-tiny", 2, 4, 32, cards_of(std::int64_t{1} << 34)));
}

TEST(Search, IsTheSameEveryTime) {
  const auto request = request_for("llama3-8b", 16, 128, 4096, find_hardware("h100-80gb"));
  const auto document = [&] {
    auto parsed = nlohmann::json::parse(to_json(search(request)));
    parsed.erase("search_seconds");
    return parsed.dump();
  };
  EXPECT_EQ(document(), document());
}

TEST(Search, RecommendsOnlyWhatFits) {
  for (const char* model : {"llama3-8b", "llama3-70b", "gpt2-xl"}) {
    for (const Strategy strategy : {Strategy::memory, Strategy::throughput, Strategy::latency}) {
      const auto request = request_for(model, 32, 64, 1024, find_hardware("a100-40gb"), strategy);
      for (const Plan& plan : search(request).plans) {
        EXPECT_TRUE(plan.fits);
        EXPECT_LE(plan.peak_bytes(), request.hardware.memory_bytes);
        EXPECT_EQ(plan.settings.mesh.world_size(), 32);
      }
    }
  }
}

TEST(Search, PlansAreBestFirst) {
  auto request = request_for("llama3-8b", 8, 64, 4096, find_hardware("h100-80gb"));
  request.top = 20;
  for (const Strategy strategy : {Strategy::memory, Strategy::throughput, Strategy::latency}) {
    request.strategy = strategy;
    const SearchResult result = search(request);
    ASSERT_EQ(result.plans.size(), 20U);
    ASSERT_EQ(result.simple, "");
    for (std::size_t i = 1; i < result.plans.size(); ++i) {
      EXPECT_LE(wish(candidate_of(result.plans[i - 1], 0), strategy),
                wish(candidate_of(result.plans[i], 0), strategy) * (1 + 1e-6));
    }
  }
}

TEST(Search, StrategiesGetWhatTheyAskFor) {
  const auto best = [](Strategy strategy) {
    const auto request = request_for("llama3-8b", 8, 64, 4096, find_hardware("h100-80gb"), strategy);
    return candidate_of(search(request).plans.front(), 0);
  };
  const auto memory = best(Strategy::memory);
  const auto throughput = best(Strategy::throughput);
  const auto latency = best(Strategy::latency);
  EXPECT_LT(memory.memory_bytes, 0.6 * throughput.memory_bytes);
  EXPECT_LT(throughput.step_seconds, 0.8 * memory.step_seconds);
  EXPECT_LT(latency.microbatch_seconds, 0.4 * throughput.microbatch_seconds);
}

TEST(Search, SmallModelsAreToldToUsePlainDataParallelism) {
  const SearchResult result = search(request_for("gpt2", 8, 512, 1024, find_hardware("a100-80gb")));
  ASSERT_FALSE(result.plans.empty());
  EXPECT_EQ(result.plans.front().settings.mesh.to_string(), "dp=8");
  EXPECT_EQ(result.plans.front().settings.data.zero, 0);
  EXPECT_NE(result.simple.find("Plain data parallelism"), std::string::npos);
  double fastest = result.plans.front().time.step;
  for (const Plan& plan : result.plans) fastest = std::min(fastest, plan.time.step);
  EXPECT_LE(result.plans.front().time.step, 1.02 * fastest);
}

TEST(Search, SaysWhatWouldFit) {
  const SearchResult result = search(request_for("llama3-70b", 8, 64, 8192, find_hardware("a100-40gb")));
  EXPECT_TRUE(result.plans.empty());
  EXPECT_GT(result.rejected.at("does not fit: parameters and optimizer"), 0);
  ASSERT_FALSE(result.advice.empty());
  const Advice& cards = result.advice.front();
  EXPECT_TRUE(cards.change == "32 cards" || cards.change == "64 cards" || cards.change == "128 cards") << cards.change;
  EXPECT_TRUE(cards.effect.starts_with("fits: ")) << cards.effect;
}

TEST(Search, CountsWhatItPricesAndRejects) {
  const SearchResult result = search(request_for("llama3-70b", 48, 96, 4096, find_hardware("h100-80gb")));
  EXPECT_GT(result.evaluated, 10'000);
  EXPECT_EQ(result.rejected.count("dp x fsdp does not divide the batch"), 0U);
  EXPECT_GT(result.rejected.at("tp does not divide the heads"), 0);  // 3 and its multiples
  EXPECT_GT(result.rejected.at("does not fit: activations"), 0);
  const SearchResult odd = search(request_for("llama3-8b", 16, 24, 4096, find_hardware("h100-80gb")));
  EXPECT_GT(odd.rejected.at("dp x fsdp does not divide the batch"), 0);
}

TEST(Search, PointsShowTheFrontAndThePlans) {
  const auto request = request_for("llama3-8b", 32, 256, 4096, find_hardware("h100-80gb"));
  const SearchResult result = search(request);
  EXPECT_GT(result.points.size(), 500U);
  EXPECT_LT(result.points.size(), 3000U);
  const auto fastest = std::ranges::max_element(
      result.points, {}, [](const PricedPoint& point) { return point.fits ? point.tokens_per_second_per_gpu : 0; });
  EXPECT_GE(fastest->tokens_per_second_per_gpu, result.plans.front().tokens_per_second_per_gpu * 0.99);
  EXPECT_TRUE(std::ranges::any_of(result.points, [](const PricedPoint& point) { return !point.fits; }));
  const auto is_best = [&](const PricedPoint& point) {
    return point.tokens_per_second_per_gpu == static_cast<float>(result.plans.front().tokens_per_second_per_gpu);
  };
  EXPECT_TRUE(std::ranges::any_of(result.points, is_best));
}

TEST(Search, RefusesWhatCannotBe) {
  const auto refused = [](SearchRequest request) { return error_text<ConfigError>([&] { search(request); }); };
  const auto good = request_for("gpt2", 8, 64, 1024, find_hardware("a100-80gb"));
  auto bad = good;
  bad.cards = 0;
  EXPECT_NE(refused(bad).find("--gpus 0"), std::string::npos);
  bad = good;
  bad.global_batch = -4;
  EXPECT_NE(refused(bad).find("--global-batch -4"), std::string::npos);
  bad = good;
  bad.sequence = 2048;
  EXPECT_NE(refused(bad).find("gpt2 has 1024 positions"), std::string::npos);
  bad = good;
  bad.cards = 64;  // 12 heads and 14 stages leave at least 2 replicas
  bad.global_batch = 7;
  EXPECT_NE(refused(bad).find("none of their numbers divides the batch"), std::string::npos);
  EXPECT_NE(refused(bad).find("set --global-batch 6 or 8"), std::string::npos);
  bad = good;
  bad.params = DType::bfloat16;
  EXPECT_NE(refused(bad).find("use --params float32"), std::string::npos);
  bad = good;
  bad.model = {"a shape", std::nullopt, find_plan_model("mixtral-8x7b").shape};
  EXPECT_NE(refused(bad).find("exists on paper only"), std::string::npos);
}

TEST(Search, StrategyNamesAreRead) {
  EXPECT_EQ(parse_strategy("latency"), Strategy::latency);
  EXPECT_EQ(strategy_name(Strategy::memory), "memory");
  EXPECT_NE(error_text<ConfigError>([] { parse_strategy("speed"); }).find("throughput"), std::string::npos);
}

}  // namespace search_test
}  // namespace orthant
