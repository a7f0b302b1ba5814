// Training with products in float16: it learns what float32 learns, its norm is the true one, a step whose gradients
// overflow changes nothing but the loss scale, and ranks agree on all of it.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <mutex>

#include "base/error_text.h"
#include "orthant/comm/thread_ranks.h"
#include "orthant/runtime/module_graph.h"
#include "orthant/train/parity.h"
#include "orthant/train/run.h"

namespace orthant {
namespace float16_test {

// A small llama.
RunConfig config_of(std::vector<std::string> overrides) {
  std::vector<std::string> all = {
      R"(model={"kind": "llama", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 48, "vocab_size": 64, "max_position_embeddings": 32})",
      R"(data={"kind": "tokens", "sequence_length": 24})", "train.global_batch_size=4", "optimizer.lr=0.01",
      "lr_schedule.kind=constant"};
  all.insert(all.end(), overrides.begin(), overrides.end());
  return read_run_config(load_run_document("", all));
}

// A trainer with its batches.
struct Training {
  explicit Training(RunConfig run_config)
      : config(std::move(run_config)),
        data(make_run_data(config)),
        trainer(make_trainer(config)),
        loader(make_loader(config, data, 0)) {}

  PendingStep::Numbers step() { return trainer->step(loader->next()).get(); }
  double scale() const { return trainer->loss_scale().state().value; }

