// orthant forward: logits or hidden states of a stored model for the rows of a file.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <iostream>
#include <nlohmann/json.hpp>

#include "orthant/base/error.h"
#include "orthant/base/human.h"
#include "orthant/cli/dtype_option.h"
#include "orthant/cli/rank_command.h"
#include "orthant/files/safetensors.h"
#include "orthant/nn/scalar_type.h"
#include "orthant/train/checkpoint.h"
#include "orthant/train/inference.h"
#include "orthant/train/trainer.h"

namespace orthant::cli {
namespace {

// Values of one batch of rows: what is computed at a time stays small, whatever the file holds.
constexpr std::int64_t kBatchElements = std::int64_t{1} << 24;

at::ScalarType input_type(const TensorEntry& entry) {
  if (entry.dtype == "I64") return at::kLong;
  if (entry.dtype == "I32") return at::kInt;
  if (entry.dtype == "U8") return at::kByte;
  if (entry.dtype == "BOOL") return at::kBool;
  throw DataError(fmt::format("input {} is of dtype {}", entry.name, entry.dtype),
                  {.remedy = "give I64 or I32; a mask may also be BOOL or U8"});
}

Fields read_inputs(const std::string& path) {
  const auto file = SafetensorsFile::open(path);
  Fields fields;
  for (const auto& entry : file.entries()) {
    auto tensor = at::empty(entry.shape, at::TensorOptions().dtype(input_type(entry)));
    file.read(entry.name, 0, {static_cast<std::byte*>(tensor.mutable_data_ptr()), tensor.nbytes()});
    fields.emplace(entry.name, std::move(tensor));
  }
  return fields;
}

// Errors name the file that the tensors came from.
template <typename Body>
auto naming(const std::string& path, const Body& body) {
  try {
    return body();
  } catch (const DataError& error) {
    throw DataError(fmt::format("{}: {}", path, error.message()), {.remedy = error.remedy()});
  }
}

Fields rows_of(const Fields& fields, std::int64_t first, std::int64_t count) {
  Fields part;
  for (const auto& [name, field] : fields) part.emplace(name, field.narrow(0, first, count));
  return part;
}

std::span<const std::byte> memory_of(const at::Tensor& tensor) {
  return {static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()};
}

// The first output is written as it is made, the small one after it at the end.
std::vector<TensorEntry> write_outputs(Inference& inference, const Fields& inputs, DType dtype,
                                       const std::string& path) {
  const auto& ids = inputs.at("input_ids");
  std::vector<TensorEntry> entries;
  for (const auto& name : inference.outputs()) {
    entries.push_back({name, element_name(dtype), inference.output_shape(name, ids.size(0), ids.size(1))});
  }
  const auto row_elements = num_elements(inference.output_shape(entries.front().name, 1, ids.size(1)));
  const auto batch = std::max<std::int64_t>(kBatchElements / row_elements, 1);
  SafetensorsWriter writer(path, entries);
  std::vector<at::Tensor> later;
  for (std::int64_t first = 0; first < ids.size(0); first += batch) {
    auto values = inference.forward(rows_of(inputs, first, std::min(batch, ids.size(0) - first)));
    writer.write(entries.front().name, memory_of(values.at(entries.front().name).cpu().contiguous()));
    if (entries.size() > 1) later.push_back(values.at(entries[1].name).cpu());
  }
  if (entries.size() > 1) writer.write(entries[1].name, memory_of(at::cat(later).contiguous()));
  writer.finish();
  return entries;
}

struct ForwardOptionsGiven {
  std::string model;
  std::string config;
  std::string inputs;
  std::string out;
  std::string dtype = "float32";
  bool json = false;
};

int forward(const ForwardOptionsGiven& given, RankContext& rank) {
  const auto began = std::chrono::steady_clock::now();
  const auto inputs = read_inputs(given.inputs);
  InferenceOptions options;
  options.dtype = parse_dtype_option(given.dtype, kComputeDTypes);
  options.device = rank.comm.device;
  const auto mask = inputs.find("attention_mask");
  options.attention_mask = mask != inputs.end() && !mask->second.to(at::kBool).all().item<bool>();
  Inference inference(find_stored_model(given.model, given.config), options);
  naming(given.inputs, [&] { inference.check(inputs); });
  for (const auto& note : inference.notes()) rank.log.info(note);
  const auto entries = write_outputs(inference, inputs, options.dtype, given.out);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  if (given.json) {
    auto outputs = nlohmann::ordered_json::object();
    for (const auto& entry : entries) {
      outputs[entry.name] = {{"shape", entry.shape}, {"dtype", dtype_name(options.dtype)}};
    }
    std::cout << nlohmann::ordered_json{{"model", given.model},
                                        {"kind", model_kind(inference.config())},
                                        {"parameters", inference.graph().num_parameters()},
                                        {"outputs", outputs},
                                        {"out", given.out},
                                        {"notes", inference.notes()},
                                        {"seconds", seconds}}
                     .dump()
              << std::endl;
    return 0;
  }
  for (const auto& entry : entries) {
    std::cout << fmt::format("{} {} [{}]\n", entry.name, dtype_name(options.dtype), fmt::join(entry.shape, ", "));
  }
  std::cout << fmt::format("{} ({})\n", given.out, format_seconds(seconds)) << std::flush;
  return 0;
}

}  // namespace

int run_forward(const Arguments& arguments, Context& context) {
  CLI::App app("Computes the logits (llama, gpt2) or hidden states (bert) of a stored model for the rows of a file.",
               "orthant forward");
  ForwardOptionsGiven given;
  RankOptions ranks;
  app.add_option("--model", given.model, "Hugging Face folder, or one of our checkpoints")->required();
  app.add_option("--config", given.config, "config.json of the model, when it does not lie with it");
  app.add_option("--inputs", given.inputs,
                 "safetensors file with input_ids [rows, sequence], optionally attention_mask and token_type_ids")
      ->required();
  app.add_option("--out", given.out, "safetensors file to write")->required();
  app.add_option(
      "--dtype", given.dtype,
      fmt::format("of parameters, arithmetic and results: {} (default float32)", dtype_list(kComputeDTypes)));
  app.add_flag("--json", given.json, "one JSON document on stdout");
  add_rank_options(app, ranks);
  if (!parse(app, arguments, context,
             "orthant forward --model all-MiniLM-L6-v2 --inputs ids.safetensors --out hidden.safetensors")) {
    return 0;
  }
  parse_dtype_option(given.dtype, kComputeDTypes);
  const auto mesh = ranks.mesh.empty() ? Mesh() : Mesh::parse(ranks.mesh, ranks.order);
  if (mesh.world_size() > 1) {
    throw ConfigError(
        fmt::format("mesh {} has {} ranks; a forward pass runs on one rank", mesh.to_string(), mesh.world_size()),
        {.remedy = "leave --mesh out"});
  }
  if (ranks.dry_run) {
    const auto model = find_stored_model(given.model, given.config);
    const auto spec = forward_spec(model.config, {.rows = 1, .sequence = 1});
    std::cout << fmt::format("{}: {} with {} parameters\nDry run: nothing was computed.\n", given.model,
                             model_kind(model.config), format_count(spec.num_parameters()));
    return 0;
  }
  return run_on_ranks(ranks, context, 1, [&](RankContext& rank) { return forward(given, rank); });
}

}  // namespace orthant::cli
