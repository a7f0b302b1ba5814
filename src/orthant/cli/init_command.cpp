// orthant init: looks at a model and data, and writes a configuration that trains them.
#include <fmt/format.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "orthant/base/error.h"
#include "orthant/base/json_text.h"
#include "orthant/base/printable.h"
#include "orthant/cli/command.h"
#include "orthant/cli/devices.h"
#include "orthant/cli/model_texts.h"
#include "orthant/cli/option_parser.h"
#include "orthant/files/path_facts.h"
#include "orthant/launch/scripts.h"
#include "orthant/train/suggested_config.h"

namespace orthant::cli {

int run_init(const Arguments& arguments, Context& context) {
  OptionParser app(
      "Looks at a model and data, asks nothing, says what it found, and writes a commented configuration that orthant "
      "train reads. Name your model, your data, or both.",
      "orthant init");
  SuggestOptions options;
  std::string file;
  bool force = false;
  bool json = false;
  app.add_option("file", file, "the configuration to write, such as run.json").required();
  app.add_option("--model", options.model, help::kInitModel);
  app.add_option(
      "--data", options.data,
      "text, a table (.csv, .tsv, .jsonl, .json), a .bin of ids, a folder of .txt files or of prepared tokens");
  app.add_option("--for", options.use, "finetune, pretrain or classify (default: by model and data)");
  app.add_option("--tokenizer", options.tokenizer,
                 "tokenizer.json, vocab.txt, .model, or a folder with one (default: that of the model's folder)");
  app.add_option("--label", options.label, "label column of a table (default: guessed)");
  app.add_option("--text-column", options.text_column,
                 "documents of a table, or a classifier's first text (default: guessed)");
  app.add_option("--separator", options.separator,
                 "what ends a document in a text file: file, blank-line or line (default: file)");
  app.add_flag("--force", force, "replace the file when it is there");
  app.add_flag("--json", json, "one JSON document on stdout");
  if (!parse(app, arguments, context, example::kInit)) return 0;
  refuse_empty(app, {"file", "--model", "--data", "--for", "--tokenizer", "--label", "--text-column", "--separator"});
  if (is_taken(file) && !force) {
    throw ConfigError(fmt::format("{} is there already", file),
                      {.remedy = "name another file, or replace it with --force"});
  }
  options.card = built_with_cuda() && count_gpus(context.environment) > 0;
  const auto suggested = suggest_config(options);
  write_output("file", file, json_text(suggested.config, 1) + "\n");
  if (json) {
    nlohmann::ordered_json result{{"file", file}, {"for", suggested.use}, {"found", nlohmann::ordered_json::object()}};
    for (const auto& [what, text] : suggested.found) result["found"][what] = text;
    result["config"] = suggested.config;
    std::cout << json_text(result) << '\n' << std::flush;
    return 0;
  }
  for (const auto& [what, text] : suggested.found) std::cout << fmt::format("{:10} {}\n", what, printable(text));
  std::cout << fmt::format("wrote      {}: orthant train --config {}\n", printable(file),
                           printable(launch::shell_quote(file)))
            << std::flush;
  return 0;
}

}  // namespace orthant::cli
