#include "orthant/cli/generation_setup.h"

#include <fmt/format.h>

#include <utility>

#include "orthant/base/error.h"
#include "orthant/cli/dtype_option.h"
#include "orthant/cli/option_parser.h"
#include "orthant/generate/generation_stages.h"
#include "orthant/train/inference.h"

namespace orthant::cli {
namespace {

Mesh mesh_of(const RankOptions& ranks) {
  return ranks.mesh.empty() ? Mesh() : Mesh::parse(ranks.mesh, ranks.order);
}

void check_positive(const char* option, std::int64_t value, std::int64_t least) {
  if (value >= least) return;
  throw ConfigError(fmt::format("{} is {}", option, value), {.remedy = fmt::format("use {} or more", least)});
}

}  // namespace

void add_generation_options(OptionParser& app, GenerationSetup& setup) {
  app.add_option("--model", setup.model,
                 "Hugging Face folder, a checkpoint of a run on any mesh, or checkpoints/latest or best")
      .required();
  app.add_option("--config", setup.config, "config.json of the model, when it does not lie with it");
  app.add_option("--dtype", setup.dtype,
                 fmt::format("of weights, arithmetic and cache: {} (default float32)", dtype_list(kComputeDTypes)));
  app.add_option("--cache-tokens", setup.cache_tokens,
                 "tokens of all running texts that a replica's cache holds (default: by --max-batch and free memory)");
  app.add_option("--max-batch", setup.max_batch, "texts that a replica works on side by side (default 64)");
  app.add_option("--prefill-chunk", setup.prefill_chunk,
                 "new tokens of a step at most: long prompts are read in such chunks (default 256, on a GPU 4096)");
}

void check_generation_setup(const GenerationSetup& setup, const RankOptions& ranks) {
  check_positive("--cache-tokens", setup.cache_tokens, 0);
  check_positive("--max-batch", setup.max_batch, 1);
  check_positive("--prefill-chunk", setup.prefill_chunk, 0);
  const auto dtype = parse_dtype_option(setup.dtype, kComputeDTypes);
  const auto mesh = mesh_of(ranks);
  check_generation_mesh(mesh);
  if (ranks.dry_run) {
    throw ConfigError("--dry-run: this command has nothing to show before it runs", {.remedy = "leave it out"});
  }
  if (mesh.world_size() > 1 && comm::parse_backend(ranks.backend) == comm::BackendKind::fake) {
    throw ConfigError("--backend fake moves nothing between ranks: what it computes is of no model",
                      {.remedy = "use another backend"});
  }
  const auto model = find_stored_model(setup.model, setup.config);
  generation_stages(placed_generation_graph(model.config, mesh, dtype), mesh);
}

GenerationRank::GenerationRank(const GenerationSetup& setup, RankContext& rank) {
  check_generation_mesh(rank.mesh);
  if (rank.mesh.world_size() > 1) {
    const auto groups = generation_groups(rank.mesh);
    communicator_ = comm::make_communicator(rank.mesh, rank.job, rank.comm, groups.axes, groups.subsets);
  }
  ranks_ = ControlGroup(communicator_);
  ranks_.together([&] { model_ = find_stored_model(setup.model, setup.config); });
  options_ = {.dtype = parse_dtype_option(setup.dtype, kComputeDTypes),
              .device = rank.comm.device,
              .mesh = rank.mesh,
              .communicator = communicator_,
              .timeout_seconds = rank.comm.timeout_seconds,
              .cache_tokens = setup.cache_tokens,
              .most_running = setup.max_batch,
              .step_tokens = setup.prefill_chunk};
  if (rank.is_first()) options_.say = [log = rank.log](const std::string& text) { log.info(text); };
}

void GenerationRank::close() {
  if (communicator_) communicator_->close();
}

}  // namespace orthant::cli
