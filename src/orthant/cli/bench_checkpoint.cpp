// orthant bench checkpoint: seconds to save, to save in the background, and to load, our side of the tables.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>

#include "orthant/base/error.h"
#include "orthant/base/human.h"
#include "orthant/base/json_text.h"
#include "orthant/base/quantile.h"
#include "orthant/checkpoint/saver.h"
#include "orthant/cli/bench.h"
#include "orthant/cli/config_options.h"
#include "orthant/cli/model_texts.h"
#include "orthant/cli/option_parser.h"
#include "orthant/cli/rank_command.h"
#include "orthant/cli/rank_training.h"
#include "orthant/data/loader.h"
#include "orthant/layout/pieces.h"
#include "orthant/train/run.h"

namespace orthant::cli {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

struct CheckpointOptions {
  std::string folder;  // where folders of this benchmark are made
  std::string load;    // a checkpoint to load instead of saving one
  std::string keep;    // where the last one saved is left
  int rounds = 5;
  bool json = false;
};

// Of each round: the slowest rank's.
struct CheckpointTimes {
  std::vector<double> save, stall, background, load;
  std::int64_t checkpoint_bytes = 0;
  std::int64_t files = 0;
  // By one load, of all ranks together.
  std::int64_t needed_bytes = 0;
  std::int64_t read_bytes = 0;
};

double slowest(const ControlGroup& ranks, double seconds) {
  double most = 0;
  for (const auto& of_rank : ranks.gather(at::tensor({seconds}, at::kDouble))) {
    most = std::max(most, of_rank.item<double>());
  }
  return most;
}

std::int64_t total(const ControlGroup& ranks, std::int64_t bytes) {
  std::int64_t sum = 0;
  for (const auto& of_rank : ranks.gather(at::tensor({bytes}, at::kLong))) sum += of_rank.item<std::int64_t>();
  return sum;
}

double seconds_of(const ControlGroup& ranks, const std::function<void()>& act) {
  ranks.any(false);  // all begin together
  const auto began = Clock::now();
  act();
  return slowest(ranks, std::chrono::duration<double>(Clock::now() - began).count());
}

// What a rank holds of parameters and optimizer state.
std::int64_t held_bytes(const Trainer& trainer) {
  std::int64_t bytes = 0;
  for (const auto& saved : saved_flats(trainer.checkpointed())) {
    for (const auto& piece : pieces_of(saved.parameters->layout(), saved.parameters->owned())) {
      bytes += piece.elements() * static_cast<std::int64_t>(c10::elementSize(saved.owned.scalar_type()));
    }
  }
  return bytes;
}

void save_once(CheckpointSaver& saver, const fs::path& folder) {
  saver.begin(folder.string(), {});
  const auto outcome = saver.finish();
  if (outcome->failed) std::rethrow_exception(outcome->failed);
}

// By a save in the background that a step follows: until begin() is done, and while the update waits for the copy.
double seconds_held_up(Trainer& trainer, Loader& loader, CheckpointSaver& background, const fs::path& folder) {
  const ControlGroup ranks = control_group(trainer.options());
  const auto held = trainer.seconds_held();
  const auto begun = seconds_of(ranks, [&] { background.begin(folder.string(), {}); });
  trainer.step(loader.next()).get();
  if (const auto outcome = background.finish(); outcome->failed) std::rethrow_exception(outcome->failed);
  return begun + slowest(ranks, trainer.seconds_held() - held);
}

void time_saves(Trainer& trainer, Loader& loader, const fs::path& folder, int rounds, CheckpointTimes& times) {
  const ControlGroup ranks = control_group(trainer.options());
  CheckpointSaver saver(trainer, /*asynchronous=*/false);
  CheckpointSaver background(trainer, /*asynchronous=*/true);
  for (int round = 0; round <= rounds; ++round) {
    const auto plain = folder / fmt::format("plain-{}", round);
    const auto later = folder / fmt::format("background-{}", round);
    const auto save = seconds_of(ranks, [&] { save_once(saver, plain); });
    const auto began = Clock::now();
    save_once(background, later);
    const auto all = slowest(ranks, std::chrono::duration<double>(Clock::now() - began).count());
    const auto stall = seconds_held_up(trainer, loader, background, later);
    if (round == 0) continue;  // the first one gets its memory
    times.save.push_back(save);
    times.stall.push_back(stall);
    times.background.push_back(all);
  }
}

void time_loads(Trainer& trainer, const std::string& folder, int rounds, CheckpointTimes& times) {
  const ControlGroup ranks = control_group(trainer.options());
  for (int round = 0; round <= rounds; ++round) {
    std::int64_t read = 0;
    const auto load = seconds_of(ranks, [&] {
      const auto checkpoint = open_checkpoint(folder, ranks);
      load_checkpoint(trainer, checkpoint);
      read = checkpoint.bytes_read();
    });
    times.read_bytes = total(ranks, read);
    if (round > 0) times.load.push_back(load);
  }
  times.needed_bytes = total(ranks, held_bytes(trainer));
  for (const auto& file : read_manifest(folder).files) {
    times.checkpoint_bytes += file.bytes;
    ++times.files;
  }
}

// A folder of rank 0's making that goes with it.
class ScratchFolder {
 public:
  ScratchFolder(const std::string& parent, const ControlGroup& ranks) {
    ranks.together([&] {
      if (!ranks.is_first()) return;
      auto pattern = (fs::path(parent) / "orthant-bench-XXXXXX").string();
      if (mkdtemp(pattern.data()) == nullptr) {
        throw ConfigError(fmt::format("no folder can be made in {}", parent), {.remedy = "name another --folder"});
      }
      made_ = pattern;
    });
    path_ = ranks.from_first(made_.string());
  }
  ~ScratchFolder() {
    std::error_code ignored;
    if (!made_.empty()) fs::remove_all(made_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  const fs::path& path() const { return path_; }

 private:
  fs::path made_;
  fs::path path_;
};

CheckpointTimes measure(RunConfig config, const CheckpointOptions& options) {
  const auto data = make_run_data(config);
  const auto trainer = make_trainer(config);
  const ControlGroup ranks = control_group(config.trainer);
  CheckpointTimes times;
  if (!options.load.empty()) {
    time_loads(*trainer, options.load, options.rounds, times);
    return times;
  }
  const auto loader = make_loader(config, data, 0);
  trainer->step(loader->next()).get();  // the optimizer has its state
  const ScratchFolder scratch(options.folder.empty() ? fs::temp_directory_path().string() : options.folder, ranks);
  time_saves(*trainer, *loader, scratch.path(), options.rounds, times);
  time_loads(*trainer, (scratch.path() / "plain-0").string(), options.rounds, times);
  if (!options.keep.empty()) save_checkpoint(*trainer, {}, options.keep);
  return times;
}

void print(const CheckpointOptions& options, const CheckpointTimes& times, const Mesh& mesh) {
  const auto median = [](const std::vector<double>& seconds) { return seconds.empty() ? 0 : quantile(seconds, 0.5); };
  if (options.json) {
    nlohmann::ordered_json document = {{"mesh", mesh.to_string()},
                                       {"rounds", options.rounds},
                                       {"checkpoint_bytes", times.checkpoint_bytes},
                                       {"files", times.files}};
    if (options.load.empty()) {
      document["save_seconds"] = median(times.save);
      document["stall_seconds"] = median(times.stall);
      document["background_seconds"] = median(times.background);
    }
    document["load_seconds"] = median(times.load);
    document["needed_bytes"] = times.needed_bytes;
    document["read_bytes"] = times.read_bytes;
    std::cout << json_text(document) << std::endl;
    return;
  }
  if (options.load.empty()) {
    std::cout << fmt::format("{}: save of {} in {} files {}, in the background {} of which {} hold training up\n",
                             mesh.to_string(), format_bytes(times.checkpoint_bytes), times.files,
                             format_seconds(median(times.save)), format_seconds(median(times.background)),
                             format_seconds(median(times.stall)));
  }
  std::cout << fmt::format("{}: load {}, {} read where {} are needed\n", mesh.to_string(),
                           format_seconds(median(times.load)), format_bytes(times.read_bytes),
                           format_bytes(times.needed_bytes))
            << std::flush;
}

}  // namespace

int run_bench_checkpoint(const Arguments& arguments, Context& context) {
  OptionParser app(
      "Seconds to save a checkpoint, to save it in the background, and to load it; hashes are checked. Of each round "
      "the slowest rank counts.",
      "orthant bench checkpoint");
  ConfigOptions options;
  RankOptions ranks;
  CheckpointOptions own;
  add_config_options(app, options);
  add_rank_options(app, ranks);
  app.add_option("--folder", own.folder, "make a folder in this one and remove it at the end (default: temporary)");
  const auto load =
      app.add_option("--load", own.load, "load this checkpoint, which another mesh may have saved; save none");
  app.add_option("--keep", own.keep, "save once more into this folder, for --load").excludes(load);
  app.add_option("--rounds", own.rounds, "of each, after one that does not count (default 5)")
      .check(NumberRange(1, 1000));
  app.add_flag("--json", own.json, "one JSON document on stdout");
  if (!parse(app, arguments, context, example::kBenchCheckpoint)) return 0;

  if (!own.keep.empty() && fs::exists(own.keep)) {
    throw ConfigError(fmt::format("--keep {}: exists already and is not replaced", own.keep),
                      {.remedy = "name another folder"});
  }
  const auto loaded = load_config(options, ranks, context.environment);
  check_trainable(loaded.config);
  check_backend(ranks, context, loaded.config);
  refuse_fake_backend(ranks, loaded.config.mesh);
  return run_on_ranks(ranks, context, 1, [&](RankContext& rank) {
    auto config = loaded.config;
    RankTraining training(rank);
    training.prepare(config, resolved_config(loaded.document), "bench");
    const auto times = measure(config, own);
    if (rank.is_first()) print(own, times, rank.mesh);
    return 0;
  });
}

}  // namespace orthant::cli
