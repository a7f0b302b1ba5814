// Planner against runtime: the most that forward and backward of every unit take, what they keep and what waits for the
// gradients of weights. As the allocator counts tensors, in one thread.
#include <array>
#include <random>
#include <set>

#include "orthant/models/mixtral/config.h"
#include "orthant/models/qwen2_moe/config.h"
#include "orthant/models/qwen3/config.h"
#include "orthant/nn/kernels/isa.h"
#include "orthant/nn/scalar_type.h"
#include "orthant/ops/linear/projection.h"
#include "orthant/plan/estimate/sized_run.h"
#include "orthant/plan/estimate/unit_work.h"
#include "orthant/schedule/forward_gradients.h"
#include "spec_against_runtime.h"

namespace orthant {
namespace unit_moments_test {

using UnitMoments = test::SpecAgainstRuntime;

// Sizes of every kind of model, drawn; every other one in bfloat16.
class ModelDraw {
 public:
  explicit ModelDraw(std::uint32_t seed) : numbers_(seed) {}

  test::Model draw(int number) {
    const int heads = pick({2, 4, 6}), kv_heads = pick({1, 2}), size = pick({8, 10, 12, 24});
    test::Model model;
    const double dropout = pick({0, 1}) * 0.1;
    switch (number % 5) {
      case 0:
        model.config = llama(heads, kv_heads, size);
        break;
      case 1:
        model.config = gpt2(heads, size, dropout);
        break;
      case 2:
        model.config = encoder_lm(heads, size, dropout);
        break;
      case 3: {
        BertModelConfig config;
        config.encoder = sized<BertConfig>(heads, size);
        config.encoder.attention_probs_dropout_prob = dropout;
        model.config = config;
        break;
      }
      default: {
        TrimodalConfig config = test::trimodal(dropout, pick({0, 1}) == 1, pick({0, 1}) == 1);
        config.primary = config.secondary = sized<BertConfig>(heads, size);
        model.config = config;
      }
    }
    // Of one row, parts of a joined gradient are handed back where they lie, and units share them.
    const bool joins = number % 5 == 4;
    model.work = {.rows = joins ? pick({2, 3}) : pick({1, 2, 3, 5, 9}),
                  .sequence = pick({7, 33, 64, 100}),
                  .compute = number % 2 == 0 ? DType::float32 : DType::bfloat16};
    const bool shares = pick({0, 1, 1}) == 1;
    if (shares) model.work.tensor = {2, pick({0, 1}) == 1, pick({0, 1}) == 1, pick({0, 1}) == 1};
    model.work.tensor.regather = model.work.tensor.regather && model.work.tensor.sequence_parallel;
    if (!joins && pick({0, 1}) == 1) model.chunk_rows = pick({16, 50, 1000});
    model.name = "N" + std::to_string(number);
    return model;
  }

 private:
  int pick(const std::vector<int>& from) { return from[numbers_() % from.size()]; }

  template <typename Config>
  Config sized(int heads, int size) {
    Config config;
    config.hidden_size = heads * size;
    config.num_hidden_layers = pick({1, 2});
    config.num_attention_heads = heads;
    config.intermediate_size = 2 * pick({20, 31, 64});
    config.vocab_size = pick({40, 101, 300});
    config.max_position_embeddings = 128;
    return config;
  }
  LlamaConfig llama(int heads, int kv_heads, int size) {
    auto config = sized<LlamaConfig>(heads, size);
    config.num_key_value_heads = kv_heads;
    config.tie_word_embeddings = pick({0, 1}) == 1;
    if (pick({0, 1}) == 1) config.variant = &kQwen3;
    config.attention_bias = pick({0, 1}) == 1;
    return config;
  }
  Gpt2Config gpt2(int heads, int size, double dropout) {
    auto config = sized<Gpt2Config>(heads, size);
    config.resid_pdrop = config.embd_pdrop = config.attn_pdrop = dropout;
    return config;
  }
  EncoderLmConfig encoder_lm(int heads, int size, double dropout) {
    auto config = sized<EncoderLmConfig>(heads, size);
    config.dropout = dropout;
    return config;
  }

