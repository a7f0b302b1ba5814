// A user's graph of recorded units and modules: it learns on every mesh what one rank does, recorded units are cut over
// tp and make their weight gradients apart, and what cannot run is refused.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include <algorithm>
#include <filesystem>

#include "base/error_text.h"
#include "orthant/ops/functions.h"
#include "train/trainers_on_ranks.h"

namespace orthant {
namespace recorded_units_test {

constexpr std::int64_t kWidth = 16;
constexpr std::int64_t kInner = 24;
constexpr std::int64_t kVocabulary = 12;
constexpr ops::Heads kHeads = {.heads = 4, .kv_heads = 2, .head_size = 4};
constexpr double kBound = 1e-10;

ParameterSpec drawn(const char* name, Shape shape, int tp, std::int64_t granule = 1, const char* joined = "") {
  return {.name = name,
          .shape = std::move(shape),
          .init = {Init::Kind::normal, 0.3},
          .joined = joined,
          .tp = Split{.dim = tp, .granule = granule}};
}

ParameterSpec whole(const char* name, Init::Kind kind) {
  return {.name = name, .shape = {kWidth}, .init = {kind, 0.3}};
}

Recorded embedding() {
  auto table = drawn("table", {kVocabulary, kWidth}, 0);
  table.table = true;
  return {.parameters = {table}, .record = [](Recorder& r) {
            const Value ids = r.field("ids", Sym::tokens, Number::index);
            return ops::embedding(r, {{.ids = ids, .table = "table", .entries = kVocabulary}}, kWidth);
          }};
}

Recorded attention() {
  return {.parameters = {whole("norm", Init::Kind::ones), drawn("wq", {16, kWidth}, 0, 4, "qkv"),
                         drawn("wk", {8, kWidth}, 0, 4, "qkv"), drawn("wv", {8, kWidth}, 0, 4, "qkv"),
                         drawn("wo", {kWidth, 16}, 1, 4)},
          .record = [](Recorder& r) {
            const Value x = r.tokens("x", kWidth);
            const Value normed = ops::rms_norm(r, x, "norm", 1e-6);
            const Value qkv = ops::linear(r, normed, {.weight = "qkv", .out = 32, .joined = true});
            const Value turned = ops::rotary(r, qkv, kHeads, {.max_positions = 64});
            const Value attended =
                ops::attention(r, turned, {}, kHeads, {.causal = true, .dropout = 0.1, .site = "probabilities"});
            return ops::add(r, ops::linear(r, attended, {.weight = "wo", .out = kWidth}), x);
          }};
}

Recorded mlp() {
  return {.parameters = {drawn("up", {kInner, kWidth}, 0), drawn("up_bias", {kInner}, 0),
                         drawn("down", {kWidth, kInner}, 1), whole("down_bias", Init::Kind::normal)},
          .record = [](Recorder& r) {
            const Value x = r.tokens("x", kWidth);
            const Value wide = ops::linear(r, x, {.weight = "up", .bias = "up_bias", .out = kInner});
            const Value active = ops::activation(r, wide, "gelu", 0.1, "dropout");
            return ops::add(r, ops::linear(r, active, {.weight = "down", .bias = "down_bias", .out = kWidth}), x);
          }};
}

Recorded head() {
  return {.parameters = {drawn("weight", {kVocabulary, kWidth}, 0)}, .record = [](Recorder& r) {
            return ops::linear(r, r.tokens("x", kWidth), {.weight = "weight", .out = kVocabulary});
          }};
}

Recorded cross_entropy() {
  return {.record = [](Recorder& r) {
    const Value logits = r.tokens("logits", kVocabulary);
    return ops::cross_entropy(r, logits, r.field("labels", Sym::tokens, Number::index), {.classes = kVocabulary});
  }};
}

// Between recorded units, of three dims; scale has none.
struct MixImpl : torch::nn::Module {
  MixImpl() { to(at::kDouble); }
  at::Tensor forward(const at::Tensor& x) { return (linear(x) * scale).tanh() + x; }
  torch::nn::Linear linear = register_module("linear", torch::nn::Linear(kWidth, kWidth));
  at::Tensor scale = register_parameter("scale", at::full({}, 0.5));
};
TORCH_MODULE(Mix);

struct SideImpl : torch::nn::Module {
  SideImpl() { to(at::kDouble); }
  at::Tensor forward(const at::Tensor& x, const at::Tensor& ids) {
    return (linear(x).squeeze(-1) - ids.to(at::kDouble).sin()).square().sum();
  }
  torch::nn::Linear linear = register_module("linear", torch::nn::Linear(kWidth, 1));
};
TORCH_MODULE(Side);

Graph mixed_graph() {
  at::manual_seed(5);
  Graph graph;
  graph.add("embed", embedding(), {"ids"}, {"x0"});
  graph.add("attention", attention(), {"x0"}, {"x1"});
  graph.add("mix", Mix(), {"x1"}, {"x2"});
  graph.add("side", Side(), {"x2", "ids"}, {"side_loss"});
  graph.add("mlp", mlp(), {"x2"}, {"x3"});
  graph.add("head", head(), {"x3"}, {"logits"});
  graph.add("loss", cross_entropy(), {"logits", "labels"}, {"loss"});
  return graph;
}

Batch token_batch() {
  const auto ids = (at::arange(8 * 5, at::kLong).reshape({8, 5}) * 7 + 3).remainder(kVocabulary);
  return batch_of({{"ids", ids}, {"labels", (ids * 5 + 1).remainder(kVocabulary)}});
}

TrainerOptions mixed_options(const Mesh& mesh, const std::string& schedule, Recompute recompute) {
  TrainerOptions options;
  options.precision = {DType::float64, DType::float64, DType::float64};
  options.lr.peak = 0.01;
  options.optimizer.clip = 0.1;
  options.microbatches = 2;
  options.recompute = recompute;
  options.policy.zero = 3;
  if (mesh.degree(Axis::pp) == 1) return options;
  options.stages.schedule = schedule;
  options.stages.split = {{"embed", "attention"}, {"mix", "side", "mlp", "head", "loss"}};
  return options;
}

void on_mesh(const Mesh& mesh, const TrainerOptions& options, const test::TrainerBody& body) {
  std::mutex making;  // modules draw their first values from one generator
  const auto make_graph = [&] {
    const std::lock_guard lock(making);
    return mixed_graph();
  };
  const auto make_trainer = [&](std::shared_ptr<const comm::Communicator> communicator) {
    auto own = options;
    own.communicator = std::move(communicator);
    return std::make_unique<Trainer>(make_graph(), mesh, own);
  };
  const auto groups = trainer_groups(mixed_graph().spec(), mesh, options);
  test::with_trainers(mesh, groups, test::quick_comm(), make_trainer, body);
}

// Losses, norms and weights after some steps.
struct Learned {
  test::Outcome outcome;
  std::map<std::string, at::Tensor> weights;
  double evaluated = 0;
};

Learned learn(Trainer& trainer) {
  Learned learned{test::train_steps(trainer, token_batch(), 4), whole_weights(trainer).tensors};
  const auto found = trainer.evaluate(token_batch().fields, {"loss"});
  if (found.contains("loss")) learned.evaluated = found.at("loss").item<double>();
  return learned;
}

void expect_near(const Learned& found, const Learned& expected, const std::string& text) {
  for (std::size_t i = 0; i < expected.outcome.losses.size(); ++i) {
    EXPECT_NEAR(found.outcome.losses[i] / expected.outcome.losses[i], 1, kBound) << text;
    EXPECT_NEAR(found.outcome.norms[i] / expected.outcome.norms[i], 1, kBound) << text;
  }
  ASSERT_EQ(found.weights.size(), expected.weights.size()) << text;
  for (const auto& [name, weight] : expected.weights) {
    EXPECT_LT((found.weights.at(name) - weight).abs().max().item<double>(), kBound) << name << " " << text;
  }
  if (found.evaluated != 0) EXPECT_NEAR(found.evaluated / expected.evaluated, 1, kBound) << text;
}

Learned learned_by_one_rank() {
  Learned expected;
  on_mesh(Mesh(), mixed_options(Mesh(), "", Recompute::none), [&](Trainer& trainer) { expected = learn(trainer); });
  EXPECT_LT(expected.outcome.losses.back(), expected.outcome.losses.front());
  return expected;
}

TEST(RecordedUnits, LearnWithModulesOnEveryMeshWhatOneRankDoes) {
  const auto expected = learned_by_one_rank();
  for (const char* degrees : {"dp=1", "dp=2", "tp=2", "tp=4", "fsdp=2,tp=2", "pp=2", "pp=2,tp=2", "pp=2,fsdp=2,tp=2"}) {
    const auto mesh = Mesh::parse(degrees);
    for (const char* schedule : {"1f1b", "zbh1"}) {
      if (mesh.degree(Axis::pp) == 1 && schedule != std::string("1f1b")) continue;
      for (const auto recompute : {Recompute::none, Recompute::full}) {
        const auto text = fmt::format("{} {} {}", degrees, schedule, recompute_name(recompute));
        on_mesh(mesh, mixed_options(mesh, schedule, recompute),
                [&](Trainer& trainer) { expect_near(learn(trainer), expected, text); });
      }
    }
  }
}

TEST(RecordedUnits, AreCutOverTpAndModulesAreWhole) {
  const auto mesh = Mesh::parse("tp=2");
  on_mesh(mesh, mixed_options(mesh, "", Recompute::none), [](Trainer& trainer) {
    const auto held = [&](const std::string& name) {
      const auto& graph = trainer.graph();
      return trainer.parameters().unit(graph.owner(name)).named(name).value.numel();
    };
    EXPECT_EQ(held("mlp.up"), kInner * kWidth / 2);
    EXPECT_EQ(held("attention.wo"), kWidth * 16 / 2);
    EXPECT_EQ(held("embed.table"), kVocabulary * kWidth / 2);
    EXPECT_EQ(held("mlp.down_bias"), kWidth);
    EXPECT_EQ(held("mix.linear.weight"), kWidth * kWidth);
  });
}

// B of a recorded unit adds to no weight, and W does; a module's are complete after B.
TEST(RecordedUnits, DeferTheirWeightGradients) {
  const auto spec = mixed_graph().spec();
  const auto program_of = [&](const char* name) {
    const UnitSpec& unit = spec.unit(name);
    return compile_unit(spec, unit, {.needs = std::vector<bool>(unit.inputs.size(), true)});
  };
  const Program mlp = program_of("mlp");
  EXPECT_EQ(std::ranges::count(mlp.weight_part, "product_weight", &Operation::name), 2);
  EXPECT_EQ(std::ranges::count(mlp.input_part, "product_weight", &Operation::name), 0);
  const Program mix = program_of("mix");
  EXPECT_TRUE(mix.weight_part.empty());
  EXPECT_EQ(std::ranges::count(mix.input_part, "module_back", &Operation::name), 1);
}

TEST(RecordedUnits, ACheckpointOfManyRanksIsContinuedByOne) {
  const auto folder = (std::filesystem::temp_directory_path() / "orthant-recorded-units-test").string();
  const auto mesh = Mesh::parse("pp=2,tp=2");
  test::Outcome expected;
  on_mesh(mesh, mixed_options(mesh, "zbh1", Recompute::none), [&](Trainer& trainer) {
    test::train_steps(trainer, token_batch(), 2);
    trainer.save(folder);
    const auto outcome = test::train_steps(trainer, token_batch(), 2);
    if (trainer.rank() == 0) expected = outcome;
  });
  on_mesh(Mesh(), mixed_options(Mesh(), "", Recompute::none), [&](Trainer& trainer) {
    trainer.load(folder);
    const auto found = test::train_steps(trainer, token_batch(), 2);
    for (std::size_t i = 0; i < found.losses.size(); ++i) {
      EXPECT_NEAR(found.losses[i] / expected.losses[i], 1, kBound);
    }
  });
  std::filesystem::remove_all(folder);
}

TEST(RecordedUnits, ModulesAloneRunOverTp) {
  const auto make_graph = [] {
    at::manual_seed(5);
    Graph graph;
    graph.add("mix", Mix(), {"x"}, {"h"}).add("side", Side(), {"h", "ids"}, {"loss"});
    return graph;
  };
  const auto x = at::arange(8 * 5 * kWidth, at::kDouble).reshape({8, 5, kWidth}).sin();
  const auto batch = batch_of({{"x", x}, {"ids", at::arange(8 * 5, at::kLong).reshape({8, 5})}});
  auto options = mixed_options(Mesh(), "", Recompute::none);
  options.optimizer.clip = 0;  // by a norm that tp ranks sum in parts
  test::Outcome expected;
  const auto train = [&](Trainer& trainer) { return test::train_steps(trainer, batch, 3); };
  test::on_module_trainers(make_graph, Mesh(), options, [&](Trainer& trainer) { expected = train(trainer); });
  test::on_module_trainers(make_graph, Mesh::parse("tp=2"), options, [&](Trainer& trainer) {
    const auto found = train(trainer);
    EXPECT_EQ(found.losses, expected.losses);
    EXPECT_EQ(found.hash, expected.hash);
  });
}

TEST(RecordedUnits, SequenceParallelismIsRefused) {
  auto options = mixed_options(Mesh::parse("tp=2"), "", Recompute::none);
  options.tensor.sequence_parallel = true;
  const auto refused = [&] { Trainer trainer(mixed_graph(), Mesh::parse("tp=2"), options); };
  EXPECT_EQ(error_text<ConfigError>(refused),
            "mesh tp=2 with sequence parallelism: units of a program's own graph read all tokens\n"
            "  fix: leave TrainerOptions::tensor.sequence_parallel false");
}

TEST(RecordedUnits, ContextParallelismIsRefused) {
  const auto options = mixed_options(Mesh::parse("cp=2"), "", Recompute::none);
  const auto text = error_text<ConfigError>([&] { Trainer trainer(mixed_graph(), Mesh::parse("cp=2"), options); });
  EXPECT_NE(text.find("units of a program's own graph do not say how cp=2 would cut their rows"), std::string::npos)
      << text;
}

TEST(RecordedUnits, RanksOverTpMeetByTheirGraph) {
  const auto alone = [] { connect_ranks(Mesh::parse("tp=2"), launch::Job{}, TrainerOptions()); };
  EXPECT_EQ(error_text<ConfigError>(alone),
            "mesh tp=2: which ranks meet over tp follows from the graph\n"
            "  fix: say connect_ranks(graph.spec(), mesh, job, options)");
}

}  // namespace recorded_units_test
}  // namespace orthant
