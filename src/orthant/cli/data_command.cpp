// orthant data: generated data as files.
#include <ATen/ATen.h>
#include <fmt/format.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "orthant/base/error.h"
#include "orthant/base/json_text.h"
#include "orthant/base/nearest.h"
#include "orthant/base/printable.h"
#include "orthant/checkpoint/checkpoint.h"
#include "orthant/cli/command.h"
#include "orthant/cli/config_options.h"
#include "orthant/cli/data.h"
#include "orthant/cli/option_parser.h"
#include "orthant/data/loader.h"
#include "orthant/data/make_trimodal.h"
#include "orthant/files/safetensors.h"
#include "orthant/nn/scalar_type.h"
#include "orthant/train/datasets.h"

namespace orthant::cli {
namespace {

int run_make_trimodal(const Arguments& arguments, Context& context) {
  OptionParser app("Writes the trimodal demo (dialogue, shipment track, numbers, label) as a CSV or JSONL file.",
                   "orthant data make-trimodal");
  MakeTrimodalOptions options;
  bool evaluation = false;
  bool json = false;
  app.add_option("--out", options.folder, "folder for the data, vocab.txt and facts.json").required();
  app.add_option("--rows", options.rows, "samples (default 4096)");
  app.add_option("--format", options.format, "csv (default) or jsonl");
  app.add_option("--seed", options.seed, "of the generator (default 0)");
  app.add_flag("--eval", evaluation, "the evaluation split instead of the training one");
  app.add_flag("--json", json, "one JSON document on stdout");
  if (!parse(app, arguments, context, "orthant data make-trimodal --rows 10000 --out demo")) return 0;
  if (evaluation) options.split = DataSplit::eval;
  const auto made = make_trimodal(options);
  if (json) {
    std::cout << json_text(nlohmann::ordered_json{
                     {"data", made.data}, {"vocabulary", made.vocabulary}, {"facts", made.facts}})
              << std::endl;
  } else {
    std::cout << fmt::format("{} ({} rows)\n{}\n{}\n", printable(made.data), options.rows, printable(made.vocabulary),
                             printable(made.facts));
  }
  return 0;
}

// The batches of the first steps, fields named "step.N.field": what another program needs to train on the same data.
int run_export(const Arguments& arguments, Context& context) {
  OptionParser app("Writes the batches of a run's first steps as a safetensors file, for other programs to train on.",
                   "orthant data export");
  ConfigOptions options;
  RankOptions ranks;
  std::string out;
  int steps = 1;
  add_config_options(app, options);
  app.add_option("--steps", steps, "steps (default 1)").check(NumberRange(1, 1000000));
  app.add_option("--out", out, "file to write").required();
  if (!parse(app, arguments, context, "orthant data export --steps 20 --out batches.safetensors")) return 0;
  auto config = load_config(options, ranks, {}).config;
  const auto data = make_run_data(config);
  Loader loader(data.train, make_sampler(config, data));
  std::vector<TensorEntry> entries;
  std::vector<at::Tensor> tensors;
  for (int step = 1; step <= steps; ++step) {
    for (const auto& [name, field] : loader.next().fields) {
      entries.push_back(
          {fmt::format("step.{}.{}", step, name), element_name(dtype_of(field.scalar_type())), field.sizes().vec()});
      tensors.push_back(field.contiguous());
    }
  }
  SafetensorsWriter writer(out, entries);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    writer.write(entries[i].name, {static_cast<const std::byte*>(tensors[i].const_data_ptr()), tensors[i].nbytes()});
  }
  std::cout << fmt::format("{}: {} tensors, {} bytes\n", printable(out), entries.size(), writer.finish().bytes);
  return 0;
}

const std::vector<Command> kDataCommands = {
    {"make-trimodal", "the trimodal demo as CSV or JSONL", run_make_trimodal},
    {"prepare-text", "text files as token ids to train on", run_prepare_text},
    {"export", "batches of a run as safetensors", run_export},
    {"inspect", "what a table or a folder of tokens holds", run_data_inspect},
    {"make-vocabulary", "a WordPiece vocabulary from a table's texts", run_make_vocabulary},
};

}  // namespace

int run_data(const Arguments& arguments, Context& context) {
  return run_sub_command("data", kDataCommands, "orthant data make-trimodal --rows 10000 --out demo", arguments,
                         context);
}

}  // namespace orthant::cli
