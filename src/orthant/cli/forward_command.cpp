// orthant forward: logits or hidden states of a stored model for the rows of a file.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "orthant/base/error.h"
#include "orthant/base/human.h"
#include "orthant/base/json_text.h"
#include "orthant/base/printable.h"
#include "orthant/checkpoint/checkpoint.h"
#include "orthant/cli/dtype_option.h"
#include "orthant/cli/model_texts.h"
#include "orthant/cli/option_parser.h"
#include "orthant/cli/rank_command.h"
#include "orthant/files/safetensors.h"
#include "orthant/nn/scalar_type.h"
#include "orthant/train/inference.h"

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

// The first output is written as it is made, the small one after it at the end; rank 0 writes. Collective over `ranks`.
std::vector<TensorEntry> write_outputs(Inference& inference, const Fields& inputs, DType dtype, const std::string& path,
                                       const ControlGroup& ranks) {
  const auto& ids = inputs.at("input_ids");
  std::vector<TensorEntry> entries;
  for (const auto& name : inference.outputs()) {
    entries.push_back({name, element_name(dtype), inference.output_shape(name, ids.size(0), ids.size(1))});
  }
  const auto row_elements = num_elements(inference.output_shape(entries.front().name, 1, ids.size(1)));
  const auto batch = std::max<std::int64_t>(kBatchElements / row_elements, 1);
  std::optional<SafetensorsWriter> writer;
  ranks.together([&] {
    if (ranks.is_first()) writer.emplace(path, entries);
  });
  std::vector<at::Tensor> later;
  for (std::int64_t first = 0; first < ids.size(0); first += batch) {
    auto values = inference.forward(rows_of(inputs, first, std::min(batch, ids.size(0) - first)));
    if (!writer) continue;
    writer->write(entries.front().name, memory_of(values.at(entries.front().name).cpu().contiguous()));
    if (entries.size() > 1) later.push_back(values.at(entries[1].name).cpu());
  }
  if (!writer) return entries;
  if (entries.size() > 1) writer->write(entries[1].name, memory_of(at::cat(later).contiguous()));
  writer->finish();
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

// Of weights, by rank. Collective over `ranks`.
std::vector<std::int64_t> bytes_by_rank(const Inference& inference, const ControlGroup& ranks) {
  std::vector<std::int64_t> bytes;
  for (const auto& one : ranks.gather(at::tensor({inference.bytes_read()}, at::kLong))) {
    bytes.push_back(one.item<std::int64_t>());
  }
  return bytes;
}

struct ForwardResult {
  std::vector<TensorEntry> outputs;
  std::vector<std::int64_t> bytes_read;  // by rank
  double seconds = 0;
};

void print(const ForwardOptionsGiven& given, const Inference& inference, const ForwardResult& result) {
  const auto dtype = dtype_name(parse_dtype_option(given.dtype, kComputeDTypes));
  if (given.json) {
    auto outputs = nlohmann::ordered_json::object();
    for (const auto& entry : result.outputs) outputs[entry.name] = {{"shape", entry.shape}, {"dtype", dtype}};
    std::cout << json_text(nlohmann::ordered_json{{"model", given.model},
                                                  {"kind", model_kind(inference.config())},
                                                  {"parameters", inference.graph().num_parameters()},
                                                  {"outputs", outputs},
                                                  {"out", given.out},
                                                  {"notes", inference.notes()},
                                                  {"bytes_read", result.bytes_read.front()},
                                                  {"bytes_read_per_rank", result.bytes_read},
                                                  {"seconds", result.seconds}})
              << std::endl;
    return;
  }
  for (const auto& entry : result.outputs) {
    std::cout << fmt::format("{} {} [{}]\n", entry.name, dtype, fmt::join(entry.shape, ", "));
  }
  std::vector<std::string> read;
  for (const auto bytes : result.bytes_read) read.push_back(format_bytes(bytes));
  std::cout << fmt::format("{} ({}; {} of weights read)\n", printable(given.out), format_seconds(result.seconds),
                           fmt::join(read, ", "))
            << std::flush;
}

int forward(const ForwardOptionsGiven& given, RankContext& rank) {
  const auto began = std::chrono::steady_clock::now();
  InferenceOptions options;
  options.dtype = parse_dtype_option(given.dtype, kComputeDTypes);
  options.device = rank.comm.device;
  options.mesh = rank.mesh;
  check_inference_mesh(rank.mesh);
  std::shared_ptr<comm::Communicator> communicator;
  if (rank.mesh.world_size() > 1) {
    communicator = comm::make_communicator(rank.mesh, rank.job, rank.comm, inference_groups(rank.mesh));
    options.communicator = communicator;
  }
  const auto ranks = inference_ranks(options);
  Fields inputs;
  StoredModel model;
  ranks.together([&] {
    inputs = read_inputs(given.inputs);
    model = find_stored_model(given.model, given.config);
  });
  const auto mask = inputs.find("attention_mask");
  options.attention_mask = mask != inputs.end() && !mask->second.to(at::kBool).all().item<bool>();
  Inference inference(std::move(model), options);
  ranks.together([&] { naming(given.inputs, [&] { inference.check(inputs); }); });
  if (ranks.is_first()) {
    for (const auto& note : inference.notes()) rank.log.info(note);
  }
  ForwardResult result;
  result.outputs = write_outputs(inference, inputs, options.dtype, given.out, ranks);
  result.bytes_read = bytes_by_rank(inference, ranks);
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  if (ranks.is_first()) print(given, inference, result);
  if (communicator) communicator->close();
  return 0;
}

// What each rank would hold and read.
void print_shares(const ForwardOptionsGiven& given, const StoredModel& model, const InferenceOptions& options) {
  const auto parameters = inference_graph(model.config, options).num_parameters();
  const auto shares = inference_shares(model, options);
  if (given.json) {
    auto ranks = nlohmann::ordered_json::array();
    for (const auto& share : shares) {
      ranks.push_back(
          {{"parameters", share.parameters}, {"held_bytes", share.held_bytes}, {"read_bytes", share.read_bytes}});
    }
    std::cout << json_text(nlohmann::ordered_json{{"model", given.model},
                                                  {"kind", model_kind(model.config)},
                                                  {"parameters", parameters},
                                                  {"mesh", options.mesh.to_string()},
                                                  {"ranks", ranks}})
              << std::endl;
    return;
  }
  std::cout << fmt::format("{}: {} with {} parameters\n", printable(given.model), model_kind(model.config),
                           format_count(parameters));
  for (std::size_t rank = 0; rank < shares.size(); ++rank) {
    std::cout << fmt::format("rank {}: holds {} parameters in {}, reads {}\n", rank,
                             format_count(shares[rank].parameters), format_bytes(shares[rank].held_bytes),
                             format_bytes(shares[rank].read_bytes));
  }
  std::cout << "Dry run: nothing was computed." << std::endl;
}

// What can be refused before ranks are started.
void check_ranks(const ForwardOptionsGiven& given, const RankOptions& ranks, const Mesh& mesh) {
  check_inference_mesh(mesh);
  if (mesh.world_size() == 1) return;
  if (comm::parse_backend(ranks.backend) == comm::BackendKind::fake) {
    throw ConfigError("--backend fake moves nothing between ranks: what it computes is of no model",
                      {.remedy = "use another backend"});
  }
  InferenceOptions options;
  options.mesh = mesh;
  inference_graph(find_stored_model(given.model, given.config).config, options);
}

}  // namespace

