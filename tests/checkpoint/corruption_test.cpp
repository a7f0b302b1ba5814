// Damaged checkpoints are refused by name before anything is taken from them: flipped bits, cut, extended, swapped,
// missing and foreign files, edited manifests. 1000 of them with a fixed seed; ORTHANT_EXHAUSTIVE=1 takes 10,000.
#include <gtest/gtest.h>

#include <fstream>
#include <iostream>
#include <random>
#include <sstream>

#include "checkpoint/damaged_checkpoint.h"
#include "checkpoint/forked_saves.h"
#include "orthant/comm/control_group.h"
#include "orthant/files/xxhash.h"
#include "orthant/models/llama/config.h"

namespace orthant::test {
namespace corruption_test {

namespace fs = std::filesystem;

constexpr const char* kResolved = R"({"model": {}})";

// All that a checkpoint would change of a trainer.
struct Snapshot {
  explicit Snapshot(const Trainer& trainer)
      : steps(trainer.steps_done()),
        updates(trainer.optimizer().num_updates()),
        flats(saved_flats(trainer.checkpointed())) {
    for (const auto& flat : flats) values.push_back(flat.owned.values().clone());
  }

  bool holds(const Trainer& trainer) const {
    for (std::size_t i = 0; i < flats.size(); ++i) {
      if (std::memcmp(flats[i].owned.whole().const_data_ptr(), values[i].const_data_ptr(), values[i].nbytes()) != 0)
        return false;
    }
    return trainer.steps_done() == steps && trainer.optimizer().num_updates() == updates;
  }

  std::int64_t steps;
  std::int64_t updates;
  std::vector<SavedFlat> flats;
  std::vector<at::Tensor> values;
};

// Whether a refusal names one of the files.
bool names_one(const std::string& text, const std::set<std::string>& files) {
  return std::ranges::any_of(files, [&](const auto& file) { return text.find(file) != std::string::npos; });
}

// A run of four ranks with checkpoints of steps 1 to 3.
class Corruption : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    at::set_num_threads(1);
    scratch_ = std::make_unique<QuickFolder>("orthant-corruption");
    on_ranks(config(true, 3), [&](const RunConfig& mine) {
      std::ostringstream out;
      RunOptions options;
      options.output_dir = run_path().string();
      run_training(mine, kResolved, options, out);
    });
  }
  static void TearDownTestSuite() { scratch_.reset(); }

  static RunConfig config(bool four_ranks, int steps) {
    auto config = saved_model(four_ranks);
    config.steps = steps;
    config.checkpoint.save_every = 1;
    config.checkpoint.keep = {.last = 3};
    return config;
  }

  static fs::path run_path() { return scratch_->path / "run"; }
  static fs::path checkpoint(int step) { return run_path() / "checkpoints" / ("step-" + std::to_string(step)); }

  static std::unique_ptr<QuickFolder> scratch_;
};
std::unique_ptr<QuickFolder> Corruption::scratch_;

template <typename Act>
std::string refusal(const Act& act) {
  try {
    act();
    return "no error";
  } catch (const DataError& error) {
    return error.what();
  } catch (const std::exception& error) {
    return std::string("no DataError: ") + error.what();
  }
}

