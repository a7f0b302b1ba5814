#include "orthant/train/inference.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "orthant/base/error.h"
#include "orthant/base/nearest.h"
#include "orthant/launch/activity_board.h"
#include "orthant/layout/context_policy.h"
#include "orthant/layout/tensor_policy.h"
#include "orthant/layout/unit_buffers.h"
#include "orthant/models/model_facts.h"
#include "orthant/nn/scalar_type.h"
#include "orthant/schedule/lowering.h"
#include "orthant/train/shape_text.h"
#include "orthant/train/trainer.h"

namespace orthant {
namespace {

const std::array<std::string, 3> kFields = {"input_ids", "attention_mask", "token_type_ids"};

void check_values(const std::string& name, const at::Tensor& values, std::int64_t limit, std::string_view limit_key,
                  const char* remedy) {
  const auto lowest = values.min().to(at::kLong).item<std::int64_t>();
  const auto highest = values.max().to(at::kLong).item<std::int64_t>();
  if (lowest >= 0 && highest < limit) return;
  throw DataError(fmt::format("{} holds {}; {} is {}, so values lie in [0, {}]", name, lowest < 0 ? lowest : highest,
                              limit_key, limit, limit - 1),
                  {.remedy = remedy});
}

// Collective over `ranks`; Local for one rank.
ForwardWeights open_inference(const StoredModel& model, const InferenceOptions& options,
                              const ControlGroup& ranks = {}) {
  return open_forward(model, [&](bool pooler) { return inference_graph(model.config, options, pooler); }, ranks);
}

}  // namespace

void check_inference_mesh(const Mesh& mesh) {
  for (const auto axis : mesh.active_axes()) {
    if (axis == Axis::tp || axis == Axis::cp) continue;
    throw ConfigError(
        fmt::format("mesh {}: a forward pass computes its rows once, in one stage: it uses tp and cp, and "
                    "has no {} axis",
                    mesh.to_string(), axis_name(axis)),
        {.remedy = fmt::format("use --mesh tp={}, or start one rank", mesh.world_size())});
  }
}

std::vector<comm::GroupRequest> inference_groups(const Mesh& mesh) {
  std::vector<comm::GroupRequest> groups;
  for (const Axis axis : {Axis::tp, Axis::cp}) {
    if (mesh.degree(axis) > 1) groups.push_back({axis, comm::Purpose::activations});
  }
  return groups;
}

ControlGroup inference_ranks(const InferenceOptions& options) {
  return ControlGroup(options.communicator);
}

GraphSpec inference_graph(const ModelConfig& config, const InferenceOptions& options, bool pooler) {
  check_inference_mesh(options.mesh);
  const WorkSize one{.rows = 1, .sequence = 1, .compute = options.dtype};
  auto graph = resolved_graph(forward_spec(config, one, {.mask = options.attention_mask, .pooler = pooler}),
                              TensorPolicy(), options.mesh.degree(Axis::tp));
  graph.context = context_sharing(graph, {}, options.mesh.degree(Axis::cp));
  return graph;
}

std::vector<InferenceShare> inference_shares(const StoredModel& model, const InferenceOptions& options) {
  const auto found = open_inference(model, options);
  std::vector<InferenceShare> shares;
  for (int rank = 0; rank < options.mesh.world_size(); ++rank) {
    InferenceShare share;
    for (const auto& buffer : unit_buffers(found.graph, options.mesh, options.mesh.coordinate(rank), {}).all) {
      for (const auto& entry : buffer.entries) share.parameters += entry.elements;
      share.held_bytes += buffer.size * bytes_of(options.dtype);
      share.read_bytes += found.weights.bytes_to_read(buffer, {0, buffer.size});
    }
    shares.push_back(share);
  }
  return shares;
}

Inference::Inference(StoredModel model, const InferenceOptions& options) : model_(std::move(model)), options_(options) {
  load();
}

void Inference::load() {
  auto found = open_inference(model_, options_, inference_ranks(options_));
  notes_ = std::move(found.notes);
  loaded_ = std::make_unique<LoadedModel>(std::move(found), LoadOptions{.dtype = options_.dtype,
                                                                        .device = options_.device,
                                                                        .mesh = options_.mesh,
                                                                        .communicator = options_.communicator});
  executor_ = std::make_unique<Executor>(graph(), loaded_->units(), Recompute::none, loaded_->peers());
}

std::vector<std::string> Inference::outputs() const {
  const auto has = [&](const char* name) {
    return std::ranges::find(graph().values, name, &ValueSpec::name) != graph().values.end();
  };
  if (has("logits")) return {"logits"};
  std::vector<std::string> names = {"last_hidden_state"};
  if (has("pooler_output")) names.emplace_back("pooler_output");
  return names;
}

Shape Inference::output_shape(const std::string& output, std::int64_t rows, std::int64_t sequence) const {
  auto shape = graph().value(output).shape;
  shape.at(0) = rows;
  if (shape.size() == 3) shape[1] = sequence;
  return shape;
}

void Inference::check(const Fields& inputs) const {
  for (const auto& [name, tensor] : inputs) {
    if (std::ranges::find(kFields, name) != kFields.end()) continue;
    throw DataError(fmt::format("unknown input \"{}\"", name), {.remedy = did_you_mean(name, kFields)});
  }
  const auto found = inputs.find("input_ids");
  if (found == inputs.end()) {
    throw DataError("the input input_ids is missing", {.remedy = "give input_ids, int64 [rows, sequence]"});
  }
  const auto& ids = found->second;
  for (const auto& [name, tensor] : inputs) {
    if (!at::isIntegralType(tensor.scalar_type(), /*includeBool=*/name == "attention_mask")) {
      throw DataError(fmt::format("{} is of dtype {}", name, c10::toString(tensor.scalar_type())),
                      {.remedy = "give whole numbers, e.g. int64"});
    }
    if (tensor.dim() != 2 || tensor.numel() == 0 || tensor.sizes() != ids.sizes()) {
      throw DataError(name == "input_ids"
                          ? fmt::format("input_ids is {}; [rows, sequence] is expected", shape_text(ids))
                          : fmt::format("{} is {} beside input_ids {}", name, shape_text(tensor), shape_text(ids)),
                      {.remedy = "give tensors of one shape [rows, sequence], padded where rows are shorter"});
    }
  }
  check_values("input_ids", ids, vocab_size(model_.config), "vocab_size", "use the tokenizer of this model");
  if (const auto mask = inputs.find("attention_mask"); mask != inputs.end()) {
    const auto other = mask->second.ne(0).logical_and(mask->second.ne(1));
    if (other.any().item<bool>()) {
      throw DataError(fmt::format("attention_mask holds {}", mask->second.masked_select(other)[0].item<std::int64_t>()),
                      {.remedy = "use 1 for tokens and 0 for padding"});
    }
  }
  const auto facts = facts_of(model_.config);
  if (inputs.contains("token_type_ids")) {
    if (!facts.field_limits.contains("token_type_ids")) {
      throw DataError(
          fmt::format("token_type_ids are given, but a model of kind {} has none", model_kind(model_.config)),
          {.remedy = "leave them out"});
    }
    check_values("token_type_ids", inputs.at("token_type_ids"), facts.field_limit("token_type_ids"), "type_vocab_size",
                 "number the segments of a row from 0, or leave token_type_ids out");
  }
  // Rotary positions go on for ever; the others end with their table.
  if (facts.positions_end && ids.size(1) > facts.max_sequence) {
    throw DataError(fmt::format("rows of {} tokens; the model has {} positions", ids.size(1), facts.max_sequence),
                    {.remedy = fmt::format("cut them to {}", facts.max_sequence)});
  }
  const auto& sharing = graph().context;
  if (sharing.degree > 1 && ids.size(1) < least_sequence(sharing)) {
    throw DataError(short_rows_text(ids.size(1), sharing), {.remedy = short_rows_remedy(sharing)});
  }
}

Fields Inference::forward(const Fields& inputs) {
  check(inputs);
  const auto ids = inputs.at("input_ids").to(options_.device, at::kLong);
  Microbatch rows;
  rows.fields["input_ids"] = ids;
  const auto mask = inputs.find("attention_mask");
  if (graph().is_batch_field("attention_mask")) {
    rows.fields["attention_mask"] =
        mask != inputs.end() ? mask->second.to(options_.device, at::kBool) : at::ones_like(ids, at::kBool);
  } else if (mask != inputs.end() && !mask->second.to(at::kBool).all().item<bool>()) {
    throw ConfigError("rows are padded, but this inference was made without an attention mask",
                      {.remedy = "set InferenceOptions::attention_mask"});
  }
  if (graph().is_batch_field("token_type_ids")) {
    const auto types = inputs.find("token_type_ids");
    rows.fields["token_type_ids"] =
        types != inputs.end() ? types->second.to(options_.device, at::kLong) : at::zeros_like(ids);
  }
  const StepFacts facts{.activity = &launch::Activity::of_process()};
  return executor_->evaluate(forward_actions(graph()), rows, facts, outputs());
}

}  // namespace orthant
