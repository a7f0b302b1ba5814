// The options of commands that read a run configuration: the file, overrides, and the flags of the seeds' own programs.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "orthant/cli/rank_command.h"
#include "orthant/train/run_config.h"

namespace orthant::cli {

struct ConfigOptions {
  std::string config;  // empty: the embedded default
  std::vector<std::string> overrides;
  std::optional<std::int64_t> pp_size, tp_size, dp_size, fsdp_size;
  std::optional<std::int64_t> batch_size;  // per replica
  std::optional<std::int64_t> num_microbatches;
  std::optional<std::int64_t> epochs;
  std::optional<std::int64_t> save_every;  // epochs
  std::string data_path;
};

// Whether "KEY=VALUE" sets that key, a section that it is in, or something in it.
bool sets(std::string_view assignment, std::string_view key);

// --set, with the flags that set keys of the configuration, and no mesh, in the order in which they apply. ConfigError.
std::vector<std::string> flag_overrides(const ConfigOptions& options);

// --config and --set.
void add_config_options(OptionParser& app, ConfigOptions& options);

// --pp_size, --batch_size and the like.
void add_seed_flags(OptionParser& app, ConfigOptions& options);

// A configuration and where its values came from.
struct LoadedConfig {
  JsonDocument document;
  RunConfig config;
  std::vector<std::string> notes = {};  // for people, to be said once
  // ConfigError when the mesh does not fill a world of so many ranks; its remedy is one that trains.
  std::function<void(int world_size)> check_world = {};
};

// Reads the file, applies flags and overrides (in that order), and --mesh, which replaces the mesh whole. Under a
// launcher, without --mesh, dp (or fsdp when --dp_size is given) becomes what fills its world. The mesh that results is
// put into `ranks`. ConfigError.
LoadedConfig load_config(const ConfigOptions& options, RankOptions& ranks, const launch::Environment& environment);

}  // namespace orthant::cli