TEST_F(Corruption, OfAnyKindIsRefusedByNameBeforeAnythingChanges) {
  const auto path = checkpoint(3).string();
  const auto trainer = make_trainer(config(false, 3));
  set_mark(*trainer, 7, 5);
  const Snapshot before(*trainer);
  const auto hash = trainer->weights_hash();
  Vandal vandal(checkpoint(3), checkpoint(2), 20240611);
  ASSERT_EQ(vandal.shards().size(), 4U);
  const int count = exhaustive() ? 10000 : 1000;
  std::map<std::string, int> ways;
  int false_alarms = 0;
  for (int i = 0; i < count && !HasFailure(); ++i) {
    const auto damage = vandal.damage();
    ++ways[damage.what];
    SCOPED_TRACE("damage " + std::to_string(i) + ": " + damage.what + " " + *damage.files.begin());
    const auto verified = refusal([&] { verify_checkpoint(path); });
    const auto loaded = refusal([&] { load_checkpoint(*trainer, path); });
    EXPECT_TRUE(verified.starts_with(path) && names_one(verified, damage.files)) << verified;
    EXPECT_EQ(loaded, verified);
    EXPECT_TRUE(before.holds(*trainer));
    vandal.repair();
    if (i % 10 == 0) false_alarms += refusal([&] { verify_checkpoint(path); }) == "no error" ? 0 : 1;
  }
  EXPECT_EQ(trainer->weights_hash(), hash);
  EXPECT_EQ(false_alarms, 0);
  for (const auto& [what, times] : ways) std::cout << what << ": " << times << '\n';
  std::cout << count << " corruptions refused by name, " << false_alarms << " false alarms\n";
  EXPECT_EQ(load_checkpoint(*trainer, path).manifest.step, 3);
  EXPECT_FALSE(before.holds(*trainer));
}

TEST_F(Corruption, IsRefusedByAllRanksAlike) {
  const auto path = checkpoint(3).string();
  auto three = config(false, 3);
  three.mesh = Mesh::parse("dp=3");
  Vandal vandal(checkpoint(3), checkpoint(2), 5);  // rank 0's
  on_ranks(three, [&](const RunConfig& mine) {
    const auto trainer = make_trainer(mine);
    const ControlGroup ranks = control_group(mine.trainer);
    const Snapshot before(*trainer);
    const CheckpointAccess access{.patience = IoPatience(0.1)};  // every file that is gone takes as long
    for (int i = 0; i < (exhaustive() ? 300 : 30); ++i) {
      Damage damage;
      ranks.together([&] {
        if (ranks.is_first()) damage = vandal.damage();
      });
      const auto text = refusal([&] { load_checkpoint(*trainer, open_checkpoint(path, ranks, access)); });
      EXPECT_TRUE(before.holds(*trainer));
      for (const auto& other : ranks.gather_texts(text)) EXPECT_EQ(other, text);
      EXPECT_TRUE(!ranks.is_first() || names_one(text, damage.files)) << damage.what << ": " << text;
      ranks.together([&] {
        if (ranks.is_first()) vandal.repair();
      });
    }
  });
}

// Changes one byte of a file, or changes it back.
void flip(const fs::path& path, std::int64_t place) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekg(place);
  const auto byte = static_cast<char>(file.get() ^ 64);
  file.seekp(place);
  file.put(byte);
}

// Files are hashed in blocks, which the ranks share out.
TEST_F(Corruption, OfAnyBlockOfALargeFileIsRefusedByAllRanks) {
  const auto path = scratch_->path / "large";
  auto large = config(false, 3);
  get<LlamaConfig>(large.model).vocab_size = 70000;
  const auto trainer = make_trainer(large);
  trainer->set_steps_done(1);
  trainer->save(path.string());
  const auto shard = path / "rank-0.safetensors";
  const auto bytes = static_cast<std::int64_t>(fs::file_size(shard));
  ASSERT_GT(bytes, 3 * kHashedBlockBytes);
  auto three = config(false, 3);
  three.mesh = Mesh::parse("dp=3");
  on_ranks(three, [&](const RunConfig& mine) {
    const ControlGroup ranks = control_group(mine.trainer);
    for (std::int64_t block = 0; block * kHashedBlockBytes < bytes; ++block) {
      for (const auto place : {block * kHashedBlockBytes, std::min(bytes, (block + 1) * kHashedBlockBytes) - 1}) {
        const auto change = [&] {
          if (ranks.is_first()) flip(shard, place);
        };
        ranks.together(change);
        const auto text = refusal([&] { open_checkpoint(path.string(), ranks); });
        EXPECT_NE(text.find(shard.string()), std::string::npos) << place << ": " << text;
        for (const auto& other : ranks.gather_texts(text)) EXPECT_EQ(other, text);
        ranks.together(change);
      }
    }
    EXPECT_EQ(refusal([&] { open_checkpoint(path.string(), ranks); }), "no error");
  });
  auto text = read_file(shard);  // two blocks change places
  const auto block = static_cast<std::size_t>(kHashedBlockBytes);
  std::swap_ranges(text.begin(), text.begin() + kHashedBlockBytes, text.begin() + kHashedBlockBytes);
  put_file(shard, text);
  const auto swapped = refusal([&] { verify_checkpoint(path.string()); });
  EXPECT_NE(swapped.find(shard.string()), std::string::npos) << swapped;
  put_file(shard, text.substr(0, block));
  const auto cut = refusal([&] { verify_checkpoint(path.string()); });
  EXPECT_NE(cut.find(shard.string() + ": "), std::string::npos) << cut;
}

