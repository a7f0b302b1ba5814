#include "orthant/cli/config_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>

#include "orthant/base/error.h"
#include "orthant/base/printable.h"
#include "orthant/cli/model_texts.h"
#include "orthant/cli/option_parser.h"
#include "orthant/layout/rows.h"
#include "orthant/mesh/world_fit.h"
#include "orthant/train/config_notes.h"
#include "orthant/train/run.h"

namespace orthant::cli {

bool sets(std::string_view assignment, std::string_view key) {
  const auto set = assignment.substr(0, assignment.find('='));
  const auto is_in = [](std::string_view inner, std::string_view outer) {
    return inner.starts_with(outer) && (inner.size() == outer.size() || inner[outer.size()] == '.');
  };
  return is_in(key, set) || is_in(set, key);
}

namespace {

void check_flags(const ConfigOptions& options) {
  const auto check = [](const char* flag, const std::optional<std::int64_t>& value) {
    if (!value || *value >= 1) return;
    throw ConfigError(fmt::format("{} {}: must be at least 1", flag, *value),
                      {.remedy = fmt::format("use {} 1 or more, or leave it out", flag)});
  };
  check("--pp_size", options.pp_size);
  check("--tp_size", options.tp_size);
  check("--dp_size", options.dp_size);
  check("--fsdp_size", options.fsdp_size);
  check("--batch_size", options.batch_size);
  check("--num_microbatches", options.num_microbatches);
  check("--epochs", options.epochs);
  check("--save_every", options.save_every);
  constexpr std::int64_t kMostRows = std::int64_t{1} << 40;
  if (options.batch_size && *options.batch_size > kMostRows) {
    throw ConfigError(fmt::format("--batch_size {}: must be at most {}", *options.batch_size, kMostRows),
                      {.remedy = "give the samples of one replica and step"});
  }
}

// A flag and --set of the key that it sets: one of them would be ignored.
void check_given_once(const ConfigOptions& options) {
  const auto check = [&](const char* flag, bool given, std::initializer_list<std::string_view> keys) {
    for (const auto& assignment : options.overrides) {
      const auto is_set = [&](std::string_view key) { return sets(assignment, key); };
      if (!given || std::ranges::none_of(keys, is_set)) continue;
      throw ConfigError(fmt::format("{} beside --set {}", flag, assignment), {.remedy = "use one of them"});
    }
  };
  check("--pp_size", options.pp_size.has_value(), {"mesh.pp"});
  check("--tp_size", options.tp_size.has_value(), {"mesh.tp"});
  check("--dp_size", options.dp_size.has_value(), {"mesh.dp"});
  check("--fsdp_size", options.fsdp_size.has_value(), {"mesh.fsdp"});
  check("--batch_size", options.batch_size.has_value(), {"train.global_batch_size"});
  check("--num_microbatches", options.num_microbatches.has_value(), {"parallel.microbatches"});
  check("--epochs", options.epochs.has_value(), {"train.epochs", "train.steps"});
  check("--save_every", options.save_every.has_value(), {"checkpoint.save_every", "checkpoint.save_every_epochs"});
  check("--data_path", !options.data_path.empty(), {"data.path"});
}

// Whether the flag or --set gives that degree.
bool is_given(const ConfigOptions& options, const std::optional<std::int64_t>& flag, std::string_view key) {
  return flag || std::ranges::any_of(options.overrides, [&](const auto& text) { return sets(text, key); });
}

// The degrees that the flags and --mesh give.
Mesh asked_mesh(const ConfigOptions& options, const RankOptions& ranks, const Mesh& configured) {
  const bool sizes = options.pp_size || options.tp_size || options.dp_size || options.fsdp_size;
  if (!ranks.mesh.empty()) {
    if (sizes) throw ConfigError("--mesh beside --pp_size and the like", {.remedy = "use one of them"});
    for (const auto& given : options.overrides) {
      if (!sets(given, "mesh")) continue;
      throw ConfigError(fmt::format("--mesh {} beside {}", ranks.mesh, given), {.remedy = "use one of them"});
    }
    return Mesh::parse(ranks.mesh, ranks.order);
  }
  auto degrees = configured.degrees();
  const auto set = [&](Axis axis, const std::optional<std::int64_t>& degree) {
    if (degree) degrees[axis] = *degree;
  };
  set(Axis::pp, options.pp_size);
  set(Axis::tp, options.tp_size);
  set(Axis::dp, options.dp_size);
  set(Axis::fsdp, options.fsdp_size);
  return Mesh(degrees, ranks.order.empty() ? order_text(configured.order()) : ranks.order);
}

// The axis whose degree follows from the world; none when --mesh or the flags give them all.
std::optional<Axis> inferred_axis(const ConfigOptions& options, const RankOptions& ranks) {
  if (!ranks.mesh.empty()) return std::nullopt;
  if (!is_given(options, options.dp_size, "mesh.dp")) return Axis::dp;
  if (!is_given(options, options.fsdp_size, "mesh.fsdp")) return Axis::fsdp;
  return std::nullopt;
}

std::vector<std::string> with_mesh(std::vector<std::string> overrides, const ConfigOptions& options, const Mesh& mesh,
                                   const Mesh& configured) {
  if (options.batch_size) {
    overrides.push_back(fmt::format("train.global_batch_size={}", *options.batch_size * num_replicas(mesh)));
  }
  for (const auto axis : kAxes) {
    if (mesh.degree(axis) == configured.degree(axis)) continue;
    overrides.push_back(fmt::format("mesh.{}={}", axis_name(axis), mesh.degree(axis)));
  }
  if (mesh.order() != configured.order())
    overrides.push_back(fmt::format("mesh.order=\"{}\"", order_text(mesh.order())));
  return overrides;
}

// Whether this configuration trains on that mesh.
using Trains = std::function<bool(const Mesh&)>;

// What to do about a world that the mesh does not fill: other numbers of ranks, or the nearest mesh, as far as the
// model and the batch can use them.
std::string remedy_of_world(const Mesh& asked, std::optional<Axis> inferred, int world_size, const Trains& trains) {
  std::vector<std::string> ranks;
  const int others = inferred ? asked.world_size() / asked.degree(*inferred) : asked.world_size();
  const int below = world_size / others * others;
  for (const int number : inferred ? std::vector<int>{below, below + others} : std::vector<int>{others}) {
    if (number < 1 || number == world_size) continue;
    if (trains(inferred ? asked.with_inferred(*inferred, number) : asked)) ranks.push_back(fmt::format("{}", number));
  }
  const auto start = ranks.empty() ? "" : fmt::format("start {} ranks", fmt::join(ranks, " or "));
  const auto mesh = nearest_mesh_that(asked, world_size, trains);
  const auto set = mesh ? fmt::format("set the mesh to {}", mesh->to_string()) : "";
  if (!start.empty() && !set.empty()) return inferred ? start + ", or " + set : set + ", or " + start;
  if (!start.empty() || !set.empty()) return start + set;
  return "start another number of ranks: this model and batch train on none of the meshes near to it";
}

// `act`, whose ConfigError about a world gets a remedy that can be followed.
template <class Act>
auto with_remedy_of_world(const Mesh& mesh, std::optional<Axis> inferred, int world_size, const Trains& trains,
                          const Act& act) {
  try {
    return act();
  } catch (const ConfigError& error) {
    throw ConfigError(error.message(), {.remedy = remedy_of_world(mesh, inferred, world_size, trains)});
  }
}

}  // namespace

std::vector<std::string> flag_overrides(const ConfigOptions& options) {
  auto overrides = options.overrides;
  if (!options.data_path.empty()) {
    if (!is_utf8(options.data_path)) {
      throw ConfigError(fmt::format("--data_path {}: is not UTF-8, and a configuration is", options.data_path),
                        {.remedy = "give the file a name in UTF-8"});
    }
    overrides.push_back(fmt::format("data.path={}", nlohmann::json(options.data_path).dump()));
  }
  if (options.num_microbatches) overrides.push_back(fmt::format("parallel.microbatches={}", *options.num_microbatches));
  if (options.epochs) {
    overrides.push_back("train.steps=0");
    overrides.push_back(fmt::format("train.epochs={}", *options.epochs));
  }
  if (options.save_every) {
    overrides.push_back("checkpoint.save_every=0");
    overrides.push_back(fmt::format("checkpoint.save_every_epochs={}", *options.save_every));
  }
  return overrides;
}

void add_config_options(OptionParser& app, ConfigOptions& options) {
  app.add_option("--config", options.config, help::kConfig).check([](const std::string& path) {
    if (path.empty()) throw ConfigError("--config is empty", {.remedy = "name a file, or leave it out"});
    return std::string();
  });
  app.add_option("--set", options.overrides, "KEY=VALUE, e.g. model.hidden_size=128; may be repeated").take_all();
}

void add_seed_flags(OptionParser& app, ConfigOptions& options) {
  app.add_option("--pp-size", options.pp_size, "pipeline stages");
  app.add_option("--tp-size", options.tp_size, "tensor-parallel degree");
  app.add_option("--dp-size", options.dp_size, "replicas");
  app.add_option("--fsdp-size", options.fsdp_size, "shards");
  app.add_option("--batch-size", options.batch_size, "samples per replica and step");
  app.add_option("--num-microbatches", options.num_microbatches, "microbatches per replica and step");
  app.add_option("--epochs", options.epochs, "passes over the data");
  app.add_option("--save-every", options.save_every, "epochs between checkpoints");
  app.add_option("--data-path", options.data_path, "data file (sets data.path)");
}

LoadedConfig load_config(const ConfigOptions& options, RankOptions& ranks, const launch::Environment& environment) {
  check_flags(options);
  check_given_once(options);
  const auto job = job_of_launcher(ranks, environment);
  const auto world_size = job ? std::optional(job->world_size) : std::nullopt;
  const auto overrides = flag_overrides(options);
  const auto configured = read_run_mesh(load_run_document(options.config, overrides));
  auto mesh = asked_mesh(options, ranks, configured);
  const auto load = [options, overrides, configured](const Mesh& on) {  // also asked after this returns
    auto document = load_run_document(options.config, with_mesh(overrides, options, on, configured));
    auto config = read_run_config(document);
    return LoadedConfig{std::move(document), std::move(config)};
  };
  const auto inferred = world_size && mesh.world_size() != *world_size ? inferred_axis(options, ranks) : std::nullopt;
  const auto trains = [load](const Mesh& on) {
    try {
      check_trainable(load(on).config);
      return true;
    } catch (const Error&) {
      return false;
    }
  };
  if (inferred) {
    mesh = with_remedy_of_world(mesh, inferred, *world_size, trains,
                                [&] { return mesh.with_inferred(*inferred, *world_size); });
  }
  auto loaded = load(mesh);
  loaded.check_world = [mesh, trains](int ranks_there) {
    with_remedy_of_world(mesh, std::nullopt, ranks_there, trains, [&] { mesh.check_world(ranks_there); });
  };
  loaded.notes = config_notes(loaded.document, loaded.config);
  if (const int replicas = loaded.config.mesh.degree(Axis::dp); inferred == Axis::dp && replicas > 1) {
    loaded.notes.push_back(fmt::format(
        "note: {} ranks leave dp={}: whole replicas; --fsdp_size {} shards parameters, gradients and optimizer state "
        "over them instead",
        *world_size, replicas, replicas));
  }
  ranks.mesh = loaded.config.mesh.to_string();
  ranks.order.clear();
  return loaded;
}

}  // namespace orthant::cli
