// precision.master: bf16_remainder trains to the bits of float32 on every policy, its checkpoints are the same files,
// and a run goes on with the other kind.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <mutex>

#include "base/error_text.h"
#include "orthant/checkpoint/checkpoint.h"
#include "orthant/files/whole_file.h"
#include "train/training_ranks.h"

namespace orthant {
namespace split_master_test {

RunConfig config_of(const MeshCase& mesh, const std::string& master, std::vector<std::string> more = {}) {
  std::vector<std::string> settings = {"model.num_hidden_layers=2",   "model.hidden_size=16",
                                       "model.intermediate_size=20",  "model.num_attention_heads=2",
                                       "model.num_key_value_heads=1", "model.vocab_size=53",
                                       "data.sequence_length=8",      "data.samples=48",
                                       "train.global_batch_size=12",  "train.steps=20",
                                       "lr_schedule.warmup_steps=3",  "optimizer.lr=0.02",
                                       "optimizer.clip=0.5",          "precision.compute=bfloat16",
                                       "precision.master=" + master,  "parallel.zero=" + std::to_string(mesh.zero)};
  const auto degrees = Mesh::parse(mesh.mesh);
  for (const auto axis : {Axis::dp, Axis::fsdp, Axis::tp}) {
    settings.push_back("mesh." + std::string(axis_name(axis)) + "=" + std::to_string(degrees.degree(axis)));
  }
  settings.insert(settings.end(), more.begin(), more.end());
  return read_run_config(load_run_document(ORTHANT_SOURCE_DIR "/configs/llama_tiny.json", settings));
}

struct Course {
  std::vector<double> losses;
  std::uint64_t hash = 0;
  friend bool operator==(const Course&, const Course&) = default;
};

// Makes the steps up to `last` from wherever the trainer is.
Course train(RunConfig config, Trainer& trainer, std::int64_t last) {
  const auto data = make_run_data(config);
  const auto loader = make_loader(config, data, trainer.steps_done());
  Course course;
  while (trainer.steps_done() < last) course.losses.push_back(trainer.step(loader->next()).get().loss);
  course.hash = trainer.weights_hash();
  return course;
}

// Of the first rank; all agree.
Course course_of(const RunConfig& config) {
  std::mutex mutex;
  Course found;
  on_ranks(config, [&](const RunConfig& mine) {
    const auto trainer = make_trainer(mine);
    const auto course = train(mine, *trainer, 20);
    const std::lock_guard lock(mutex);
    if (found.losses.empty()) found = course;
    EXPECT_EQ(course, found) << "rank " << rank_of(mine);
  });
  return found;
}

TEST(SplitMaster, TrainsToTheSameBits) {
  for (const auto& mesh : std::vector<MeshCase>{{"dp=1"}, {"dp=2"}, {"fsdp=2", 1}, {"fsdp=2", 2}, {"fsdp=2", 3}}) {
    for (const std::vector<std::string>& more :
         {std::vector<std::string>{}, {"optimizer.kind=sgd", "optimizer.momentum=0.9"}}) {
      SCOPED_TRACE(case_name(mesh) + (more.empty() ? " adamw" : " sgd"));
      const auto whole = course_of(config_of(mesh, "float32", more));
      const auto split = course_of(config_of(mesh, "bf16_remainder", more));
      ASSERT_EQ(whole.losses.size(), 20U);
      EXPECT_LT(whole.losses.back(), whole.losses.front()) << "nothing was learned";
      EXPECT_EQ(split, whole);
    }
  }
}

TEST(SplitMaster, IsTwoBytesAParameterBesideTheComputeCopy) {
  const auto trainer = make_trainer(config_of({"dp=1"}, "bf16_remainder"));
  for (const auto& buffer : trainer->parameters().buffers()) {
    ASSERT_TRUE(buffer->master().is_split());
    EXPECT_EQ(buffer->master().remainder().element_size(), 2);
    EXPECT_EQ(buffer->master().upper().const_data_ptr(), buffer->gather_input().const_data_ptr()) << "one memory";
  }
  const auto whole = make_trainer(config_of({"dp=1"}, "float32"));
  std::int64_t elements = 0;
  for (const auto& buffer : trainer->parameters().buffers()) elements += buffer->layout().size;
  EXPECT_EQ(whole->parameters().kept_bytes() - trainer->parameters().kept_bytes(), 2 * elements);
}

TEST(SplitMaster, ARunGoesOnWithTheOtherKind) {
  const TestFolder folder("orthant-split-master");
  const auto whole = config_of({"dp=1"}, "float32");
  const auto split = config_of({"dp=1"}, "bf16_remainder");
  const auto straight = course_of(whole);
  for (const bool first_split : {false, true}) {
    const auto& first = first_split ? split : whole;
    const auto& second = first_split ? whole : split;
    const auto path = (folder.path / (first_split ? "a" : "b")).string();
    const auto begun = make_trainer(first);
    auto losses = train(first, *begun, 9).losses;
    begun->save(path);
    const auto resumed = make_trainer(second);
    resumed->load(path);
    EXPECT_EQ(resumed->weights_hash(), begun->weights_hash());
    const auto rest = train(second, *resumed, 20);
    losses.insert(losses.end(), rest.losses.begin(), rest.losses.end());
    EXPECT_EQ(losses, straight.losses) << first_split;
    EXPECT_EQ(rest.hash, straight.hash) << first_split;
  }
}

TEST(SplitMaster, CheckpointsAreTheSameBytes) {
  const TestFolder folder("orthant-split-master-files");
  const auto read = [](const std::filesystem::path& path) { return read_file(path, 1 << 24); };
  std::vector<std::string> files;
  for (const char* kind : {"float32", "bf16_remainder"}) {
    const auto config = config_of({"dp=1"}, kind);
    const auto trainer = make_trainer(config);
    train(config, *trainer, 3);
    trainer->save((folder.path / kind).string());
    files.push_back(read(folder.path / kind / "rank-0.safetensors"));
  }
  EXPECT_FALSE(files[0].empty());
  EXPECT_EQ(files[0], files[1]);
}

TEST(SplitMaster, AParameterThatIsNotFiniteStopsTheStep) {
  for (const char* kind : {"float32", "bf16_remainder"}) {
    auto config = config_of({"dp=1"}, kind, {R"(train.poison=["parameter:rank=0,unit=layers.1,step=3,value=nan"])"});
    const auto trainer = make_trainer(config);
    const auto data = make_run_data(config);
    const auto loader = make_loader(config, data, 0);
    for (int step = 1; step <= 2; ++step) EXPECT_FALSE(trainer->step(loader->next()).get().bad());
    EXPECT_TRUE(trainer->step(loader->next()).get().bad());
    const auto bad = trainer->explain_bad_step();
    EXPECT_NE(bad.text.find("layers.1"), std::string::npos) << bad.text;
  }
}

TEST(SplitMaster, WhatItCannotStoreIsRefused) {
  const std::vector<std::pair<std::vector<std::string>, std::vector<std::string>>> refusals = {
      {{"precision.master=bf16_remainder"},
       {"precision.master: bf16_remainder is float32 params beside bfloat16 compute; params are float32 and compute is "
        "float32",
        "set precision.params=float32 and precision.compute=bfloat16, or precision.master=float32"}},
      {{"precision.master=bf16_remainder", "precision.compute=float16"}, {"compute is float16"}},
      {{"precision.master=bf16_remainder", "precision.params=float64", "precision.compute=bfloat16"},
       {"params are float64", "or precision.master=float64"}},
      {{"precision.master=bf16_remainder", "precision.compute=bfloat16", "parallel.offload=optimizer"},
       {"precision.master: bf16_remainder with parallel.offload=optimizer: its halves would lie on two devices",
        "set parallel.offload=none or precision.master=float32"}},
      {{"precision.master=bf16_remander", "precision.compute=bfloat16"},
       {"precision.master: \"bf16_remander\" is no way to store the optimizer's copy",
        "did you mean \"bf16_remainder\"?"}},
      {{"precision.master=float32", "precision.params=float64"},
       {"precision.master: is float32 with params float64", "use float64"}},
  };
  for (const auto& [settings, texts] : refusals) {
    const auto found = error_text<ConfigError>([&] { read_run_config(load_run_document("", settings)); });
    for (const auto& text : texts) EXPECT_NE(found.find(text), std::string::npos) << found;
  }
}

}  // namespace split_master_test
}  // namespace orthant
