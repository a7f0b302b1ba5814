// orthant mesh: how ranks lie on the axes, every group, what travels on each axis, and what a rank holds of a model.
// Runs nothing.
#include <fmt/format.h>

#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>

#include "orthant/base/error.h"
#include "orthant/base/json_text.h"
#include "orthant/cli/command.h"
#include "orthant/cli/config_options.h"
#include "orthant/cli/option_parser.h"
#include "orthant/layout/placement_table.h"
#include "orthant/mesh/mesh.h"
#include "orthant/mesh/picture.h"
#include "orthant/train/run_config.h"
#include "orthant/train/trainer_setup.h"

namespace orthant::cli {
namespace {

struct ModelOptions {
  std::string config;
  std::vector<std::string> overrides;
  std::optional<int> rank;
};

void check_model_options(const ModelOptions& model, const Mesh& mesh) {
  if (model.config.empty() && (model.rank || !model.overrides.empty())) {
    throw ConfigError(fmt::format("{} without --model", model.rank ? "--rank" : "--set"),
                      {.remedy = "add --model FILE, a run configuration"});
  }
  const int rank = model.rank.value_or(0);
  if (rank >= 0 && rank < mesh.world_size()) return;
  throw ConfigError(fmt::format("--rank {}: mesh {} has {} ranks", rank, mesh.to_string(), mesh.world_size()),
                    {.remedy = fmt::format("use a rank from 0 to {}", mesh.world_size() - 1)});
}

// The configuration on this mesh. Whoever started this process has no say in it.
RunConfig config_on(const Mesh& mesh, const ModelOptions& model) {
  RankOptions ranks;
  ranks.mesh = mesh.to_string();
  ConfigOptions options;
  options.config = model.config;
  options.overrides = model.overrides;
  return load_config(options, ranks, launch::Environment()).config;
}

void print(const Mesh& mesh, int ranks_per_host, const ModelOptions& model, bool json) {
  auto text = json ? "" : mesh_text(mesh, ranks_per_host);
  auto document = json ? mesh_json(mesh, ranks_per_host) : nlohmann::ordered_json();
  if (!model.config.empty()) {
    const auto config = config_on(mesh, model);
    const auto spec = run_spec(config);
    const int rank = model.rank.value_or(0);
    const auto params = config.trainer.precision.params;
    const auto unit_pp_coordinates = trainer_pipeline(spec, mesh, config.trainer).unit_pp_coordinates();
    if (json) document.update(placement_json(spec, mesh, rank, params, unit_pp_coordinates));
    if (!json) text += "\n" + placement_text(spec, mesh, rank, params, unit_pp_coordinates);
  }
  if (json) text = json_text(document, 2) + "\n";
  std::cout << text;
}

}  // namespace

int run_mesh(const Arguments& arguments, Context& context) {
  OptionParser app(
      "Shows how ranks lie on the axes of a mesh, every group, and what travels on each axis; with --model also what "
      "a rank holds of every parameter.",
      "orthant mesh");
  std::string mesh_text_given;
  std::string order;
  int ranks_per_host = 8;
  int world_size = 0;
  ModelOptions model;
  bool json = false;
  app.add_option("--mesh", mesh_text_given, "degrees of the axes, e.g. pp=2,tp=2,dp=4 (axes: pp dp fsdp cp tp ep)")
      .required();
  app.add_option("--order", order, "axes from the outermost to the innermost (default pp,dp,fsdp,cp,tp)");
  app.add_option("--ranks-per-host", ranks_per_host, "ranks on one host (default 8)");
  app.add_option("--world-size", world_size, "check that the mesh fills this many ranks")
      .check(NumberRange(1, Mesh::kMaxRanks));
  app.add_option("--model", model.config, "run configuration whose parameters are listed as they lie on this mesh");
  app.add_option("--set", model.overrides, "KEY=VALUE of that configuration; may be repeated").take_all();
  app.add_option("--rank", model.rank, "whose part of the parameters is listed (default 0)");
  app.add_flag("--json", json, "one JSON document on stdout");
  if (!parse(app, arguments, context, "orthant mesh --mesh pp=2,tp=2,dp=4 --order pp,tp,dp --ranks-per-host 8"))
    return 0;

  const auto mesh = Mesh::parse(mesh_text_given, order);
  if (world_size != 0) mesh.check_world(world_size);
  if (ranks_per_host < 1) {
    throw ConfigError("--ranks-per-host must be at least 1",
                      {.remedy = "use the number of GPUs or ranks of one host, e.g. 8"});
  }
  check_model_options(model, mesh);
  print(mesh, ranks_per_host, model, json);
  return 0;
}

}  // namespace orthant::cli
