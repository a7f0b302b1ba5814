// A step on a CUDA device: the host waits for nothing in it, and what a bad step held is noted before the next one
// overwrites it.
#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "base/error_text.h"
#include "orthant/base/error.h"
#include "orthant/cuda/kernel.h"
#include "orthant/data/loader.h"
#include "orthant/runtime/device_recording.h"
#include "orthant/train/run.h"
#include "orthant/train/run_config.h"

namespace orthant::step_device_test {

RunConfig config_of(const char* text, const std::vector<std::string>& settings) {
  JsonOptions options;
  options.source = "the test";
  auto document = JsonDocument::parse(text, options);
  for (const auto& setting : settings) document.apply_override(setting);
  auto config = read_run_config(document);
  config.trainer.device = at::Device(at::kCUDA, 0);
  return config;
}

constexpr const char* kLlama = R"({
 "model": {"kind": "llama", "hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
           "num_key_value_heads": 2, "intermediate_size": 256, "vocab_size": 512, "max_position_embeddings": 128},
 "data": {"kind": "tokens", "sequence_length": 64, "samples": 200},
 "precision": {"compute": "bfloat16"},
 "train": {"global_batch_size": 8}
})";

RunConfig llama(const std::vector<std::string>& settings) {
  return config_of(kLlama, settings);
}

// Two towers, which run side by side where they are recorded.
constexpr const char* kTowers = R"({
 "model": {"kind": "trimodal", "pooling": "cls", "projection": null, "num_labels": 2,
           "primary": {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 256,
                       "vocab_size": 256, "max_position_embeddings": 128, "hidden_dropout_prob": 0.1,
                       "attention_probs_dropout_prob": 0.1},
           "secondary": {"hidden_size": 128, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 256,
                         "vocab_size": 256, "max_position_embeddings": 128, "hidden_dropout_prob": 0.1,
                         "attention_probs_dropout_prob": 0.1},
           "tabular": {"input_dim": 3, "hidden_dim": 32}, "fusion": {"hidden_size": 64, "dropout": 0.1}},
 "data": {"kind": "random", "sequence_length": 64, "samples": 200},
 "precision": {"compute": "bfloat16"},
 "train": {"global_batch_size": 8}
})";

// Every layer has experts.
constexpr const char* kMixtral = R"({
 "model": {"kind": "mixtral", "hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
           "num_key_value_heads": 2, "intermediate_size": 256, "vocab_size": 512, "max_position_embeddings": 128,
           "num_local_experts": 4, "num_experts_per_tok": 2},
 "data": {"kind": "tokens", "sequence_length": 64, "samples": 200},
 "precision": {"compute": "bfloat16"},
 "train": {"global_batch_size": 8}
})";

// Makes every call of ATen that waits for the device throw.
class NoWaiting {
 public:
  NoWaiting() { c10::cuda::warning_state().set_sync_debug_mode(c10::cuda::SyncDebugMode::L_ERROR); }
  ~NoWaiting() { c10::cuda::warning_state().set_sync_debug_mode(c10::cuda::SyncDebugMode::L_DISABLED); }
};

TEST(StepOnACard, WaitsForNothing) {
  struct Case {
    const char* model;
    std::vector<std::string> settings;
  };
  for (const auto& [model, settings] :
       std::vector<Case>{{kLlama, {}},
                         {kLlama, {"parallel.microbatches=2", "optimizer.clip=1"}},
                         {kLlama, {"precision.master=bf16_remainder"}},
                         {kLlama, {"precision.compute=float16"}},
                         {kLlama, {"train.cuda_graph=off"}},
                         {kLlama, {"train.join_head_and_loss=off", "optimizer.kind=sgd"}},
                         {kMixtral, {}},
                         {kMixtral, {"train.cuda_graph=off", "precision.compute=float16"}},
                         {kMixtral, {"train.cuda_graph=off", "model.capacity_factor=1.25"}},
                         {kMixtral, {"train.cuda_graph=off", "model.router_bias_update_rate=0.001"}}}) {
    SCOPED_TRACE(testing::PrintToString(settings));
    auto config = config_of(model, settings);
    const auto data = make_run_data(config);
    const auto trainer = make_trainer(config);
    const auto loader = make_loader(config, data, 0);
    for (int i = 0; i < 3; ++i) trainer->step(loader->next()).get();
    PendingStep last;
    for (int i = 0; i < 3; ++i) {
      const auto batch = loader->next();
      const NoWaiting guard;
      last = trainer->step(batch);
    }
    EXPECT_FALSE(last.get().bad());
  }
}