  std::mt19937 numbers_;
};

// Mixtures of experts on one rank, in float32: what narrow types take depends on the loads.
std::vector<test::Model> random_mixtures(int count) {
  std::mt19937 numbers(8);
  const auto pick = [&](const std::vector<int>& from) { return from[numbers() % from.size()]; };
  std::vector<test::Model> models;
  for (int number = 0; number < count; ++number) {
    LlamaConfig config;
    config.variant = number % 2 == 0 ? &kMixtral : &kQwen2Moe;
    config.num_attention_heads = pick({2, 4});
    config.hidden_size = config.num_attention_heads * pick({8, 12, 24});
    config.num_hidden_layers = 2;
    config.num_key_value_heads = 2;
    config.intermediate_size = pick({40, 64});
    config.vocab_size = pick({40, 101});
    config.max_position_embeddings = 128;
    config.experts.count = pick({3, 5});
    config.experts.per_token = pick({1, 2, 3});
    config.experts.inner = pick({56, 80});
    config.experts.shared_inner = number % 2 == 0 ? 0 : pick({24, 40});
    test::Model model{.name = "Mixture" + std::to_string(number), .config = config, .work = {}};
    model.work = {.rows = pick({1, 2, 5}), .sequence = pick({33, 64, 100})};
    models.push_back(model);
  }
  return models;
}

std::vector<test::Model> random_models(int count) {
  ModelDraw draw(/*seed=*/7);
  std::vector<test::Model> models;
  for (int number = 0; number < count; ++number) models.push_back(draw.draw(number));
  return models;
}

// Of what other units read: not of a loss of a unit's own.
double output_bytes(const GraphSpec& graph, const ModelWork& work, int unit) {
  const bool has_loss = !graph.units[static_cast<std::size_t>(unit)].auxiliary_loss.empty();
  return work[static_cast<std::size_t>(unit)].output_bytes - (has_loss ? bytes_of(DType::float32) : 0);
}

// What the planner says an action takes beside what there is before it: the inputs of a forward, or what it kept and
// the gradient of its output.
double planned_bytes(const GraphSpec& graph, const ModelWork& work, const Action& action, PlanRecompute mode,
                     bool gradients_in_forward) {
  const auto& unit = work[static_cast<std::size_t>(action.unit)];
  if (gradients_in_forward && action.kind == ActionKind::backward) return unit.in_forward->backward;
  // The gradient of a loss is made by the action itself.
  const double handed =
      graph.units[static_cast<std::size_t>(action.unit)].is_loss ? 0 : output_bytes(graph, work, action.unit);
  if (action.kind == ActionKind::backward) return unit.backward_bytes + unit.remade_bytes - handed;
  if (action.kind == ActionKind::backward_input) return unit.inputs_bytes - handed;
  if (action.kind == ActionKind::backward_weight) return unit.weights_bytes;
  double given = 0;
  for (const auto& name : graph.units[static_cast<std::size_t>(action.unit)].inputs) {
    const int writer = graph.producer(name);
    if (writer >= 0) given += output_bytes(graph, work, writer);
  }
  if (gradients_in_forward) return unit.in_forward->kept + unit.in_forward->forward - given;
  return unit.kept_bytes[static_cast<std::size_t>(mode)] + unit.logits_bytes + unit.forward_bytes - given;
}

PlanSettings settings_of(const WorkSize& work, Recompute mode) {
  PlanSettings settings;
  settings.compute = settings.params = settings.gradients = work.compute;
  settings.on_host = true;
  settings.vector_bytes = nn::kernels::vector_bytes(nn::kernels::best_isa());
  settings.widens_products = !nn::cpu_multiplies(scalar_type(settings.compute));
  settings.recompute = static_cast<PlanRecompute>(mode);
  return settings;
}

// The work of the rank at this coordinate of cp, where program_work() has that of the rank with most.
ModelWork work_at(const GraphSpec& graph, const PlanSettings& settings, const test::Model& model) {
  ModelWork work = program_work(graph, settings);
  for (std::size_t u = 0; model.cp_degree > 1 && u < work.size(); ++u) {
    const SizedRun run = run_sized(graph, graph.units[u], settings, model.cp_coordinate);
    work[u].forward_bytes = run.forward - run.kept;
    work[u].backward_bytes = run.backward - run.kept;
    work[u].inputs_bytes = run.inputs - run.kept;
    work[u].weights_bytes = run.weights - run.deferred;
  }
  return work;
}

std::vector<test::Model> models_over_cp() {
  constexpr std::array<ContextWay, 3> kWays = {ContextWay::ring, ContextWay::all_to_all, ContextWay::gather};
  const std::set<std::string> kModels = {"Llama",     "LlamaTied",    "LlamaFloat64", "LlamaBfloat16",
                                         "Qwen3",     "Mistral",      "Gpt2",         "Bert",
                                         "EncoderLm", "Gpt2Bfloat16", "BertBfloat16"};
  std::vector<test::Model> all;
  for (const test::Model& model : test::models(/*rows=*/2)) {
    if (!kModels.contains(model.name)) continue;
    for (const ContextWay way : kWays) {
      for (const int degree : {2, 4}) {
        all.push_back(model);
        all.back().cp_degree = degree;
        all.back().context = way;
        all.back().cp_coordinate = degree == 4 ? 1 : all.size() % 2;
        if (all.size() % 3 == 0) all.back().work.rows = 1;
        all.back().name += "OverCp" + std::to_string(degree) + "Way" + std::to_string(static_cast<int>(way));
      }
    }
  }
  return all;
}

// At its worst moment a run takes what the planner reckons with, to the byte.
TEST_P(UnitMoments, AreThoseThePlannerStates) {
  using Kinds = std::vector<ActionKind>;
  for (const auto& kinds :
       {Kinds{ActionKind::backward}, Kinds{ActionKind::backward_input, ActionKind::backward_weight}}) {
    auto list = forwards();
    for (const auto kind : kinds) {
      for (int u = num_units() - 1; u >= 0; --u) list.push_back({.kind = kind, .unit = u, .microbatch = 0});
    }
    const auto in_forward = gradients_in_forward(list, graph);
    for (const auto mode : kRecomputeModes) {
      const auto work = work_at(graph, settings_of(GetParam().work, mode), GetParam());
      const auto found = taken(mode, list);
      for (std::size_t i = 0; i < list.size(); ++i) {
        const double planned = planned_bytes(graph, work, list[i], static_cast<PlanRecompute>(mode),
                                             in_forward.contains({list[i].unit, list[i].microbatch}));
        EXPECT_EQ(planned, static_cast<double>(found[i]))
            << to_string(list[i], graph) << ", recompute " << recompute_name(mode);
      }
    }
  }
}

// What W gives back of a unit is what waited for it, and what forwards leave is what the units keep, but for the losses
// that a step reports.
TEST_P(UnitMoments, KeepAndDeferWhatThePlannerStates) {
  const Action measure{.kind = ActionKind::reduce, .unit = 0};
  auto list = forwards();
  list.push_back(measure);
  for (int u = num_units() - 1; u >= 0; --u) {
    list.push_back({.kind = ActionKind::backward_input, .unit = u, .microbatch = 0});
  }
  list.push_back(measure);
  for (int u = 0; u < num_units(); ++u) {
    list.push_back({.kind = ActionKind::backward_weight, .unit = u, .microbatch = 0});
    list.push_back(measure);
  }
  const auto losses = static_cast<double>(graph.losses().size()) * bytes_of(DType::float64);
  for (const auto mode : kRecomputeModes) {
    const auto work = program_work(graph, settings_of(GetParam().work, mode));
    double kept = losses;
    for (const auto& unit : work) kept += unit.kept_bytes[static_cast<std::size_t>(mode)] + unit.logits_bytes;
    const auto live = measured(mode, list);
    EXPECT_EQ(kept, static_cast<double>(live[0])) << recompute_name(mode);
    for (std::size_t u = 0; u < work.size(); ++u) {
      EXPECT_EQ(work[u].deferred_bytes, static_cast<double>(live[u + 1] - live[u + 2]))
          << recompute_name(mode) << ": " << work[u].name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, UnitMoments, testing::ValuesIn(test::models_over_tp(/*rows=*/2)),
                         [](const auto& info) { return info.param.name; });
INSTANTIATE_TEST_SUITE_P(OverCp, UnitMoments, testing::ValuesIn(models_over_cp()),
                         [](const auto& info) { return info.param.name; });
INSTANTIATE_TEST_SUITE_P(Random, UnitMoments, testing::ValuesIn(random_models(/*count=*/60)),
                         [](const auto& info) { return info.param.name; });
INSTANTIATE_TEST_SUITE_P(Mixtures, UnitMoments, testing::ValuesIn(random_mixtures(/*count=*/8)),
                         [](const auto& info) { return info.param.name; });

}  // namespace unit_moments_test
}  // namespace orthant