int run_forward(const Arguments& arguments, Context& context) {
  OptionParser app(help::kForward, "orthant forward");
  ForwardOptionsGiven given;
  RankOptions ranks;
  app.add_option("--model", given.model, "Hugging Face folder, or one of our checkpoints").required();
  app.add_option("--config", given.config, "config.json of the model, when it does not lie with it");
  app.add_option("--inputs", given.inputs,
                 "safetensors file with input_ids [rows, sequence], optionally attention_mask and token_type_ids")
      .required();
  app.add_option("--out", given.out, "safetensors file to write").required();
  app.add_option(
      "--dtype", given.dtype,
      fmt::format("of parameters, arithmetic and results: {} (default float32)", dtype_list(kComputeDTypes)));
  app.add_flag("--json", given.json, "one JSON document on stdout");
  add_rank_options(app, ranks);
  if (!parse(app, arguments, context,
             "orthant forward --model all-MiniLM-L6-v2 --inputs ids.safetensors --out hidden.safetensors")) {
    return 0;
  }
  const auto dtype = parse_dtype_option(given.dtype, kComputeDTypes);
  const auto mesh = ranks.mesh.empty() ? Mesh() : Mesh::parse(ranks.mesh, ranks.order);
  check_ranks(given, ranks, mesh);
  if (ranks.dry_run) {
    InferenceOptions options;
    options.dtype = dtype;
    options.mesh = mesh;
    print_shares(given, find_stored_model(given.model, given.config), options);
    return 0;
  }
  return run_on_ranks(ranks, context, 1, [&](RankContext& rank) { return forward(given, rank); });
}

}  // namespace orthant::cli