// What of a checkpoint is no damage: where its bytes lie, and what lies beside them.
TEST_F(Corruption, IsNotSeenWhereThereIsNone) {
  const auto copy = scratch_->path / "copy";
  fs::copy(checkpoint(3), copy, fs::copy_options::recursive);
  fs::remove(copy / "rank-1.safetensors");
  fs::create_symlink(checkpoint(3) / "rank-1.safetensors", copy / "rank-1.safetensors");
  put_file(copy / "notes.txt", "mine");
  fs::last_write_time(copy / kManifestFile, fs::file_time_type::clock::now());
  EXPECT_EQ(verify_checkpoint(copy.string()), verify_checkpoint(checkpoint(3).string()));
}

TEST_F(Corruption, OfTheNewestLetsARunGoOnFromTheOneBefore) {
  const auto pristine = scratch_->path / "pristine";
  fs::copy(run_path(), pristine, fs::copy_options::recursive);
  std::mt19937_64 seeds(3);
  for (int i = 0; i < (exhaustive() ? 100 : 24); ++i) {
    const auto run = scratch_->path / "resumed";
    fs::remove_all(run);
    fs::copy(pristine, run, fs::copy_options::recursive);
    const auto newest = run / "checkpoints" / "step-3";
    const auto damage = Vandal(newest, pristine / "checkpoints" / "step-2", seeds()).damage();
    SCOPED_TRACE(damage.what + " " + *damage.files.begin());
    std::ostringstream out;
    RunOptions options;
    options.output_dir = run.string();
    options.resume = "auto";
    const auto outcome = run_training(config(false, 4), kResolved, options, out);
    EXPECT_EQ(outcome.result.steps, 4);
    const auto text = out.str();
    const auto refused = text.find("not resumed from " + newest.string());
    ASSERT_NE(refused, std::string::npos) << text;
    const auto line = text.substr(refused, text.find('\n', refused) - refused);
    EXPECT_TRUE(names_one(line, damage.files)) << line;
    const auto resumed = "\nresumed from " + (run / "checkpoints" / "step-2").string() + " at step 2\n";
    EXPECT_NE(text.find(resumed, refused), std::string::npos) << text;
    EXPECT_EQ(verify_checkpoint((run / "checkpoints" / "step-4").string()).step, 4);
  }
}

TEST_F(Corruption, OfAllIsToldWithTheNewest) {
  const auto run = scratch_->path / "hopeless";
  fs::copy(run_path(), run, fs::copy_options::recursive);
  for (int step = 1; step <= 3; ++step) {
    put_file(run / "checkpoints" / ("step-" + std::to_string(step)) / "rank-2.safetensors", "");
  }
  std::ostringstream out;
  RunOptions options;
  options.output_dir = run.string();
  options.resume = "auto";
  const auto text = refusal([&] { run_training(config(false, 4), kResolved, options, out); });
  const auto promised = std::to_string(fs::file_size(checkpoint(3) / "rank-2.safetensors"));
  EXPECT_EQ(text, run.string() + "/checkpoints: none of its 3 checkpoints can be resumed; the newest: " + run.string() +
                      "/checkpoints/step-3/rank-2.safetensors: 0 bytes, the manifest promises " + promised + " bytes" +
                      "\n  fix: move " + run.string() + "/checkpoints away and begin at step 0 with --resume auto " +
                      "--from-scratch, or start anew in another --output-dir");
}

}  // namespace corruption_test
}  // namespace orthant::test