// No kernel multiplies experts in float32, and the host waits for counts of their rows.
TEST(StepOnACard, SaysThatAMixtureInFloat32CannotBeRecorded) {
  const auto config = config_of(kMixtral, {"precision.compute=float32", "train.cuda_graph=on"});
  const std::string text = error_text<ConfigError>([&] { make_trainer(config); });
  EXPECT_NE(text.find("a step cannot be recorded as a CUDA graph: no kernel multiplies rows of 4 experts by weights of "
                      "512 x 128 in float32"),
            std::string::npos)
      << text;
}

// The weights after steps of changing shapes, clipped, with a step that is not finite in their middle.
std::uint64_t weights_after_steps(const char* model, std::vector<std::string> settings, const std::string& graph,
                                  std::size_t* played, bool side_by_side = true) {
  const std::string unit = model == kTowers ? "fusion" : "layers.1";
  settings.insert(settings.end(), {"train.deterministic=true", "train.bad_steps=skip", "optimizer.clip=1",
                                   "train.poison=[\"gradient:rank=0,unit=" + unit + ",step=9,value=nan\"]",
                                   "train.cuda_graph=" + graph});
  auto config = config_of(model, settings);
  config.trainer.side_by_side = side_by_side;
  config.trainer.lanes_from_tokens = 0;
  const auto data = make_run_data(config);
  const auto trainer = make_trainer(config);
  const auto loader = make_loader(config, data, 0);
  for (int step = 0; step < 20; ++step) {
    auto batch = loader->next();
    if (step % 5 == 4) {  // the last of an epoch
      for (auto& [name, field] : batch.fields) field = field.narrow(0, 0, field.size(0) / 2);
    }
    trainer->step(batch);
  }
  *played = trainer->recorded_steps().num_played();
  return trainer->weights_hash();
}

TEST(StepOnACard, HasTheSameBitsRecordedAndNot) {
  struct Case {
    const char* model;
    std::vector<std::string> settings;
  };
  for (const auto& [model, settings] : std::vector<Case>{{kLlama, {}},
                                                         {kLlama, {"parallel.microbatches=2"}},
                                                         {kLlama, {"parallel.recompute=full"}},
                                                         {kLlama, {"precision.compute=float16"}},
                                                         {kLlama, {"precision.master=bf16_remainder"}},
                                                         {kLlama, {"train.join_head_and_loss=off"}},
                                                         {kMixtral, {}},
                                                         {kMixtral, {"parallel.microbatches=2"}},
                                                         {kMixtral, {"precision.compute=float16"}},
                                                         {kMixtral, {"model.capacity_factor=1.25"}},
                                                         {kMixtral, {"model.router_bias_update_rate=0.001"}},
                                                         {kTowers, {}},
                                                         {kTowers, {"parallel.microbatches=2"}}}) {
    SCOPED_TRACE(testing::PrintToString(settings));
    std::size_t played = 0, never = 0;
    const auto hash = weights_after_steps(model, settings, "on", &played);
    EXPECT_EQ(hash, weights_after_steps(model, settings, "off", &never));
    EXPECT_EQ(hash, weights_after_steps(model, settings, "off", &never, /*side_by_side=*/false));
    EXPECT_EQ(never, 0U);
    EXPECT_GE(played, 14U);  // all but the first two, the bad one and the first short ones
  }
}

