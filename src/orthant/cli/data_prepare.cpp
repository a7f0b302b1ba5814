// orthant data prepare-text: text files to a folder of token ids.
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <iostream>
#include <nlohmann/json.hpp>

#include "orthant/base/human.h"
#include "orthant/base/json_text.h"
#include "orthant/base/printable.h"
#include "orthant/cli/data.h"
#include "orthant/cli/model_texts.h"
#include "orthant/cli/option_parser.h"
#include "orthant/data/prepare_text.h"
#include "orthant/data/text_progress.h"
#include "orthant/text/tokenizer.h"
#include "orthant/train/model_folders.h"
#include "orthant/train/progress.h"

namespace orthant::cli {
namespace {

struct Wanted {
  TextInput input;
  PrepareOptions prepare;
  std::string tokenizer;
  bool no_end = false;
  bool no_begin = false;
  bool json = false;
};

void add_options(OptionParser& app, Wanted& wanted) {
  auto& documents = wanted.input.documents;
  app.add_option("--input", wanted.input.files, "text files; .jsonl, .json, .csv and .tsv are read by rows").required();
  app.add_option("--tokenizer", wanted.tokenizer, "tokenizer.json, .model, vocab.txt, or a folder with one").required();
  app.add_option("--out", wanted.prepare.folder, "folder for tokens.bin, documents.bin and index.json").required();
  app.add_option("--separator", documents.separator,
                 "what a document is in a text file: file (default), blank-line, line");
  app.add_option("--text-column", documents.text_column, "column or key of tables (default text)");
  app.add_flag("--no-end", wanted.no_end, "no end token after each document");
  app.add_flag("--no-begin", wanted.no_begin, "no begin token before each document, where the tokenizer has one");
  app.add_flag("--keep-invalid-utf8", documents.keep_invalid_utf8,
               "take bytes that are not UTF-8 as they are, instead of stopping at the first");
  app.add_flag("--force", wanted.prepare.force, "throw away what --out holds and start anew");
  app.add_flag("--json", wanted.json, "one JSON document on stdout");
}

nlohmann::ordered_json to_json(const std::string& folder, const PreparedText& prepared, double seconds) {
  const auto& index = prepared.index;
  return {{"folder", folder},
          {"tokens", index.tokens},
          {"documents", index.documents},
          {"empty_documents", index.empty_documents},
          {"dtype", index.token_bytes == 2 ? "uint16" : "uint32"},
          {"max_id", index.max_id},
          {"vocab_size", index.tokenizer.vocab_size},
          {"was_complete", prepared.was_complete},
          {"resumed_bytes", prepared.resumed_bytes},
          {"seconds", seconds}};
}

std::string to_text(const std::string& folder, const PreparedText& prepared, double seconds) {
  const auto& index = prepared.index;
  std::int64_t bytes = 0;
  for (const auto& source : index.sources) bytes += source.bytes;
  const auto state =
      prepared.was_complete ? std::string("was complete already")
      : prepared.resumed_bytes > 0
          ? fmt::format("continued after {} in {}", format_bytes(prepared.resumed_bytes), format_seconds(seconds))
          : fmt::format("in {}", format_seconds(seconds));
  const auto ending = [](auto count) { return count == 1 ? "" : "s"; };
  auto text = fmt::format("{}: {} tokens in {} document{} from {} in {} file{}, {}\n", printable(folder), index.tokens,
                          index.documents, ending(index.documents), format_bytes(bytes), index.sources.size(),
                          ending(index.sources.size()), state);
  if (index.empty_documents > 0) {
    text += fmt::format("{} empty document{} left out\n", index.empty_documents,
                        index.empty_documents == 1 ? " was" : "s were");
  }
  return text + fmt::format("train on it: --set data.kind=text --set data.path={} --set model.vocab_size={}\n",
                            printable(folder), index.tokenizer.vocab_size);
}

}  // namespace

int run_prepare_text(const Arguments& arguments, Context& context) {
  OptionParser app(
      "Turns text files into a folder of token ids to train on. Killed, the same command goes on where it was.",
      "orthant data prepare-text");
  Wanted wanted;
  add_options(app, wanted);
  if (!parse(app, arguments, context, example::kPrepareText)) {
    return 0;
  }
  wanted.input.end_token = !wanted.no_end;
  if (wanted.no_begin) wanted.input.begin_token = false;
  const auto path = require_tokenizer(wanted.tokenizer, "--tokenizer");
  const auto encoder = text_encoder(Tokenizer::load(path), path);
  const auto began = std::chrono::steady_clock::now();
  TextProgressReport report(std::cerr, {.color = context.color, .terminal_width = terminal_width_of(STDERR_FILENO)});
  wanted.prepare.progress = [&](const TextProgress& progress) { report.show(progress); };
  const auto prepared = prepare_text(encoder, wanted.input, wanted.prepare);
  report.finish();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  if (wanted.json) {
    std::cout << json_text(to_json(wanted.prepare.folder, prepared, seconds)) << std::endl;
  } else {
    std::cout << to_text(wanted.prepare.folder, prepared, seconds);
  }
  return 0;
}

}  // namespace orthant::cli
