#include "orthant/cli/memory_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "orthant/base/error.h"
#include "orthant/base/human.h"
#include "orthant/base/text_table.h"
#include "orthant/launch/memory_group.h"
#include "orthant/layout/rows.h"
#include "orthant/train/run.h"
#include "orthant/train/run_estimate.h"

namespace orthant::cli {
namespace {

// What a rank's process writes of its own, besides tensors. This process has the program's pages already.
constexpr std::int64_t kRankBytes = std::int64_t{16} << 20;

// Ranks of the run on this host.
struct LocalRanks {
  int first = 0;
  int count = 1;
};

// A way to train the same with less memory, as a user would write it.
struct Way {
  std::string words;
  std::int64_t bytes = 0;
};

// Tries changes of what the user gave; those that cannot be trained and those that save nothing are left out.
class Ways {
 public:
  using Change = std::function<void(ConfigOptions&, RankOptions&)>;

  Ways(const LoadedConfig& loaded, const ConfigOptions& options, const RankOptions& ranks, LocalRanks local,
       const launch::Environment& environment)
      : loaded_(loaded), options_(options), ranks_(ranks), local_(local), environment_(environment) {
    options_.pp_size = options_.tp_size = options_.dp_size = options_.fsdp_size = std::nullopt;  // the mesh has them
    needed_ = host_bytes(loaded.config, local.first, local.count);
  }

  void try_all(std::int64_t free) {
    const auto fewer_rows = microbatches(free);
    add("--set parallel.recompute=selective", set("parallel.recompute=selective"));
    add("--set parallel.recompute=full", set("parallel.recompute=full"));
    const auto full = both(set("parallel.recompute=full"), fewer_rows.second);
    const auto full_words = "--set parallel.recompute=full" + (fewer_rows.first.empty() ? "" : " " + fewer_rows.first);
    if (!fewer_rows.first.empty()) add(full_words, full);
    for (const auto& mesh : meshes()) {
      add("--mesh " + mesh, on(mesh));
      add(fmt::format("--mesh {} {}", mesh, full_words), both(on(mesh), full));
    }
    add("--set precision.compute=bfloat16 " + full_words, both(set("precision.compute=\"bfloat16\""), full));
  }

  const std::vector<Way>& found() const { return found_; }

 private:
  static Change set(const std::string& assignment) {
    return [=](ConfigOptions& options, RankOptions&) { options.overrides.push_back(assignment); };
  }
  static Change on(const std::string& mesh) {
    return [=](ConfigOptions&, RankOptions& ranks) { ranks.mesh = mesh; };
  }
  static Change both(const Change& first, const Change& second) {
    return [=](ConfigOptions& options, RankOptions& ranks) {
      first(options, ranks);
      if (second) second(options, ranks);
    };
  }

  std::optional<std::int64_t> bytes_of(const Change& change) const {
    auto options = options_;
    auto ranks = ranks_;
    change(options, ranks);
    try {
      auto config = load_config(options, ranks, environment_).config;
      config.trainer.device = loaded_.config.trainer.device;
      check_trainable(config);
      return host_bytes(config, local_.first, local_.count);
    } catch (const ConfigError&) {
      return std::nullopt;
    }
  }

  void add(const std::string& words, const Change& change) {
    const auto bytes = bytes_of(change);
    if (bytes && *bytes < needed_) found_.push_back({words, *bytes});
  }

  // More microbatches of fewer rows: the first number that fits, else the largest. Its words are empty where there is
  // none.
  std::pair<std::string, Change> microbatches(std::int64_t free) {
    const auto& config = loaded_.config;
    const auto rows = config.global_batch_size / num_replicas(config.mesh);
    std::pair<std::string, Change> last;
    for (std::int64_t count = config.trainer.microbatches + 1; count <= rows; ++count) {
      if (rows % count != 0) continue;
      const bool flag = options_.num_microbatches.has_value();
      const Change change = [=](ConfigOptions& options, RankOptions&) {
        if (flag) {
          options.num_microbatches = count;
        } else {
          options.overrides.push_back(fmt::format("parallel.microbatches={}", count));
        }
      };
      const auto bytes = bytes_of(change);
      if (!bytes || *bytes >= needed_) continue;
      last = {(flag ? "--num_microbatches " : "--set parallel.microbatches=") + std::to_string(count), change};
      if (*bytes <= free) break;
    }
    if (last.second) add(last.first, last.second);
    return last;
  }