// Steps of one rank after the other, the host ahead of the card: each must read its own rows.
TEST(StepOnACard, ReadsItsOwnRowsHoweverFarTheHostIsAhead) {
  const at::Device card(at::kCUDA, 0);
  const auto matrix = at::rand({4096, 4096}, card);
  for (const bool records : {false, true}) {
    RecordedSteps steps(card, records ? make_device_recorder(card) : nullptr);
    const RecordedSteps::Work work{.make = [&](const StepInputs& held, StepStart) {
      auto slow = matrix;  // 100 ms and more for all steps: reading begins late
      for (int i = 0; i < 8; ++i) slow = at::mm(slow, matrix).mul_(1e-4);
      const auto& x = held.microbatches[0].fields.at("x");
      return x.sum() + held.told.sum() + slow.sum().to(at::kDouble) * 0;
    }};
    std::vector<PendingStep> pending;
    const auto rows_of = [](int step) { return 1000 + 5000 * (step % 3); };  // blocks that copies lie in grow
    for (int step = 0; step < 60; ++step) {
      Microbatch rows;
      rows.fields["x"] = at::full({rows_of(step), 8}, static_cast<double>(step), at::kDouble);
      const StepInputs inputs{{rows}, at::ones({1}, at::kDouble), at::full({4}, 0.25, at::kDouble)};
      const auto number = steps.run(inputs, work, true);
      pending.emplace_back(number.reshape({1}).expand({9}).contiguous(), 1);
    }
    for (int step = 0; step < 60; ++step) {
      EXPECT_EQ(pending[static_cast<std::size_t>(step)].get().loss, 8.0 * rows_of(step) * step + 1) << step;
    }
    EXPECT_EQ(steps.num_played(), records ? 56U : 0U);
  }
}

// Texts of many lengths, without padding: equal bits, and few shapes.
TEST(StepOnACard, WithoutPaddingHasTheSameBitsRecordedAndNot) {
  const auto weights = [](const std::string& graph, std::size_t* played) {
    auto config = config_of(kTowers, {"train.deterministic=true", "optimizer.clip=1", "train.cuda_graph=" + graph});
    config.trainer.unpadded = true;
    const auto data = make_run_data(config);
    const auto trainer = make_trainer(config);
    const auto loader = make_loader(config, data, 0);
    for (int step = 0; step < 40; ++step) {
      auto batch = loader->next();
      for (auto& [name, field] : batch.fields) {
        if (!name.ends_with("_mask")) continue;
        field = field.clone();
        for (std::int64_t row = 0; row < field.size(0); ++row)
          field[row].slice(0, 3 + (step * 7 + row * 11) % 40).fill_(false);
      }
      trainer->step(batch);
    }
    *played = trainer->recorded_steps().num_played();
    return trainer->weights_hash();
  };
  const auto launches = [] { return cuda::KernelLibrary::of_process().num_launches("attention_forward"); };
  std::size_t played = 0, never = 0;
  const auto hash = weights("on", &played);
  const auto before = launches();
  EXPECT_EQ(hash, weights("off", &never));
  EXPECT_GT(launches(), before);
  EXPECT_EQ(never, 0U);
  EXPECT_GE(played, 25U);
}

TEST(StepOnACard, ABrokenRecordingLeavesNothingBehind) {
  const at::Device card(at::kCUDA, 0);
  const auto recorder = make_device_recorder(card);
  const auto x = at::ones({1 << 20}, card);
  at::Tensor y;
  const auto branching = [&](bool breaks) {
    const auto here = c10::cuda::getCurrentCUDAStream().unwrap(), beside = c10::cuda::getStreamFromPool().unwrap();
    c10::Event forked(at::kCUDA), joined(at::kCUDA);
    forked.record(here);
    forked.block(beside);
    const c10::StreamGuard on_branch(beside);
    y = x + 1;
    if (breaks) throw std::runtime_error("broken off");
    joined.record(beside);
    joined.block(here);
  };
  const auto one = recorder->record([&] { branching(false); });
  for (int i = 0; i < 3; ++i) EXPECT_THROW(recorder->record([&] { branching(true); }), std::runtime_error);
  y.reset();
  c10::cuda::CUDACachingAllocator::emptyCache();  // which libtorch refuses while it is recording
  const auto other = recorder->record([&] { branching(false); });
  other->play();
  EXPECT_EQ(y.sum().item<float>(), 2 << 20);
}

