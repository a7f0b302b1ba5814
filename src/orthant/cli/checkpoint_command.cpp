// orthant checkpoint: looks at checkpoints, proves them whole, and turns them into Hugging Face folders and back.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "orthant/base/error.h"
#include "orthant/base/human.h"
#include "orthant/base/json_text.h"
#include "orthant/base/printable.h"
#include "orthant/checkpoint/checkpoint.h"
#include "orthant/checkpoint/hugging_face_import.h"
#include "orthant/checkpoint/pointers.h"
#include "orthant/checkpoint/reader.h"
#include "orthant/checkpoint/weight_reader.h"
#include "orthant/cli/checkpoint.h"
#include "orthant/cli/command.h"
#include "orthant/cli/dtype_option.h"
#include "orthant/cli/model_texts.h"
#include "orthant/cli/option_parser.h"
#include "orthant/layout/manifest.h"

namespace orthant::cli {
namespace {

std::int64_t bytes_of(const ManifestTensor& tensor) {
  return num_elements(tensor.shape) * orthant::bytes_of(tensor.dtype);
}

nlohmann::ordered_json manifest_json(const Manifest& manifest) {
  auto tensors = nlohmann::ordered_json::array();
  std::int64_t bytes = 0;
  std::int64_t parameters = 0;
  for (const auto& tensor : manifest.tensors) {
    tensors.push_back({{"name", tensor.name},
                       {"shape", tensor.shape},
                       {"dtype", dtype_name(tensor.dtype)},
                       {"bytes", bytes_of(tensor)},
                       {"pieces", tensor.pieces.size()}});
    bytes += bytes_of(tensor);
    if (!tensor.name.starts_with(kOptimizerPrefix)) parameters += num_elements(tensor.shape);
  }
  auto files = nlohmann::ordered_json::array();
  for (const auto& file : manifest.files) {
    files.push_back({{"name", file.name}, {"bytes", file.bytes}, {"xxh64", file.xxh64}});
  }
  return {{"step", manifest.step},
          {"mesh", manifest.mesh},
          {"epoch", manifest.epoch},
          {"position", manifest.position},
          {"samples_seen", manifest.samples_seen},
          {"seed", manifest.seed},
          {"updates", manifest.updates},
          {"parameters", parameters},
          {"bytes", bytes},
          {"tensors", std::move(tensors)},
          {"files", std::move(files)}};
}

std::string manifest_text(const std::string& folder, const Manifest& manifest) {
  const auto facts = manifest_json(manifest);
  auto text = fmt::format("{}\n  step {}, epoch {}, {} samples seen, seed {}, {} updates, written on mesh {}\n",
                          printable(folder), manifest.step, manifest.epoch, manifest.samples_seen, manifest.seed,
                          manifest.updates, manifest.mesh);
  text += fmt::format("  {} parameters, {} in {} tensors and {} file{}\n",
                      format_count(facts.at("parameters").get<std::int64_t>()),
                      format_bytes(facts.at("bytes").get<std::int64_t>()), manifest.tensors.size(),
                      manifest.files.size(), manifest.files.size() == 1 ? "" : "s");
  std::size_t width = 0;
  for (const auto& tensor : manifest.tensors) width = std::max(width, tensor.name.size());
  for (const auto& tensor : manifest.tensors) {
    text += fmt::format("  {:{}}  {:8}  [{}]\n", tensor.name, width, dtype_name(tensor.dtype),
                        fmt::join(tensor.shape, ", "));
  }
  return text;
}

int run_inspect(const Arguments& arguments, Context& context) {
  OptionParser app("Shows what a checkpoint holds: step, mesh it was written on, tensors with their global shapes.",
                   "orthant checkpoint inspect");
  std::string folder;
  bool json = false;
  app.add_option("folder", folder, "checkpoint, or checkpoints/latest or best of a run").required();
  app.add_flag("--json", json, "one JSON document on stdout");
  if (!parse(app, arguments, context, "orthant checkpoint inspect runs/first/checkpoints/step-100")) return 0;
  folder = pointed_checkpoint(folder);
  const auto manifest = read_manifest(folder);
  if (json) {
    std::cout << json_text(manifest_json(manifest)) << std::endl;
  } else {
    std::cout << printable(manifest_text(folder, manifest), /*keep_lines=*/true) << std::flush;
  }
  return 0;
}

int run_verify(const Arguments& arguments, Context& context) {
  OptionParser app(
      "Proves a checkpoint whole: manifest, sizes and hashes of all files, and the pieces of every tensor; with a key "
      "also authentic.",
      "orthant checkpoint verify");
  std::string folder;
  std::string key_file;
  bool json = false;
  app.add_option("folder", folder, "checkpoint, or checkpoints/latest or best of a run").required();
  app.add_option("--key-file", key_file, kKeyHelp);
  app.add_flag("--json", json, "one JSON document on stdout");
  if (!parse(app, arguments, context, "orthant checkpoint verify runs/first/checkpoints/step-100")) return 0;
  refuse_empty(app, {"--key-file"});
  CheckpointAccess access;
  if (!key_file.empty()) access.key = TagKey::load(key_file);
  folder = pointed_checkpoint(folder);
  const auto manifest = verify_checkpoint(folder, access);
  if (const auto note = unchecked_tags_note(folder, manifest, access); !note.empty()) print_notes({note});
  std::int64_t bytes = 0;
  for (const auto& file : manifest.files) bytes += file.bytes;
  if (json) {
    std::cout << json_text(nlohmann::ordered_json{{"valid", true},
                                                  {"authentic", access.key ? nlohmann::ordered_json(true) : nullptr},
                                                  {"step", manifest.step},
                                                  {"files", manifest.files.size()},
                                                  {"tensors", manifest.tensors.size()},
                                                  {"bytes", bytes}})
              << std::endl;
  } else {
    std::cout << fmt::format("{}: valid{}, step {}, {} tensors, {} file{}, {}\n", printable(folder),
                             access.key ? " and authentic" : "", manifest.step, manifest.tensors.size(),
                             manifest.files.size(), manifest.files.size() == 1 ? "" : "s", format_bytes(bytes))
              << std::flush;
  }
  return 0;
}

int run_import(const Arguments& arguments, Context& context) {
  OptionParser app("Turns a Hugging Face folder into a checkpoint of step 0 that train --resume continues from.",
                   "orthant checkpoint import");
  std::string folder;
  std::string out;
  std::string dtype;
  std::string key_file;
  bool json = false;
  app.add_option("folder", folder, "Hugging Face folder").required();
  app.add_option("out", out, "checkpoint to write").required();
  app.add_option("--dtype", dtype, fmt::format("of the weights: {} (default: as they are)", dtype_list(kWeightDTypes)));
  app.add_option("--key-file", key_file, "file of the key (checkpoint.key_file) to tag the checkpoint with");
  app.add_flag("--json", json, "one JSON document on stdout");
  if (!parse(app, arguments, context, example::kCheckpointImport)) return 0;
  refuse_empty(app, {"--key-file"});
  const auto result = import_hugging_face(
      folder, out, dtype.empty() ? std::nullopt : std::optional<DType>(parse_dtype_option(dtype, kWeightDTypes)),
      key_file.empty() ? nullptr : TagKey::load(key_file));
  print_notes(result.notes);
  if (json) {
    std::cout << json_text(nlohmann::ordered_json{{"out", out},
                                                  {"kind", result.kind},
                                                  {"tensors", result.tensors},
                                                  {"bytes", result.bytes},
                                                  {"notes", result.notes}})
              << std::endl;
  } else {
    std::cout << fmt::format("{}: {} with {} tensors, {}\n", printable(out), result.kind, result.tensors,
                             format_bytes(result.bytes))
              << std::flush;
  }
  return 0;
}

const std::vector<Command> kCheckpointCommands = {
    {"inspect", "step, mesh, tensors with global shapes", run_inspect},
    {"verify", "every file's hash", run_verify},
    {"export", "write a Hugging Face folder", run_checkpoint_export},
    {"import", "make a checkpoint of a Hugging Face folder", run_import},
};

}  // namespace

void print_notes(const std::vector<std::string>& notes) {
  for (const auto& note : notes) std::cerr << "orthant: " << printable(note) << '\n';
}

int run_checkpoint(const Arguments& arguments, Context& context) {
  return run_sub_command("checkpoint", kCheckpointCommands,
                         "orthant checkpoint inspect runs/first/checkpoints/step-100", arguments, context);
}

}  // namespace orthant::cli
