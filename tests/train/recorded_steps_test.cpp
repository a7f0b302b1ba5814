#include "orthant/train/recorded_steps.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "base/error_text.h"
#include "orthant/base/error.h"
#include "orthant/train/step_recorder.h"
#include "orthant/train/trainer_setup.h"
#include "training_ranks.h"

namespace orthant {
namespace {

// Plays by doing the work again, and counts.
struct Counts {
  int recorded = 0;
  int played = 0;
  bool breaks = false;
};
class Again : public DeviceRecording {
 public:
  Again(std::function<void()> work, Counts& counts) : work_(std::move(work)), counts_(counts) {}
  void play() override {
    ++counts_.played;
    work_();
  }

 private:
  std::function<void()> work_;
  Counts& counts_;
};
class AgainRecorder : public DeviceRecorder {
 public:
  explicit AgainRecorder(Counts& counts) : counts_(counts) {}
  std::unique_ptr<DeviceRecording> record(const std::function<void()>& work) override {
    if (counts_.breaks) throw std::runtime_error("broken off");
    ++counts_.recorded;
    return std::make_unique<Again>(work, counts_);
  }
  void cut(std::function<void()> /*between*/) override { throw std::logic_error("nothing is recorded in pieces"); }

 private:
  Counts& counts_;
};

StepInputs inputs_of(std::int64_t rows, double value) {
  Microbatch microbatch;
  microbatch.fields["x"] = at::full({rows, 2}, value, at::kDouble);
  return {{microbatch}, at::ones({1}, at::kDouble), at::zeros({4}, at::kDouble)};
}

double doubled(RecordedSteps& steps, std::int64_t rows, double value, bool may_record = true) {
  const RecordedSteps::Work work{
      .make = [](const StepInputs& held, StepStart) { return held.microbatches[0].fields.at("x").sum() * 2; }};
  return steps.run(inputs_of(rows, value), work, may_record).item<double>();
}

TEST(RecordedSteps, RecordAShapeThatComesAgainAndPlayItWithNewInputs) {
  Counts counts;
  RecordedSteps steps(at::kCPU, std::make_unique<AgainRecorder>(counts));
  for (int step = 0; step < 6; ++step) EXPECT_EQ(doubled(steps, 3, step), 12.0 * step);
  EXPECT_EQ(counts.recorded, 1);
  EXPECT_EQ(counts.played, 4);  // the first two ran as they are
  EXPECT_EQ(doubled(steps, 5, 1), 20.0);
  EXPECT_EQ(counts.recorded, 1);
  EXPECT_EQ(doubled(steps, 5, 2), 40.0);
  EXPECT_EQ(counts.recorded, 2);
  EXPECT_EQ(doubled(steps, 3, 7), 84.0);
  EXPECT_EQ(counts.played, 6);
  steps.forget();
  EXPECT_EQ(doubled(steps, 3, 7), 84.0);
  EXPECT_EQ(counts.played, 6);
}

TEST(RecordedSteps, TellWhetherAShapeHasRun) {
  Counts counts;
  RecordedSteps steps(at::kCPU, std::make_unique<AgainRecorder>(counts));
  std::vector<StepStart> starts;
  const RecordedSteps::Work work{.make = [&](const StepInputs& held, StepStart start) {
    starts.push_back(start);
    return held.microbatches[0].fields.at("x").sum();
  }};
  const auto most = static_cast<std::int64_t>(RecordedSteps::kMostShapes);
  for (std::int64_t rows = 1; rows <= most + 1; ++rows) {
    for (int step = 0; step < 3; ++step) steps.run(inputs_of(rows, 1), work, true);
  }
  using enum StepStart;
  EXPECT_EQ((std::vector<StepStart>(starts.begin(), starts.begin() + 4)),
            (std::vector<StepStart>{first, first, recorded, first}));
  // Beyond the bound nothing is recorded.
  EXPECT_EQ((std::vector<StepStart>(starts.end() - 3, starts.end())), (std::vector<StepStart>{first, later, later}));
  starts.clear();
  steps.run(inputs_of(most + 1, 1), work, /*may_record=*/false);
  steps.forget();
  for (int step = 0; step < 2; ++step) steps.run(inputs_of(most + 1, 1), work, true);
  EXPECT_EQ(starts, (std::vector<StepStart>{first, first, first}));
}

TEST(RecordedSteps, RunAsTheyAreBeyondTheBoundAndWhereTheyMayNotBeRecorded) {
  Counts counts;
  RecordedSteps steps(at::kCPU, std::make_unique<AgainRecorder>(counts));
  for (std::int64_t rows = 1; rows <= static_cast<std::int64_t>(RecordedSteps::kMostShapes) + 2; ++rows) {
    for (int step = 0; step < 4; ++step) EXPECT_EQ(doubled(steps, rows, step), 4.0 * static_cast<double>(rows) * step);
  }
  EXPECT_EQ(steps.num_recordings(), RecordedSteps::kMostShapes);
  const int played = counts.played;
  EXPECT_EQ(doubled(steps, 1, 5, /*may_record=*/false), 20.0);
  EXPECT_EQ(counts.played, played);
  RecordedSteps never(at::kCPU, nullptr);
  for (int step = 0; step < 4; ++step) EXPECT_EQ(doubled(never, 1, step), 4.0 * step);
  EXPECT_EQ(never.num_played(), 0U);
}

TEST(RecordedSteps, GiveTheirPlaceUpWhenTheyHaveLongBeenIdle) {
  Counts counts;
  RecordedSteps steps(at::kCPU, std::make_unique<AgainRecorder>(counts));
  const auto most = static_cast<std::int64_t>(RecordedSteps::kMostShapes);
  for (int step = 0; step < 3; ++step) {
    for (std::int64_t rows = 1; rows <= most + 1; ++rows) doubled(steps, rows, 1);
  }
  EXPECT_EQ(counts.recorded, most);
  // The first shape was seen last and has no recording until that of the second one is idle.
  const auto cycles = static_cast<std::int64_t>(RecordedSteps::kIdleSteps) / most + 2;
  for (std::int64_t cycle = 0; cycle < cycles; ++cycle) {
    for (std::int64_t rows = 1; rows <= most + 1; ++rows) {
      if (rows != 2) EXPECT_EQ(doubled(steps, rows, 1), 4.0 * static_cast<double>(rows));
    }
  }
  EXPECT_EQ(counts.recorded, most + 1);
  EXPECT_EQ(steps.num_recordings(), RecordedSteps::kMostShapes);
}

TEST(RecordedSteps, AreGivenUpWhereRecordingFails) {
  Counts counts;
  counts.breaks = true;
  RecordedSteps asked(at::kCPU, std::make_unique<AgainRecorder>(counts));
  doubled(asked, 1, 1);
  doubled(asked, 1, 1);
  const std::string text = error_text<ConfigError>([&] { doubled(asked, 1, 1); });
  EXPECT_NE(text.find("the step cannot be recorded: broken off"), std::string::npos) << text;
  EXPECT_NE(text.find("set train.cuda_graph=auto"), std::string::npos) << text;
  std::string told;
  RecordedSteps automatic(at::kCPU, std::make_unique<AgainRecorder>(counts),
                          [&](const std::string& why) { told = why; });
  for (int step = 0; step < 5; ++step) EXPECT_EQ(doubled(automatic, 1, step), 4.0 * step);
  EXPECT_EQ(told, "broken off");
  EXPECT_FALSE(automatic.records());
  EXPECT_EQ(counts.played, 0);
}

// All ranks record a step or none does: one that has recorded it does not play it alone.
TEST(RecordedSteps, AreGivenUpWhereAnotherRankCouldNotRecord) {
  for (const bool automatic : {false, true}) {
    Counts counts;
    std::string told;
    std::function<void(const std::string&)> failed;
    if (automatic) failed = [&](const std::string& why) { told = why; };
    RecordedSteps steps(at::kCPU, std::make_unique<AgainRecorder>(counts), failed);
    std::vector<bool> heard;
    const RecordedSteps::Work work{
        .make = [](const StepInputs& held, StepStart) { return held.microbatches[0].fields.at("x").sum(); },
        .agree =
            [&](bool here) {
              heard.push_back(here);
              return false;
            }};
    for (int step = 0; step < 2; ++step) steps.run(inputs_of(1, 1), work, true);
    EXPECT_TRUE(heard.empty());
    if (automatic) {
      EXPECT_EQ(steps.run(inputs_of(1, 1), work, true).item<double>(), 2);
      EXPECT_EQ(told, "another rank could not record it");
    } else {
      EXPECT_THROW(steps.run(inputs_of(1, 1), work, true), ConfigError);
    }
    EXPECT_EQ(heard, std::vector<bool>{true});
    EXPECT_EQ(counts.played, 0);
  }
}

TEST(RecordedSteps, TellAfterEachPlayWhetherItIsTheFirst) {
  Counts counts;
  RecordedSteps steps(at::kCPU, std::make_unique<AgainRecorder>(counts));
  std::vector<bool> again;
  const RecordedSteps::Work work{
      .make = [](const StepInputs& held, StepStart) { return held.microbatches[0].fields.at("x").sum(); },
      .recorded = [&] { return [&](bool not_first) { again.push_back(not_first); }; },
      .agree = [](bool here) { return here; }};
  for (int step = 0; step < 5; ++step) steps.run(inputs_of(1, step), work, true);
  EXPECT_EQ(again, (std::vector<bool>{false, true, true}));
}

// Records as a device does: the work is done once, to be noted, and a play does what stands between its pieces.
class PiecesRecorder : public DeviceRecorder {
 public:
  std::unique_ptr<DeviceRecording> record(const std::function<void()>& work) override {
    auto pieces = std::make_unique<Pieces>();
    under_way_ = pieces.get();
    work();
    under_way_ = nullptr;
    return pieces;
  }
  void cut(std::function<void()> between) override { under_way_->acts.push_back(std::move(between)); }

