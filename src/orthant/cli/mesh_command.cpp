// orthant mesh: how ranks lie on the axes, every group, and what travels on each axis. Runs nothing.
#include <CLI/CLI.hpp>
#include <iostream>
#include <nlohmann/json.hpp>

#include "orthant/base/error.h"
#include "orthant/cli/command.h"
#include "orthant/mesh/mesh.h"
#include "orthant/mesh/picture.h"

namespace orthant::cli {

int run_mesh(const Arguments& arguments, Context& context) {
  CLI::App app("Shows how ranks lie on the axes of a mesh, every group, and what travels on each axis.",
               "orthant mesh");
  std::string mesh_text_given;
  std::string order;
  int ranks_per_host = 8;
  int world_size = 0;
  bool json = false;
  app.add_option("--mesh", mesh_text_given, "degrees of the axes, e.g. pp=2,tp=2,dp=4 (axes: pp dp fsdp cp tp ep)")
      ->required();
  app.add_option("--order", order, "axes from the outermost to the innermost (default pp,dp,fsdp,cp,tp)");
  app.add_option("--ranks-per-host", ranks_per_host, "ranks on one host (default 8)");
  app.add_option("--world-size", world_size, "check that the mesh fills this many ranks")
      ->check(CLI::Range(1, Mesh::kMaxRanks));
  app.add_flag("--json", json, "one JSON document on stdout");
  if (!parse(app, arguments, context, "orthant mesh --mesh pp=2,tp=2,dp=4 --order pp,tp,dp --ranks-per-host 8"))
    return 0;

  const auto mesh = Mesh::parse(mesh_text_given, order);
  if (world_size != 0) mesh.check_world(world_size);
  if (ranks_per_host < 1) {
    throw ConfigError("--ranks-per-host must be at least 1",
                      {.remedy = "use the number of GPUs or ranks of one host, e.g. 8"});
  }
  if (json) {
    std::cout << mesh_json(mesh, ranks_per_host).dump(2) << '\n';
  } else {
    std::cout << mesh_text(mesh, ranks_per_host);
  }
  return 0;
}

}  // namespace orthant::cli
