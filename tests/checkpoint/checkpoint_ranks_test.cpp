// Checkpoints that one mesh writes and another reads.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <cerrno>
#include <cmath>
#include <map>
#include <set>

#include "checkpoint/model_on_disk.h"
#include "orthant/base/error.h"
#include "orthant/checkpoint/checkpoint.h"
#include "orthant/checkpoint/hugging_face_import.h"
#include "orthant/comm/control_group.h"
#include "orthant/files/whole_file.h"
#include "orthant/models/llama/config.h"
#include "orthant/train/whole_tensors.h"
#include "train/training_ranks.h"

namespace orthant {
namespace checkpoint_ranks_test {

namespace fs = std::filesystem;

using Tensors = std::map<std::string, at::Tensor>;

// Whole parameters and optimizer state by the names of a checkpoint. Collective.
Tensors whole_state(const Trainer& trainer) {
  auto found = whole_weights(trainer);
  EXPECT_TRUE(found.copies_equal);
  auto all = std::move(found.tensors);
  const auto& optimizer = trainer.optimizer();
  for (std::size_t s = 0; s < optimizer.state_names().size(); ++s) {
    const auto states = whole_tensors(trainer, Covered::trainable, trainer.options().precision.params,
                                      [&](std::size_t b) { return optimizer.state(s, b); });
    EXPECT_TRUE(states.copies_equal);
    for (const auto& [name, tensor] : states.tensors) all[optimizer.state_names()[s] + "." + name] = tensor;
  }
  return all;
}

std::vector<double> train_steps(Trainer& trainer, const RunConfig& config, int steps) {
  auto data_config = config;
  const auto data = make_run_data(data_config);
  const auto loader = make_loader(data_config, data, trainer.steps_done());
  std::vector<double> losses;
  for (int i = 0; i < steps; ++i) losses.push_back(trainer.step(loader->next()).get().loss);
  return losses;
}

double distance(const Tensors& found, const Tensors& expected) {
  EXPECT_EQ(found.size(), expected.size());
  double worst = 0;
  for (const auto& [name, tensor] : expected) {
    worst = std::max(worst, (found.at(name) - tensor).abs().max().item<double>());
  }
  return worst;
}

// What a training of some steps came to, on rank 0.
struct Outcome {
  std::uint64_t hash = 0;
  Tensors state;
  std::vector<double> losses;
};

constexpr int kStepsBefore = 2;
constexpr int kStepsAfter = 2;

class CheckpointRanks : public testing::TestWithParam<MeshCase> {};

TEST_P(CheckpointRanks, AreReadByEveryMesh) {
  const TestFolder folder("orthant-checkpoint-ranks");
  const auto path = (folder.path / "saved").string();
  Outcome saved;
  on_ranks(tiny_llama(GetParam()), [&](const RunConfig& config) {
    const auto trainer = make_trainer(config);
    train_steps(*trainer, config, kStepsBefore);
    const auto cursor = DataCursor{.epoch = 1, .position = 2, .samples_seen = 3};
    save_checkpoint(*trainer, cursor, path, {{"data.json", "{}"}});
    const auto hash = trainer->weights_hash();
    const auto state = whole_state(*trainer);
    if (rank_of(config) == 0) saved = {hash, state, {}};
  });
  const auto manifest = verify_checkpoint(path);
  EXPECT_EQ(manifest.step, kStepsBefore);
  EXPECT_EQ(manifest.updates, kStepsBefore);
  EXPECT_EQ(manifest.mesh, Mesh::parse(GetParam().mesh).to_string());
  EXPECT_EQ(manifest.samples_seen, 3);
  EXPECT_EQ(manifest.files.size(), static_cast<std::size_t>(Mesh::parse(GetParam().mesh).world_size()) + 1);

  Outcome expected;  // of one rank that goes on
  for (const auto& reader : kMeshes) {
    SCOPED_TRACE("read by " + case_name(reader));
    on_ranks(tiny_llama(reader), [&](const RunConfig& config) {
      const auto trainer = make_trainer(config);
      EXPECT_NE(trainer->weights_hash(), saved.hash);
      load_checkpoint(*trainer, path);
      EXPECT_EQ(trainer->weights_hash(), saved.hash);
      EXPECT_EQ(trainer->steps_done(), kStepsBefore);
      EXPECT_EQ(trainer->optimizer().num_updates(), kStepsBefore);
      const auto loaded = whole_state(*trainer);
      if (rank_of(config) == 0) {
        EXPECT_EQ(distance(loaded, saved.state), 0);
      }
      const auto losses = train_steps(*trainer, config, kStepsAfter);
      const auto state = whole_state(*trainer);
      if (rank_of(config) != 0) return;
      if (config.mesh.world_size() == 1) expected = {0, state, losses};
      EXPECT_LT(distance(state, expected.state), 1e-10);
      for (std::size_t i = 0; i < losses.size(); ++i) EXPECT_NEAR(losses[i], expected.losses[i], 1e-10);
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Meshes, CheckpointRanks, testing::ValuesIn(kMeshes), [](const auto& info) {
  auto name = case_name(info.param);
  std::erase_if(name, [](char letter) { return std::isalnum(static_cast<unsigned char>(letter)) == 0; });
  return name;
});

// Gloo carries what shared memory does.
TEST(CheckpointRanks, AreWrittenAndReadOverGloo) {
  const TestFolder folder("orthant-checkpoint-gloo");
  const auto path = (folder.path / "saved").string();
  const MeshCase writer = {"dp=2,fsdp=2", 2};
  const MeshCase reader = {"tp=2,fsdp=2", 3};
  std::uint64_t saved = 0;
  on_ranks(
      tiny_llama(writer),
      [&](const RunConfig& config) {
        const auto trainer = make_trainer(config);
        train_steps(*trainer, config, kStepsBefore);
        trainer->save(path);
        const auto hash = trainer->weights_hash();
        if (rank_of(config) == 0) saved = hash;
      },
      comm::BackendKind::gloo);
  on_ranks(
      tiny_llama(reader),
      [&](const RunConfig& config) {
        const auto trainer = make_trainer(config);
        trainer->load(path);
        EXPECT_EQ(trainer->weights_hash(), saved);
        for (const double loss : train_steps(*trainer, config, kStepsAfter)) EXPECT_TRUE(std::isfinite(loss));
      },
      comm::BackendKind::gloo);
}

std::vector<std::string> texts_of(const std::vector<std::exception_ptr>& errors) {
  std::vector<std::string> texts;
  for (const auto& error : errors) {
    try {
      if (error) std::rethrow_exception(error);
      texts.emplace_back("no error");
    } catch (const DataError& thrown) {
      texts.emplace_back(thrown.what());
    } catch (const std::exception& thrown) {
      texts.push_back(std::string("another kind of error: ") + thrown.what());
    }
  }
  return texts;
}

// A folder whose path leaves room for rank-9.safetensors in the partial folder of a checkpoint "c" that exists already,
// and not for rank-10.safetensors.
fs::path folder_too_deep_for_rank_10(const fs::path& above) {
  constexpr std::size_t kLongestPath = 4095;
  const auto inside = "/c.new.partial-" + std::to_string(getpid()) + "/rank-9.safetensors";
  auto left = kLongestPath - inside.size() - above.string().size();
  auto path = above;
  while (left > 0) {
    // A name of one letter takes two, so that no single letter may be left over.
    const auto take = left <= 200 ? left : std::min<std::size_t>(left - 2, 200);
    path /= std::string(take - 1, 'd');
    left -= take;
  }
  fs::create_directories(path);
  return path;
}

TEST(CheckpointRanks, AWriterThatFailsIsNamedByAllAndNothingIsLeft) {
  const TestFolder folder("orthant-failing-writer");
  const auto deep = folder_too_deep_for_rank_10(folder.path);
  const auto path = deep / "c";
  // Its manifest needs a long name for a while, so it is written elsewhere.
  const auto shallow = (folder.path / "saved").string();
  on_ranks(tiny_llama({"dp=1"}), [&](const RunConfig& config) { make_trainer(config)->save(shallow); });
  fs::rename(shallow, path);
  const auto before = verify_checkpoint(path.string());
  auto config = tiny_llama({"dp=1"});
  config.mesh = Mesh::parse("dp=11");
  const auto errors = try_on_ranks(config, [&](const RunConfig& mine) {
    const auto trainer = make_trainer(mine);
    trainer->set_steps_done(5);
    trainer->save(path.string());
  });
  for (const auto& text : texts_of(errors)) {
    EXPECT_TRUE(text.starts_with("rank 10: ")) << text;
    EXPECT_NE(text.find("/rank-10.safetensors"), std::string::npos) << text;
  }
  std::set<std::string> left;
  for (const auto& item : fs::directory_iterator(deep)) left.insert(item.path().filename());
  EXPECT_EQ(left, std::set<std::string>{"c"});
  EXPECT_EQ(verify_checkpoint(path.string()), before);
}

TEST(CheckpointRanks, AFolderThatCannotBeMadeIsRefusedByAll) {
  const TestFolder folder("orthant-unwritable");
  write_file_atomically(folder.path / "file", "");
  const auto errors = try_on_ranks(tiny_llama({"fsdp=3", 3}), [&](const RunConfig& config) {
    make_trainer(config)->save((folder.path / "file" / "step-1").string());
  });
  for (const auto& text : texts_of(errors)) {
    EXPECT_TRUE(text.starts_with("rank 0: " + folder.path.string())) << text;
  }
}

TEST(CheckpointRanks, OneThatIsThereIsReplaced) {
  const TestFolder folder("orthant-replaced");
  on_ranks(tiny_llama({"fsdp=2", 1}), [&](const RunConfig& config) {
    const auto trainer = make_trainer(config);
    trainer->save((folder.path / "c").string());
    trainer->set_steps_done(7);
    // The folder of rank 0 counts.
    trainer->save(rank_of(config) == 0 ? (folder.path / "c").string() : "/nowhere");
  });
  EXPECT_EQ(verify_checkpoint((folder.path / "c").string()).step, 7);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path), fs::directory_iterator()), 1);
}

TEST(CheckpointRanks, ADamagedOneIsRefusedByAllAndNothingChanges) {
  const TestFolder folder("orthant-damaged");
  const auto path = folder.path / "c";
  const auto errors = try_on_ranks(tiny_llama({"fsdp=3", 3}), [&](const RunConfig& config) {
    const auto trainer = make_trainer(config);
    trainer->set_steps_done(1);
    trainer->save(path.string());
    if (rank_of(config) == 0) {
      auto text = read_file(path / "rank-1.safetensors");
      text.back() = static_cast<char>(text.back() ^ 1);
      write_file_atomically(path / "rank-1.safetensors", text);
    }
    train_steps(*trainer, config, 1);
    const auto hash = trainer->weights_hash();
    try {
      trainer->load(path.string());
    } catch (const DataError&) {
      EXPECT_EQ(trainer->weights_hash(), hash);
      EXPECT_EQ(trainer->steps_done(), 2);
      throw;
    }
  });
  const auto texts = texts_of(errors);
  EXPECT_NE(texts.front().find("rank-1.safetensors: hash "), std::string::npos) << texts.front();
  EXPECT_TRUE(texts.front().starts_with("rank 1: ")) << "the one that looked at that file: " << texts.front();
  for (const auto& text : texts) EXPECT_EQ(text, texts.front());
}

// A rank whose view of a shared file system is old: here one that works in another folder, where the path leads to
// nothing.
TEST(CheckpointRanks, WhatAnotherRankAloneDoesNotSeeIsNoDamage) {
  const TestFolder folder("orthant-unseen");
  const std::string path = "/proc/thread-self/cwd/c";
  for (const bool removed : {false, true}) {
    const auto errors = try_on_ranks(tiny_llama({"fsdp=2", 3}), [&](const RunConfig& config) {
      ASSERT_EQ(::unshare(CLONE_FS), 0);
      fs::current_path(folder.path);
      const auto trainer = make_trainer(config);
      trainer->set_steps_done(1);
      trainer->save((folder.path / "c").string());
      const ControlGroup ranks = control_group(config.trainer);
      if (!ranks.is_first()) fs::current_path(removed ? folder.path : fs::path("/"));
      if (removed && ranks.is_first()) fs::remove(folder.path / "c" / "rank-1.safetensors");
      ranks.together([] {});
      try {
        open_checkpoint(path, ranks, {.patience = IoPatience(0.1)});
      } catch (const IoError& error) {
        EXPECT_EQ(error.error_number(), ENOENT);
        EXPECT_FALSE(removed);
        throw;
      }
    });
    for (const auto& text : texts_of(errors)) {
      const auto expected = removed ? "rank 0: " : "rank 1: ";
      EXPECT_TRUE(text.starts_with(expected)) << text;
    }
  }
}

TEST(CheckpointRanks, AnImportedModelIsReadIntoShards) {
  constexpr const char* kLlama = R"({"model_type": "llama", "hidden_size": 12, "num_attention_heads": 2,
    "num_hidden_layers": 1, "intermediate_size": 20, "vocab_size": 31, "max_position_embeddings": 32})";
  const TestFolder folder("orthant-imported");
  ModelOnDisk disk(kLlama);
  disk.write();
  import_hugging_face(disk.folder, folder.path / "c");
  std::uint64_t expected = 0;
  for (const auto& mesh : kMeshes) {
    auto run = tiny_llama(mesh);
    run.model = disk.config;
    on_ranks(run, [&](const RunConfig& config) {
      const auto trainer = make_trainer(config);
      const auto drawn = trainer->weights_hash();
      train_steps(*trainer, config, 0);
      trainer->set_steps_done(3);
      load_checkpoint(*trainer, (folder.path / "c").string());
      EXPECT_EQ(trainer->steps_done(), 0);
      const auto hash = trainer->weights_hash();
      EXPECT_NE(hash, drawn);
      if (config.mesh.world_size() == 1) expected = hash;
      EXPECT_EQ(hash, expected) << case_name(mesh);
    });
  }
}

// What was proved is loaded, whatever has its name by then.
TEST(CheckpointRanks, AnImportedModelIsReadFromTheFilesThatWereProved) {
  constexpr const char* kLlama = R"({"model_type": "llama", "hidden_size": 12, "num_attention_heads": 2,
    "num_hidden_layers": 1, "intermediate_size": 20, "vocab_size": 31, "max_position_embeddings": 32})";
  const TestFolder folder("orthant-proved");
  ModelOnDisk disk(kLlama);
  disk.write();
  import_hugging_face(disk.folder, folder.path / "c");
  auto config = tiny_llama({"dp=1"});
  config.model = disk.config;
  const auto trainer = make_trainer(config);
  load_checkpoint(*trainer, (folder.path / "c").string());
  const auto expected = trainer->weights_hash();
  const auto opened = open_checkpoint((folder.path / "c").string(), ControlGroup());
  fs::rename(folder.path / "c", folder.path / "moved");
  trainer->parameters().buffers().front()->master().whole().zero_();
  load_checkpoint(*trainer, opened);
  EXPECT_EQ(trainer->weights_hash(), expected);
}

}  // namespace checkpoint_ranks_test
}  // namespace orthant
