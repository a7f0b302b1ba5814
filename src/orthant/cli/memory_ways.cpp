#include "orthant/cli/memory_ways.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <optional>
#include <utility>

#include "orthant/base/error.h"
#include "orthant/layout/rows.h"
#include "orthant/train/run.h"

namespace orthant::cli {
namespace {

constexpr std::int64_t kMostMicrobatches = 65536;

// Of `rows`, ascending: more than `least` and no more than anybody would train with.
std::vector<std::int64_t> divisors_above(std::int64_t rows, std::int64_t least) {
  std::vector<std::int64_t> found;
  for (auto count = least + 1; count <= std::min(rows, kMostMicrobatches); ++count) {
    if (rows % count == 0) found.push_back(count);
  }
  return found;
}

// Tries changes one by one.
class WaySearch {
 public:
  using Clock = std::chrono::steady_clock;
  using Change = std::function<void(ConfigOptions&, RankOptions&)>;

  WaySearch(const LoadedConfig& loaded, const ConfigOptions& options, const RankOptions& ranks,
            const std::vector<RankPlace>& places, const MemoryNeed& shortage, const launch::Environment& environment,
            Clock::time_point deadline)
      : loaded_(loaded),
        options_(options),
        ranks_(ranks),
        places_(places),
        shortage_(shortage),
        environment_(environment),
        deadline_(deadline) {
    options_.pp_size = options_.tp_size = options_.dp_size = options_.fsdp_size = std::nullopt;  // the mesh has them
  }

  void try_all() {
    const auto fewer_rows = microbatches();
    add("--set parallel.recompute=selective", set("parallel.recompute=selective"));
    add("--set parallel.recompute=full", set("parallel.recompute=full"));
    const auto full = both(set("parallel.recompute=full"), fewer_rows.second);
    const auto full_words = "--set parallel.recompute=full" + (fewer_rows.first.empty() ? "" : " " + fewer_rows.first);
    if (!fewer_rows.first.empty()) add(full_words, full);
    if (num_replicas(loaded_.config.mesh) > 1) {
      add("--set parallel.zero=3", set("parallel.zero=3"));
      add("--set parallel.zero=3 " + full_words, both(set("parallel.zero=3"), full));
    }
    for (const auto& mesh : meshes()) {
      add("--mesh " + mesh, on(mesh));
      add(fmt::format("--mesh {} {}", mesh, full_words), both(on(mesh), full));
    }
    if (!shortage_.card.empty()) {  // else it only moves what lies on the host already
      add("--set parallel.offload=optimizer", set("parallel.offload=optimizer"));
      add("--set parallel.offload=optimizer " + full_words, both(set("parallel.offload=optimizer"), full));
    }
    const auto bfloat16 = both(set("precision.compute=\"bfloat16\""), full);
    add("--set precision.compute=bfloat16 " + full_words, bfloat16);
    add("--set precision.compute=bfloat16 --set precision.master=bf16_remainder " + full_words,
        both(set("precision.master=\"bf16_remainder\""), bfloat16));
  }

  std::vector<MemoryWay> found() && { return std::move(found_); }

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

  // Nothing for what cannot be trained, and when the time is over.
  std::optional<MemoryWay> priced(const std::string& words, const Change& change) const {
    if (Clock::now() >= deadline_) return std::nullopt;
    auto options = options_;
    auto ranks = ranks_;
    change(options, ranks);
    try {
      auto config = load_config(options, ranks, environment_).config;
      config.trainer.device = loaded_.config.trainer.device;
      check_trainable(config);
      const auto needs = memory_needs(config, places_);
      const auto same = std::ranges::find_if(
          needs, [&](const MemoryNeed& need) { return need.host == shortage_.host && need.card == shortage_.card; });
      return MemoryWay{words, same->needed_bytes, std::ranges::all_of(needs, &MemoryNeed::fits)};
    } catch (const ConfigError&) {
      return std::nullopt;
    }
  }

  void add(const std::string& words, const Change& change) {
    const auto way = priced(words, change);
    if (way && way->bytes < shortage_.needed_bytes) found_.push_back(*way);
  }

  // More microbatches of fewer rows: the least number that fits, else the largest. Its words are empty where there is
  // none that saves anything. More microbatches never need more, so that a few of many numbers are looked at.
  std::pair<std::string, Change> microbatches() {
    const auto& config = loaded_.config;
    const bool flag = options_.num_microbatches.has_value();
    const auto named = [&](std::int64_t count) {
      return (flag ? "--num_microbatches " : "--set parallel.microbatches=") + std::to_string(count);
    };
    const auto change_to = [&](std::int64_t count) -> Change {
      return [=](ConfigOptions& options, RankOptions&) {
        if (flag) {
          options.num_microbatches = count;
        } else {
          options.overrides.push_back(fmt::format("parallel.microbatches={}", count));
        }
      };
    };
    const auto counts =
        divisors_above(config.global_batch_size / num_replicas(config.mesh), config.trainer.microbatches);
    const auto is_too_few = [&](std::int64_t count) {
      const auto way = priced(named(count), change_to(count));
      return !way || !way->fits;
    };
    auto found = std::ranges::partition_point(counts, is_too_few);
    if (found == counts.end() && !counts.empty()) --found;
    if (found == counts.end()) return {};
    const auto before = found_.size();
    add(named(*found), change_to(*found));
    if (found_.size() == before) return {};
    return {named(*found), change_to(*found)};
  }

  // Of as many ranks: replicas that become shards, or parts of layers. Without an fsdp axis zero 3 shards over dp.
  std::vector<std::string> meshes() const {
    const auto& mesh = loaded_.config.mesh;
    const auto replicas = mesh.degree(Axis::dp);
    if (replicas == 1) return {};
    std::vector<std::string> found;
    for (const auto axis : {Axis::fsdp, Axis::tp}) {
      if (axis == Axis::fsdp && mesh.degree(Axis::fsdp) == 1) continue;
      auto degrees = mesh.degrees();
      degrees[Axis::dp] = 1;
      degrees[axis] *= replicas;
      found.push_back(Mesh(degrees, order_text(mesh.order())).to_string());
    }
    return found;
  }

  const LoadedConfig& loaded_;
  ConfigOptions options_;
  RankOptions ranks_;
  const std::vector<RankPlace>& places_;
  const MemoryNeed& shortage_;
  const launch::Environment& environment_;
  Clock::time_point deadline_;
  std::vector<MemoryWay> found_;
};

}  // namespace

std::vector<MemoryWay> ways_with_less_memory(const LoadedConfig& loaded, const ConfigOptions& options,
                                             const RankOptions& ranks, const std::vector<RankPlace>& places,
                                             const MemoryNeed& shortage, const launch::Environment& environment,
                                             double most_seconds) {
  const auto deadline = WaySearch::Clock::now() + std::chrono::duration_cast<WaySearch::Clock::duration>(
                                                      std::chrono::duration<double>(most_seconds));
  WaySearch search(loaded, options, ranks, places, shortage, environment, deadline);
  search.try_all();
  return std::move(search).found();
}

}  // namespace orthant::cli