  RunConfig config;
  RunData data;
  std::unique_ptr<Trainer> trainer;
  std::unique_ptr<Loader> loader;
};

TEST(Float16Training, LearnsWhatFloat32Learns) {
  const ParityOptions steps{.steps = 30};
  const auto reference = run_parity_side(config_of({}), steps);
  const auto narrow = run_parity_side(config_of({"precision.compute=float16"}), steps);
  EXPECT_NEAR(narrow.losses[0], reference.losses[0], 1e-3 * reference.losses[0]);
  EXPECT_NEAR(narrow.grad_norms[0], reference.grad_norms[0], 1e-2 * reference.grad_norms[0])
      << "the scale is out of it";
  EXPECT_LT(reference.losses.back(), 0.95 * reference.losses.front()) << "there is something to learn";
  for (std::size_t i = 0; i < reference.losses.size(); ++i) {
    EXPECT_NEAR(narrow.losses[i], reference.losses[i], 1e-2 * reference.losses[i]) << "step " << i + 1;
  }
}

// What the scale is for: gradients too small for float16 vanish without it.
TEST(Float16Training, KeepsGradientsThatFloat16CannotHold) {
  const auto first_norm = [](std::vector<std::string> overrides) {
    auto config = config_of(std::move(overrides));
    config.trainer.loss_coefficients["loss"] = 1e-6;
    return run_parity_side(config, {.steps = 1}).grad_norms[0];
  };
  const double expected = first_norm({});
  EXPECT_NEAR(first_norm({"precision.compute=float16"}), expected, 0.02 * expected);
  EXPECT_LT(first_norm({"precision.compute=float16", "precision.loss_scale=1"}), 0.8 * expected);
}

// |a - b| / |b| of all gradients as one vector: single elements differ more where a relu switches or terms cancel.
double gradient_distance(const ParitySide& side, const ParitySide& reference) {
  double difference = 0, whole = 0;
  for (const auto& [name, gradient] : reference.gradients) {
    difference += (side.gradients.at(name) - gradient).to(at::kDouble).square().sum().item<double>();
    whole += gradient.to(at::kDouble).square().sum().item<double>();
  }
  return std::sqrt(difference / whole);
}

TEST(Float16Training, EveryModelTrains) {
  struct Model {
    std::string name, model, data;
  };
  const std::vector<Model> models = {
      {"llama", R"({"kind": "llama", "preset": "llama-tiny"})", R"({"kind": "tokens", "sequence_length": 16})"},
      {"gpt2", R"({"kind": "gpt2", "preset": "gpt2-tiny"})", R"({"kind": "tokens", "sequence_length": 16})"},
      {"bert", R"({"kind": "bert", "preset": "bert-tiny"})", R"({"kind": "random", "sequence_length": 16})"},
      {"encoder_lm", R"({"kind": "encoder_lm", "preset": "encoder-lm-tiny"})",
       R"({"kind": "tokens", "sequence_length": 16})"},
      {"trimodal", R"({"kind": "trimodal", "preset": "trimodal-tiny"})",
       R"({"kind": "random", "sequence_length": 16, "secondary_length": 8})"},
  };
  // With one seed in eight a relu switches within three steps, which changes norms by percents in any precision.
  const std::string kSeed = "seed=1";
  for (const auto& [name, model, data] : models) {
    SCOPED_TRACE(name);
    const auto side = [&](const std::string& dtype, std::int64_t steps) {
      return run_parity_side(
          config_of({"model=" + model, "data=" + data, "precision.compute=" + dtype, "optimizer.lr=0.001", kSeed}),
          {.steps = steps});
    };
    // Of one step: Adam makes a whole update of a gradient that is nothing but rounding.
    const double distance = gradient_distance(side("float16", 1), side("float32", 1));
    EXPECT_LT(distance, 1e-2);
    EXPECT_GT(distance, 1e-6) << "nothing was computed in float16";
    const auto narrow = side("float16", 3), reference = side("float32", 3);
    for (std::size_t i = 0; i < reference.losses.size(); ++i) {
      EXPECT_NEAR(narrow.losses[i], reference.losses[i], 1e-3 * reference.losses[i]) << "step " << i + 1;
      EXPECT_NEAR(narrow.grad_norms[i], reference.grad_norms[i], 1e-2 * reference.grad_norms[i]) << "step " << i + 1;
    }
  }
}

TEST(Float16Training, AnOverflowIsSkippedAndTheScaleFallsUntilTrainingProceeds) {
  Training training(config_of(
      {"precision.compute=float16",
       fmt::format("precision.loss_scale={{\"initial\": {}, \"backoff\": 0.015625}}", 1LL << 40), "optimizer.clip=1"}));
  const auto before = training.trainer->weights_hash();
  double expected = std::ldexp(1.0, 40);
  int skipped = 0;
  auto numbers = training.step();
  for (; numbers.skipped && skipped < 10; numbers = training.step()) {
    ++skipped;
    expected /= 64;
    EXPECT_TRUE(std::isfinite(numbers.loss));
    EXPECT_FALSE(std::isfinite(numbers.grad_norm));
    EXPECT_EQ(training.scale(), expected);
    EXPECT_EQ(training.trainer->weights_hash(), before) << "a skipped step changes no bit";
    EXPECT_EQ(training.trainer->optimizer().num_updates(), 0);
  }
  EXPECT_GE(skipped, 2);
  EXPECT_LT(skipped, 10);
  EXPECT_TRUE(std::isfinite(numbers.grad_norm));
  EXPECT_EQ(training.scale(), expected);
  EXPECT_EQ(training.trainer->optimizer().num_updates(), 1);
  EXPECT_EQ(training.trainer->steps_done(), skipped + 1);
  EXPECT_NE(training.trainer->weights_hash(), before);
}

TEST(Float16Training, AFixedScaleThatOverflowsIsNotAStepToSkip) {
  Training training(config_of({"precision.compute=float16", fmt::format("precision.loss_scale={}", 1LL << 40)}));
  const auto numbers = training.step();
  EXPECT_FALSE(std::isfinite(numbers.grad_norm));
  EXPECT_FALSE(numbers.skipped);
}

TEST(LossScaleTraining, AFixedScaleComputesTheSame) {
  for (const std::string clip : {"0", "0.5"}) {
    for (const auto& [dtype, tolerance] : {std::pair{"float64", 1e-12}, {"float32", 1e-5}}) {
      SCOPED_TRACE(fmt::format("{} clip {}", dtype, clip));
      const auto side = [&, type = dtype](const std::string& scale) {
        return run_parity_side(config_of({fmt::format("precision.params={}", type), "precision.loss_scale=" + scale,
                                          "optimizer.clip=" + clip}),
                               {});
      };
      const auto result = compare_sides(side("1000"), side("1"), tolerance);
      EXPECT_TRUE(result.pass) << parity_text(result);
      EXPECT_FALSE(result.bitwise) << "1000 is no power of 2: some bit must differ";
    }
  }
}

TEST(LossScaleTraining, GradientsAreGivenWithoutTheScale) {
  const auto numbers_of = [](const std::string& scale) {
    Training training(config_of({"precision.params=float64", "precision.loss_scale=" + scale}));
    const auto norm = training.trainer->gradients(training.loader->next()).get().grad_norm;
    double squares = 0;
    for (const auto& buffer : training.trainer->parameters().buffers()) {
      squares += buffer->owned_gradient().square().sum().item<double>();
    }
    return std::pair(norm, std::sqrt(squares));
  };
  const auto [norm, summed] = numbers_of("1024");
  EXPECT_NEAR(summed, norm, 1e-12 * norm);
  EXPECT_NEAR(norm, numbers_of("1").first, 1e-12 * norm);
}

// Gradients of one rank overflow in the sums' float16 or not: all ranks hear of the same norm.
void expect_ranks_agree(comm::BackendKind backend, const std::string& axis, const std::string& reduce) {
  const auto config = config_of({"precision.compute=float16", "precision.reduce=" + reduce, "mesh." + axis + "=2",
                                 R"(precision.loss_scale={"initial": 67108864, "backoff": 0.25, "interval": 2})"});
  constexpr int kSteps = 12;
  std::mutex mutex;
  std::vector<std::vector<double>> scales(2), norms(2), losses(2);
  std::vector<std::size_t> first_good(2);
  comm::run_thread_ranks(2, [&](int rank, comm::Store store) {
    auto own = config;
    const auto communicator =
        std::make_shared<comm::Communicator>(own.mesh, rank, store, comm::CommOptions{.backend = backend},
                                             trainer_groups(run_spec(own), own.mesh, own.trainer).axes);
    own.trainer.communicator = communicator;
    const auto place = static_cast<std::size_t>(rank);
    {
      Training training(own);
      for (int i = 0; i < kSteps; ++i) {
        const auto numbers = training.step();
        const std::lock_guard lock(mutex);
        scales[place].push_back(training.scale());
        if (numbers.skipped) {
          if (norms[place].empty()) ++first_good[place];
          continue;
        }
        norms[place].push_back(numbers.grad_norm);
        losses[place].push_back(numbers.loss);
      }
    }
    communicator->close();
  });
  EXPECT_EQ(scales[0], scales[1]);
  EXPECT_EQ(norms[0], norms[1]);
  EXPECT_LT(norms[0].size(), std::size_t{kSteps}) << "some step overflowed";
  ASSERT_GT(norms[0].size(), 2U);
  EXPECT_LT(losses[0].back(), losses[0].front());
  Training alone(config_of({}));
  for (std::size_t i = 0; i < first_good[0]; ++i) alone.loader->next();
  const double expected = alone.trainer->gradients(alone.loader->next()).get().grad_norm;
  EXPECT_NEAR(norms[0][0], expected, 1e-2 * expected) << "the norm of the batch of step " << first_good[0] + 1;
}

TEST(Float16Training, RanksAgreeOverSharedMemory) {
  expect_ranks_agree(comm::BackendKind::shm, "fsdp", "float32");
  expect_ranks_agree(comm::BackendKind::shm, "dp", "float16");
}

TEST(Float16Training, RanksAgreeOverGloo) {
  expect_ranks_agree(comm::BackendKind::gloo, "fsdp", "float16");
  expect_ranks_agree(comm::BackendKind::gloo, "dp", "float16");
}

struct SquareLossImpl : torch::nn::Module {
  SquareLossImpl() { weight = register_parameter("weight", at::ones({4}, at::kFloat)); }
  at::Tensor forward(const at::Tensor& x) { return (x.to(weight.scalar_type()) * weight).square().sum(); }
  at::Tensor weight;
};

TEST(Float16Training, RefusesALossThatIsASumInFloat16) {
  Graph graph;
  graph.add("score", std::make_shared<SquareLossImpl>(), {"x"}, {"loss"});
  TrainerOptions options;
  options.precision.compute = DType::float16;
  Trainer trainer(graph, Mesh(), options);
  Batch batch;
  batch.fields = {{"x", at::ones({2, 4}, at::kFloat)}};
  batch.rows = batch.samples = 2;
  batch.weight_sum = 2;
  EXPECT_EQ(error_text<ConfigError>([&] { trainer.step(batch); }),
            "unit score: its loss is a float16 sum, which ends at 65504\n"
            "  fix: compute the loss from float32, as in logits.to(torch::kFloat)");
}

}  // namespace float16_test
}  // namespace orthant
