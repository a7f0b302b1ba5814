// Training with products in float8, which formulas compute where there is no card: any mesh computes what one rank
// does, and it learns what bfloat16 learns.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <mutex>
#include <optional>

#include "base/error_text.h"
#include "orthant/comm/faulty.h"
#include "orthant/train/device_setup.h"
#include "orthant/train/parity.h"
#include "training_ranks.h"

namespace orthant {
namespace float8_test {

RunConfig by_formulas(RunConfig config) {
  config.trainer.precision.float8 = true;
  config.trainer.float8_by_formulas = true;
  return config;
}

const std::vector<std::string> kModel = {
    "model.num_hidden_layers=2",   "model.hidden_size=64", "model.intermediate_size=96", "model.num_attention_heads=4",
    "model.num_key_value_heads=2", "model.vocab_size=64",  "data.sequence_length=16",    "data.samples=48",
    "train.global_batch_size=8",   "train.steps=20",       "optimizer.lr=0.003"};

// In float64.
RunConfig config_of(const MeshCase& mesh, std::vector<std::string> settings = {}) {
  settings.insert(settings.begin(), kModel.begin(), kModel.end());
  settings.insert(settings.end(), {"optimizer.kind=sgd", "optimizer.lr=0.3"});
  return by_formulas(small_config(ORTHANT_SOURCE_DIR "/configs/llama_tiny.json", settings, mesh));
}

ParitySide side_of(const RunConfig& config, std::int64_t steps, const comm::WrapTransport& wrap = {}) {
  std::optional<ParitySide> found;
  std::mutex mutex;
  const auto run = [&](const RunConfig& own) {
    auto side = run_parity_side(own, {.steps = steps});
    const std::lock_guard lock(mutex);
    if (rank_of(own) == 0) found = std::move(side);
  };
  on_ranks(config, run, comm::BackendKind::shm, wrap);
  return found.value_or(ParitySide());
}

struct Case {
  MeshCase mesh;
  std::vector<std::string> settings;
  double bound;  // 0: equal bits
};

// Without cuts of what products sum over, ranks round the same numbers: rows of tokens and weights are whole. Where tp
// cuts them, numbers far below a row's largest round otherwise, which Note [Float8 products] bounds. Updates are SGD's:
// AdamW's first ones are as large for the least gradient as for others.
constexpr double kExact = 1e-10, kCut = 1e-5;

TEST(Float8Training, AnyMeshComputesWhatOneRankDoes) {
  const ParitySide one = side_of(config_of({"dp=1"}), 2);
  ASSERT_EQ(one.losses.size(), 2U);
  const std::vector<Case> cases = {
      {{"dp=1"}, {"mesh.pp=2", "parallel.microbatches=1"}, 0},
      {{"dp=1"}, {"parallel.recompute=full"}, 0},
      {{"dp=1"}, {R"(parallel.recompute=["rms_norm", "product"])"}, 0},
      {{"dp=2"}, {}, kExact},
      {{"fsdp=2", 3}, {}, kExact},
      {{"dp=1"}, {"mesh.pp=2", "parallel.microbatches=4", "parallel.schedule=zbh1"}, kExact},
      {{"cp=2"}, {}, kExact},
      {{"tp=2"}, {}, kCut},
      {{"tp=2"}, {"parallel.sequence_parallel=true"}, kCut},
      {{"tp=2,fsdp=2", 3}, {"parallel.sequence_parallel=true", "parallel.regather=true"}, kCut},
  };
  for (const auto& [mesh, settings, bound] : cases) {
    const auto config = config_of(mesh, settings);
    const auto result = compare_sides(side_of(config, 2), one, bound);
    const auto what = fmt::format("{} {}", config.mesh.to_string(), settings.empty() ? "" : settings.back());
    EXPECT_TRUE(result.pass) << what << "\n" << parity_text(result);
    EXPECT_EQ(result.bitwise, bound == 0) << what;
  }
}

// The bounds above would find a sum that is left out.
TEST(Float8Training, ASumOverTpThatIsLeftOutIsFound) {
  const ParitySide one = side_of(config_of({"dp=1"}), 1);
  const auto config = config_of({"tp=2"});
  const auto wrap = comm::leave_out_sums(config.mesh, {.axis = Axis::tp, .name = "layers.1.mlp.w2.weight"});
  EXPECT_FALSE(compare_sides(side_of(config, 1, wrap), one, kCut).pass);
}

// In bfloat16, where sums that are regrouped round to neighbours in float8.
TEST(Float8Training, StaysWithinItsBoundInBfloat16) {
  const auto narrow = [](const MeshCase& mesh) {
    auto config = config_of(mesh);
    config.trainer.precision = {
        .params = DType::float32, .compute = DType::bfloat16, .reduce = DType::float32, .float8 = true};
    return config;
  };
  const double bound = parity_tolerance(narrow({"dp=1"}).trainer.precision);
  EXPECT_EQ(bound, 2e-1);
  const auto result = compare_sides(side_of(narrow({"tp=2"}), 2), side_of(narrow({"dp=1"}), 2), bound);
  EXPECT_TRUE(result.pass) << parity_text(result);
}

// ORTHANT_FLOAT8_CONFIG names a configuration to do it with, for all its steps: then losses are printed.
TEST(Float8Training, LearnsWhatBfloat16Learns) {
  const char* const file = std::getenv("ORTHANT_FLOAT8_CONFIG");
  auto settings = file == nullptr ? kModel : std::vector<std::string>();
  settings.emplace_back("precision.compute=bfloat16");
  auto config = read_run_config(
      load_run_document(file == nullptr ? ORTHANT_SOURCE_DIR "/configs/llama_tiny.json" : file, settings));
  if (file == nullptr) config.trainer.lr.warmup_steps = 2;
  const auto losses = [&](RunConfig run) { return run_parity_side(std::move(run), {.steps = config.steps}).losses; };
  const auto narrow = losses(config), narrower = losses(by_formulas(config));
  EXPECT_LT(narrow.back(), 0.97 * narrow.front()) << "there is something to learn";
  EXPECT_NE(narrow, narrower);
  double sum = 0, difference = 0;
  for (std::size_t i = 0; i < narrow.size(); ++i) {
    if (file != nullptr) fmt::print("step {:4} bfloat16 {:.4f} float8 {:.4f}\n", i + 1, narrow[i], narrower[i]);
    EXPECT_NEAR(narrower[i], narrow[i], 0.03 * narrow[i]) << "step " << i + 1;
    if (i + 10 < narrow.size()) continue;
    sum += narrow[i];
    difference += narrower[i] - narrow[i];
  }
  EXPECT_NEAR(difference / sum, 0, 0.01) << "of the last ten losses";
}

TEST(Float8Training, IsRefusedOnTheCpu) {
  TrainerOptions options;
  options.precision = {.compute = DType::bfloat16, .float8 = true};
  auto text = error_text<ConfigError>([&] { check_device(options); });
  EXPECT_NE(text.find("precision.compute=float8 needs a CUDA device from sm_90 on, and this run trains on cpu"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("use --device cuda, or use precision.compute=bfloat16"), std::string::npos) << text;
  options.device = at::Device(at::kCUDA, 0);
  check_device(options);
  check_float8_card(true, "sm_90a");
  check_float8_card(true, "sm_100a");
  text = error_text<ConfigError>([&] { check_float8_card(true, "sm_89"); });
  EXPECT_NE(text.find("precision.compute=float8 needs a card from sm_90 on"), std::string::npos) << text;
  EXPECT_NE(text.find("this one is sm_89\n  fix: use precision.compute=bfloat16"), std::string::npos) << text;
  text = error_text<ConfigError>([&] { check_float8_card(false, ""); });
  EXPECT_NE(text.find("kernels of this device cannot be compiled"), std::string::npos) << text;
}

}  // namespace float8_test
}  // namespace orthant