  // Of as many ranks: replicas that become shards, or parts of layers.
  std::vector<std::string> meshes() const {
    const auto& mesh = loaded_.config.mesh;
    auto degrees = mesh.degrees();
    const auto replicas = degrees[Axis::dp];
    if (replicas == 1) return {};
    std::vector<std::string> found;
    const auto order = order_text(mesh.order());
    degrees[Axis::dp] = 1;
    degrees[Axis::fsdp] *= replicas;
    found.push_back(Mesh(degrees, order).to_string());
    degrees = mesh.degrees();
    degrees[Axis::dp] = 1;
    degrees[Axis::tp] *= replicas;
    found.push_back(Mesh(degrees, order).to_string());
    return found;
  }

  const LoadedConfig& loaded_;
  ConfigOptions options_;
  RankOptions ranks_;
  LocalRanks local_;
  const launch::Environment& environment_;
  std::int64_t needed_ = 0;
  std::vector<Way> found_;
};

std::string remedy(const std::vector<Way>& ways, std::int64_t free, const Mesh& mesh) {
  const std::string otherwise = "; --force trains as it is";
  const auto fits = std::ranges::find_if(ways, [&](const Way& way) { return way.bytes <= free; });
  if (fits == ways.end()) {
    return "take a smaller model, shorter sequences, or ranks on more hosts (orthant plan finds a mesh)" + otherwise;
  }
  if (!fits->words.starts_with("--mesh")) return fmt::format("add {}{}", fits->words, otherwise);
  return fmt::format("use {} instead of the mesh {}{}", fits->words, mesh.to_string(), otherwise);
}

// "29.9 GiB of parameters, 29.9 GiB of gradients, ...": of the rank that needs most.
std::string holders(const RunConfig& config) {
  const auto plan = estimate_run(config, find_hardware("cpu"));
  const auto& worst = plan.memory.at(static_cast<std::size_t>(plan.worst_stage()));
  return fmt::format("{} of parameters, {} of gradients, {} of optimizer state, {} of activations",
                     format_bytes(worst.parameters), format_bytes(worst.gradients), format_bytes(worst.optimizer),
                     format_bytes(worst.activations + worst.logits + worst.temporary));
}

}  // namespace

std::int64_t host_bytes(const RunConfig& config, int first_rank, int num_ranks) {
  const auto plan = estimate_run(config, find_hardware("cpu"));  // memory is the same on any hardware
  std::int64_t sum = 0;
  for (int rank = first_rank; rank < first_rank + num_ranks; ++rank) {
    const auto& memory = plan.memory.at(static_cast<std::size_t>(config.mesh.coordinate(rank)[Axis::pp]));
    sum += memory.total() - memory.reserve + kRankBytes;
  }
  return sum;
}

void check_memory(const LoadedConfig& loaded, const ConfigOptions& options, const RankOptions& ranks,
                  const std::optional<launch::Job>& job, const launch::Environment& environment) {
  const auto& config = loaded.config;
  if (!config.trainer.device.is_cpu() || (job && job->local_rank != 0)) return;
  const LocalRanks local{job ? job->rank : 0, job ? job->local_world_size : config.mesh.world_size()};
  if (!job && local.count > kMostLocalRanks) return;  // run_on_ranks() refuses so many
  const auto free = launch::free_memory();
  const auto needed = host_bytes(config, local.first, local.count);
  if (!free || needed <= *free) return;
  Ways ways(loaded, options, ranks, local, environment);
  ways.try_all(*free);
  std::vector<TableLine> lines = {{"needs", "", "with"}};
  for (const auto& way : ways.found())
    lines.push_back({format_bytes(way.bytes), way.bytes <= *free ? "fits" : "", way.words});
  if (lines.size() > 1) say("ways to train this with less memory:\n" + text_table(lines, /*left=*/3));
  const bool one = local.count == 1;
  throw ConfigError(fmt::format("{} of this run on this host need{} {}, and {} of memory are free here; a rank has {}",
                                one ? "the rank" : fmt::format("the {} ranks", local.count), one ? "s" : "",
                                format_bytes(needed), format_bytes(*free), holders(config)),
                    {.remedy = remedy(ways.found(), *free, config.mesh)});
}

}  // namespace orthant::cli
