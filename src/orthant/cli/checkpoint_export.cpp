// orthant checkpoint export: a checkpoint as a Hugging Face folder, written by one rank or by many.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "orthant/base/error.h"
#include "orthant/base/human.h"
#include "orthant/base/json_text.h"
#include "orthant/base/nearest.h"
#include "orthant/base/printable.h"
#include "orthant/checkpoint/hugging_face_export.h"
#include "orthant/checkpoint/pointers.h"
#include "orthant/checkpoint/weight_reader.h"
#include "orthant/cli/checkpoint.h"
#include "orthant/cli/dtype_option.h"
#include "orthant/cli/model_texts.h"
#include "orthant/cli/option_parser.h"
#include "orthant/cli/rank_training.h"
#include "orthant/train/trainer_options.h"

namespace orthant::cli {
namespace {

struct ExportOptionsGiven {
  std::string folder;
  std::string out;
  std::string format;
  std::string dtype;
  std::string shard_size = "5GB";
  std::string key_file;
  ExportOptions options;
  bool json = false;
};

void read_values(ExportOptionsGiven& given) {
  if (given.format != "huggingface") {
    const std::vector<std::string> formats = {"huggingface"};
    throw ConfigError(fmt::format("--format {}: unknown format", given.format),
                      {.remedy = did_you_mean(given.format, formats)});
  }
  if (!given.dtype.empty()) given.options.dtype = parse_dtype_option(given.dtype, kWeightDTypes);
  given.options.max_shard_bytes = parse_bytes(given.shard_size, "--max-shard-size");
  if (given.options.max_shard_bytes < 1) {
    throw ConfigError(fmt::format("--max-shard-size {}: must be at least 1 byte", given.shard_size),
                      {.remedy = "use 5GB"});
  }
  if (!given.key_file.empty()) given.options.key = TagKey::load(given.key_file);
  given.folder = pointed_checkpoint(given.folder);
}

void print_export(const ExportOptionsGiven& given, const ExportResult& result) {
  print_notes(result.notes);
  if (given.json) {
    std::cout << json_text(nlohmann::ordered_json{{"out", given.out},
                                                  {"files", result.files},
                                                  {"tensors", result.tensors},
                                                  {"bytes", result.bytes},
                                                  {"bytes_per_rank", result.bytes_per_rank},
                                                  {"notes", result.notes}})
              << std::endl;
    return;
  }
  std::cout << fmt::format("{}: {} tensors, {}: {}\n", printable(given.out), result.tensors, format_bytes(result.bytes),
                           fmt::join(result.files, ", "))
            << std::flush;
}

int export_on_rank(const ExportOptionsGiven& given, RankContext& rank) {
  std::shared_ptr<comm::Communicator> communicator;
  if (rank.mesh.world_size() > 1) communicator = comm::make_communicator(rank.mesh, rank.job, rank.comm);
  const ControlGroup ranks(communicator);
  try {
    const auto result = export_hugging_face(given.folder, given.out, given.options, ranks);
    if (rank.is_first()) print_export(given, result);
  } catch (const Error& error) {
    if (const auto code = said_elsewhere(rank, error)) return *code;
    throw;
  }
  if (communicator) communicator->close();
  return 0;
}

}  // namespace

int run_checkpoint_export(const Arguments& arguments, Context& context) {
  OptionParser app(
      "Writes a checkpoint as a Hugging Face folder: config.json, safetensors, tokenizer files. The ranks of --mesh, "
      "as "
      "of dp=4, write its shards in turn.",
      "orthant checkpoint export");
  ExportOptionsGiven given;
  RankOptions ranks;
  app.add_option("folder", given.folder, "checkpoint, or checkpoints/latest or best of a run").required();
  app.add_option("out", given.out, "folder to write").required();
  app.add_option("--format", given.format, "huggingface").required();
  app.add_option("--dtype", given.dtype,
                 fmt::format("of the weights: {} (default: as stored)", dtype_list(kWeightDTypes)));
  app.add_option("--max-shard-size", given.shard_size, "largest file, e.g. 5GB (default)");
  app.add_option("--tower", given.options.tower, help::kTower);
  app.add_option("--key-file", given.key_file, kKeyHelp);
  app.add_option("--config", given.options.config_file, "config.json of the run, when the checkpoint lies elsewhere");
  app.add_flag("--json", given.json, "one JSON document on stdout");
  add_rank_options(app, ranks);
  if (!parse(app, arguments, context,
             "orthant checkpoint export runs/first/checkpoints/step-100 --format huggingface exported")) {
    return 0;
  }
  refuse_empty(app, {"--key-file"});
  read_values(given);
  if (ranks.device == "auto") ranks.device = "cpu";  // nothing is computed
  refuse_fake_backend(ranks, ranks.mesh.empty() ? Mesh() : Mesh::parse(ranks.mesh, ranks.order));
  return run_on_ranks(ranks, context, 1, [&](RankContext& rank) { return export_on_rank(given, rank); });
}

}  // namespace orthant::cli