 private:
  struct Pieces : DeviceRecording {
    std::vector<std::function<void()>> acts;
    void play() override {
      for (const auto& act : acts) act();
    }
  };
  Pieces* under_way_ = nullptr;
};

TEST(RecordedSteps, DoInEachPlayWhatStandsBetweenTheirPieces) {
  RecordedSteps steps(at::kCPU, std::make_unique<PiecesRecorder>());
  std::vector<std::string> done;
  const RecordedSteps::Work work{.make = [&](const StepInputs& held, StepStart start) {
    for (const char* const what : {"sent", "received"}) {
      if (start == StepStart::recorded) {
        steps.cut([&done, what] { done.emplace_back(what); });
      } else {
        done.emplace_back("as it is");
      }
    }
    return held.microbatches[0].fields.at("x").sum();
  }};
  for (int step = 0; step < 4; ++step) steps.run(inputs_of(1, step), work, true);
  const std::vector<std::string> expected = {"as it is", "as it is", "as it is", "as it is",
                                             "sent",     "received", "sent",     "received"};
  EXPECT_EQ(done, expected);
}

TEST(RecordedSteps, RefuseCutsOnceTheyAreNotRecorded) {
  Counts counts;
  counts.breaks = true;
  RecordedSteps steps(at::kCPU, std::make_unique<AgainRecorder>(counts), [](const std::string& /*why*/) {});
  for (int step = 0; step < 3; ++step) doubled(steps, 3, step);
  ASSERT_FALSE(steps.records());
  const auto text = error_text<InternalError>([&] { steps.cut([] {}); });
  EXPECT_NE(text.find("whose recording has failed"), std::string::npos) << text;
}

TEST(StepRecorder, SaysWhichExchangesCannotBeRecorded) {
  TrainerOptions options;
  options.record_steps = RecordSteps::on;
  const auto why = [&](const char* mesh, const char* backend = "nccl", bool records = true) {
    return exchange_obstacle(backend, records, options, Mesh::parse(mesh));
  };
  for (const char* mesh : {"dp=2", "fsdp=2", "tp=2", "dp=2,fsdp=2,tp=2"}) EXPECT_EQ(why(mesh), "");
  EXPECT_EQ(why("dp=4", "gloo"), "4 ranks exchange within a step, over gloo");
  for (const char* mesh : {"pp=2", "cp=2,tp=2"}) {  // messages stand between pieces
    EXPECT_EQ(why(mesh), "");
    EXPECT_TRUE(cuts_at_exchanges(Mesh::parse(mesh)));
  }
  EXPECT_FALSE(cuts_at_exchanges(Mesh::parse("dp=2,tp=2")));
  EXPECT_EQ(why("dp=2", "nccl", /*records=*/false), "--check-collectives compares calls on the host");
  options.record_steps = RecordSteps::automatic;
  EXPECT_EQ(why("dp=2"), "2 ranks exchange within a step, over nccl: train.cuda_graph=on records them");
  options.pad_to_longest = true;
  EXPECT_EQ(why("dp=2"), "each rank has lengths of its own, and all must record alike");
}

// What keeps steps of a small mixture from being recorded. The graph is the trainer's.
std::string experts_obstacle_of(const Precision& precision, const char* mesh,
                                const std::vector<std::string>& settings = {}) {
  std::vector<std::string> all = {
      "model.kind=mixtral",        "model.hidden_size=32",        "model.intermediate_size=48",
      "model.num_hidden_layers=1", "model.num_attention_heads=4", "model.num_key_value_heads=2",
      "model.vocab_size=53",       "model.num_local_experts=4",   "data.kind=tokens",
      "data.sequence_length=16"};
  all.insert(all.end(), settings.begin(), settings.end());
  const auto config = small_config("", all, {mesh, 0});
  return experts_obstacle(precision, trainer_graph(declared_spec(config), config.mesh, config.trainer), config.mesh);
}

constexpr Precision kBf16{.compute = DType::bfloat16}, kF16{.compute = DType::float16};

// Kernels multiply rows of all experts without anybody waiting for counts.
TEST(StepRecorder, ExpertsNeedTheHostWhereNoKernelMultipliesThem) {
  const auto& why = experts_obstacle_of;
  EXPECT_EQ(why(kBf16, "dp=1", {}), "");
  EXPECT_EQ(why(kF16, "dp=1", {"model.capacity_factor=1.25"}), "");
  EXPECT_EQ(why(kBf16, "dp=2,ep=2", {}), "ranks of ep are told on the host how many rows travel");
  EXPECT_EQ(why({}, "dp=1", {}),
            "no kernel multiplies rows of 4 experts by weights of 96 x 32 in float32, so the host counts them");
  EXPECT_EQ(why(kBf16, "dp=1", {"model.intermediate_size=42"}),
            "no kernel multiplies rows of 4 experts by weights of 84 x 32 in bfloat16, so the host counts them");
}

TEST(StepRecorder, ExpertsAreAskedForWithTheSizesOfEveryTpRank) {
  const auto& why = experts_obstacle_of;
  EXPECT_EQ(why(kBf16, "tp=2", {}), "");
  // Channels of tokens are not cut.
  EXPECT_EQ(why(kBf16, "tp=2", {"model.hidden_size=40"}), "");
  EXPECT_EQ(why(kBf16, "tp=2", {"model.intermediate_size=40", "parallel.sequence_parallel=true"}),
            "no kernel multiplies rows of 4 experts by weights of 32 x 20 in bfloat16, so the host counts them");
  EXPECT_EQ(
      why(kBf16, "tp=2", {"model.intermediate_size=40", "parallel.sequence_parallel=true", "parallel.expert_tp=false"}),
      "");
  // Of 33 channels one rank has 9 and the others 8.
  EXPECT_EQ(why(kBf16, "tp=4", {"model.intermediate_size=33"}),
            "no kernel multiplies rows of 4 experts by weights of 18 x 32 in bfloat16, so the host counts them");
}

// Kernels add gradients of weights in float32.
TEST(StepRecorder, ExpertsNeedTheHostWhereNoKernelAddsTheirGradients) {
  constexpr Precision kReducedInBf16{.compute = DType::bfloat16, .reduce = DType::bfloat16};
  EXPECT_EQ(experts_obstacle_of(kReducedInBf16, "dp=1"),
            "no kernel adds gradients of experts up in bfloat16, so the host counts their rows");
  EXPECT_EQ(experts_obstacle_of(kReducedInBf16, "dp=1", {"model.freeze=[\"*.experts.*\"]"}), "");
}

TEST(StepLanes, FitWhileHalfOfTheDeviceIsFree) {
  EXPECT_TRUE(lanes_fit(70, 140));
  EXPECT_FALSE(lanes_fit(71, 140));
}

// The largest branch counts, as its ids lie in the largest microbatch.
TEST(StepLanes, CountTheTokensOfTheLargestBranch) {
  auto inputs = inputs_of(100, 1);
  EXPECT_EQ(most_tokens(inputs), 100);  // features are no tokens
  inputs.microbatches[0].fields["ids"] = at::zeros({100, 7}, at::kLong);
  inputs.microbatches.push_back({.fields = {{"other_ids", at::zeros({50, 16}, at::kInt)}}});
  EXPECT_EQ(most_tokens(inputs), 800);
  EXPECT_EQ(most_tokens({}), 0);
}

TEST(StepInputs, ShapesTellRowsFieldsAndPlacesApart) {
  const auto shape = shape_of(inputs_of(3, 1));
  EXPECT_EQ(shape, shape_of(inputs_of(3, 2)));
  EXPECT_NE(shape, shape_of(inputs_of(4, 1)));
  auto later = inputs_of(3, 1);
  later.microbatches[0].first_row = 6;  // draws other numbers
  EXPECT_NE(shape, shape_of(later));
  auto integers = inputs_of(3, 1);
  integers.microbatches[0].fields["x"] = integers.microbatches[0].fields["x"].to(at::kLong);
  EXPECT_NE(shape, shape_of(integers));
}

}  // namespace
}  // namespace orthant