TEST(StepOnACard, IsRecordedAgainAfterAllWasForgotten) {
  auto config = llama({"train.cuda_graph=on"});
  const auto data = make_run_data(config);
  const auto trainer = make_trainer(config);
  const auto loader = make_loader(config, data, 0);
  for (int round = 0; round < 3; ++round) {
    for (int step = 0; step < 4; ++step) EXPECT_FALSE(trainer->step(loader->next()).get().bad());
    EXPECT_EQ(trainer->recorded_steps().num_played(), 2U * static_cast<std::size_t>(round + 1));
    trainer->set_steps_done(trainer->steps_done());
  }
}

TEST(StepOnACard, ChangingShapesTakeNoMoreMemory) {
  auto config = llama({"train.cuda_graph=on"});
  const auto data = make_run_data(config);
  const auto trainer = make_trainer(config);
  const auto batch = make_loader(config, data, 0)->next();
  const auto step_of = [&](int step) {  // 24 shapes, more than have graphs
    auto part = batch;
    for (auto& [name, field] : part.fields)
      field = field.narrow(0, 0, 1 + step % 8).narrow(1, 0, 32 + step / 8 % 3 * 16);
    return trainer->step(part);
  };
  const auto reserved = [] {
    using Stat = c10::CachingAllocator::StatType;
    return c10::cuda::CUDACachingAllocator::getDeviceStats(0)
        .reserved_bytes[static_cast<std::size_t>(Stat::AGGREGATE)]
        .current;
  };
  for (int step = 0; step < 200; ++step) step_of(step).get();
  const auto before = reserved();
  for (int step = 0; step < 1800; ++step) step_of(step);
  EXPECT_FALSE(step_of(0).get().bad());
  EXPECT_EQ(reserved(), before);
  EXPECT_EQ(trainer->recorded_steps().num_recordings(), RecordedSteps::kMostShapes);
}

TEST(StepOnACard, ItsWaitingWouldBeFound) {
  const auto x = at::ones({4}, at::kCUDA);
  const NoWaiting guard;
  EXPECT_ANY_THROW(x.sum().item<float>());
}

TEST(StepOnACard, NotesWhatABadStepHeld) {
  struct Fault {
    std::string poison, text;
  };
  const Fault faults[] = {
      {"gradient:rank=0,unit=layers.1,parameter=layers.1.norm2.weight,step=3,value=nan",
       "rank 0, unit layers.1: the gradient of layers.1.norm2.weight is not finite"},
      {"activation:rank=0,unit=layers.0,step=3,value=inf", "rank 0, unit layers.0: its output is not finite"},
      {"parameter:rank=0,unit=layers.1,step=3,value=nan", "rank 0, unit layers.1: parameter layers.1."}};
  for (const auto& fault : faults) {
    auto config = llama({"train.poison=[\"" + fault.poison + "\"]"});
    const auto data = make_run_data(config);
    const auto trainer = make_trainer(config);
    const auto loader = make_loader(config, data, 0);
    for (int i = 0; i < 2; ++i) EXPECT_FALSE(trainer->step(loader->next()).get().bad());
    const auto before = cuda::KernelLibrary::of_process().num_launches("note_not_finite");
    const auto bad = trainer->step(loader->next());
    trainer->step(loader->next());  // overwrites the gradients
    EXPECT_EQ(cuda::KernelLibrary::of_process().num_launches("note_not_finite"), before + 2);
    ASSERT_TRUE(bad.get().bad()) << fault.poison;
    EXPECT_NE(trainer->explain_bad_step().text.find(fault.text), std::string::npos) << trainer->explain_bad_step().text;
  }
}

}  // namespace orthant::step_device_test
