#include "orthant/train/trainer.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>

#include "orthant/base/error.h"
#include "orthant/base/nearest.h"
#include "orthant/data/trim_padding.h"
#include "orthant/nn/scalar_type.h"
#include "orthant/runtime/module_graph.h"
#include "orthant/schedule/generators.h"
#include "orthant/schedule/lowering.h"
#include "orthant/schedule/validate.h"
#include "orthant/train/checkpoint.h"
#include "orthant/train/weights_hash.h"

namespace orthant {
namespace {

const std::vector<std::string> kSchedules = {"gpipe", "1f1b"};

}  // namespace

void check_mesh(const Mesh& mesh) {
  if (mesh.world_size() == 1) return;
  throw ConfigError(fmt::format("mesh {} has {} ranks; training runs on one rank", mesh.to_string(), mesh.world_size()),
                    {.remedy = "use --mesh dp=1"});
}

PendingStep::PendingStep(const at::Tensor& loss_and_norm) {
  if (loss_and_norm.is_cpu()) {
    on_host_ = loss_and_norm;
    return;
  }
  on_host_ = at::empty(loss_and_norm.sizes(), at::TensorOptions().dtype(at::kDouble).pinned_memory(true));
  on_host_.copy_(loss_and_norm, /*non_blocking=*/true);
  auto event = std::make_shared<c10::Event>(loss_and_norm.device().type());
  event->record(c10::impl::VirtualGuardImpl(loss_and_norm.device().type()).getStream(loss_and_norm.device()));
  arrived_ = std::move(event);
}

PendingStep::Numbers PendingStep::get() const {
  if (!on_host_.defined()) throw InternalError("no step was made whose numbers could be read");
  if (arrived_) static_cast<const c10::Event*>(arrived_.get())->synchronize();
  const auto* numbers = on_host_.const_data_ptr<double>();
  return {numbers[0], numbers[1]};
}

std::vector<Action> step_actions(const GraphSpec& graph, const TrainerOptions& options) {
  const auto& plan = options.stages;
  const auto map = plan.split.empty() ? even_stages(graph, plan.stages) : named_stages(graph, plan.split);
  if (std::ranges::find(kSchedules, plan.schedule) == kSchedules.end()) {
    throw ConfigError(fmt::format("unknown schedule \"{}\"", plan.schedule),
                      {.remedy = did_you_mean(plan.schedule, kSchedules)});
  }
  const auto stages = map.num_stages();
  const auto table = stages == 1                ? one_stage(options.microbatches)
                     : plan.schedule == "gpipe" ? gpipe(stages, options.microbatches)
                                                : one_forward_one_backward(stages, options.microbatches);
  const auto merged = stages == 1 ? table : on_one_rank(table);
  const auto merged_map = on_one_rank(map);
  validate(merged, merged_map, graph);
  return lower(merged, merged_map, graph, /*rank=*/0);
}

Trainer::~Trainer() = default;

Trainer::Trainer(GraphSpec graph, const MakeUnits& make_units, const Mesh& mesh, TrainerOptions options)
    : graph_(std::move(graph)), mesh_(mesh), options_(std::move(options)) {
  check_mesh(mesh_);
  graph_.check();
  if (graph_.losses().empty()) {
    throw ConfigError(fmt::format("graph \"{}\": none of its {} units is a loss", graph_.name, graph_.units.size()),
                      {.remedy = "mark the unit that computes the loss with is_loss"});
  }
  actions_ = step_actions(graph_, options_);
  const auto make = [this](std::int64_t elements, at::ScalarType type) {
    return at::zeros({elements}, at::TensorOptions().dtype(type).device(options_.device));
  };
  store_ = std::make_unique<ParameterStore>(graph_, mesh_, /*rank=*/0, options_.precision, make);
  units_ = make_units(*store_, tables_);
  for (const auto& unit : units_) autograd_units_.push_back(unit->accumulates_by_autograd());
  store_->initialise(options_.seed, options_.drawn);
  options_.drawn = {};  // what it refers to may end with this constructor
  if (std::ranges::none_of(store_->buffers(), [](const auto& buffer) { return buffer->trainable(); })) {
    throw ConfigError("every parameter is frozen: there is nothing to train", {.remedy = "narrow model.freeze"});
  }
  executor_ = std::make_unique<Executor>(graph_, units_, options_.recompute);
  optimizer_ = std::make_unique<Optimizer>(*store_, options_.optimizer, make);
}

Trainer::Trainer(const Graph& graph, const Mesh& mesh, TrainerOptions options)
    : Trainer(
          graph.spec(), [&](ParameterStore& store, Tables& tables) { return graph.make_units(store, tables); }, mesh,
          std::move(options)) {}

std::vector<Microbatch> Trainer::microbatches(const Batch& batch) const {
  if (batch.fields.empty()) throw ConfigError("a batch without fields", {.remedy = "give it those the graph reads"});
  const auto rows = batch.fields.begin()->second.size(0);
  const auto count = options_.microbatches;
  for (const auto& [name, field] : batch.fields) {
    if (field.dim() > 0 && field.size(0) == rows && rows > 0 && rows % count == 0) continue;
    throw ConfigError(fmt::format("batch field {} of shape {} in {} microbatches; field {} has {} rows", name,
                                  c10::str(field.sizes()), count, batch.fields.begin()->first, rows),
                      {.remedy = "give every field the same rows, a multiple of the microbatches"});
  }
  const auto size = rows / count;
  const auto rows_of = [size](const at::Tensor& field, int m) { return field.narrow(0, m * size, size); };
  std::vector<Microbatch> parts(static_cast<std::size_t>(count));
  std::vector<std::map<std::string, std::int64_t>> columns(parts.size());
  for (int m = 0; m < count; ++m) {
    const auto place = static_cast<std::size_t>(m);
    parts[place].first_row = batch.first_row + m * size;
    if (!options_.pad_to_longest) continue;
    Fields on_host;
    for (const auto& [name, field] : batch.fields) on_host[name] = rows_of(field, m);
    columns[place] = needed_columns(on_host);
  }
  for (const auto& [name, field] : batch.fields) {
    const auto moved = field.to(options_.device, /*non_blocking=*/true);
    for (int m = 0; m < count; ++m) {
      const auto place = static_cast<std::size_t>(m);
      auto part = rows_of(moved, m);
      const auto cut = columns[place].find(name);
      if (cut != columns[place].end()) part = part.narrow(1, 0, cut->second).contiguous();
      parts[place].fields[name] = part;
    }
  }
  return parts;
}

at::Tensor Trainer::run(const Batch& batch) {
  const auto parts = microbatches(batch);
  StepFacts facts{options_.seed, steps_done_ + 1, {}};
  if (batch.weight_sum <= 0) throw DataError("a batch without a single target: the loss has nothing to be divided by");
  for (const auto& loss : graph_.losses()) {
    const auto found = options_.loss_coefficients.find(loss);
    const double coefficient = found == options_.loss_coefficients.end() ? 1.0 : found->second;
    facts.loss_factors[loss] = coefficient / batch.weight_sum;
  }
  store_->begin_step(autograd_units_);
  const auto losses = executor_->train(actions_, parts, facts);
  const auto unused = store_->complete_gradients();
  if (!unused.empty() && !options_.allow_unused_parameters) {
    throw ConfigError(fmt::format("parameter {} got no gradient in step {} ({} such parameters)", unused.front(),
                                  facts.step, unused.size()),
                      {.remedy = "freeze it (model.freeze), or allow unused parameters"});
  }
  auto total = at::zeros({}, at::TensorOptions().dtype(at::kDouble).device(options_.device));
  for (const auto& name : graph_.losses()) total = total + losses.at(name) * facts.loss_factors.at(name);
  return at::stack({total, optimizer_->squared_norms().to(options_.device).sum().sqrt()});
}

PendingStep Trainer::step(const Batch& batch) {
  const auto numbers = run(batch);
  optimizer_->update(lr(), numbers[1], numbers.isfinite().all());
  ++steps_done_;
  return {numbers};
}

PendingStep Trainer::gradients(const Batch& batch) {
  return {run(batch)};
}

std::map<std::string, at::Tensor> Trainer::evaluate(const Fields& fields, const std::vector<std::string>& wanted) {
  Fields trimmed = fields;
  if (options_.pad_to_longest) trim_padding(trimmed);
  Microbatch rows;
  for (const auto& [name, field] : trimmed) {
    rows.fields[name] = field.contiguous().to(options_.device, /*non_blocking=*/true);
  }
  return executor_->evaluate(rows, {options_.seed, steps_done_, {}}, wanted);
}

std::uint64_t Trainer::weights_hash() const {
  std::uint64_t sum = 0;
  for (const auto& buffer : store_->buffers()) {
    for (const auto& entry : buffer->layout().entries) {
      std::int64_t done = 0;
      const auto local = buffer->master_view(entry);
      for (const auto& box : entry.boxes) {
        const auto length = box.lengths.at(static_cast<std::size_t>(entry.dim));
        sum += partial_weights_hash(entry.parameter, local.narrow(entry.dim, done, length).contiguous(), box);
        done += length;
      }
    }
  }
  return sum;
}

void Trainer::save(const std::string& folder) const {
  save_checkpoint(*this, {}, folder);
}

void Trainer::load(const std::string& folder) {
  load_checkpoint(*this, folder);
}

}  // namespace orthant
