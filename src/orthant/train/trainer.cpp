#include "orthant/train/trainer.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>

#include "orthant/base/error.h"
#include "orthant/base/nearest.h"
#include "orthant/data/trim_padding.h"
#include "orthant/layout/pieces.h"
#include "orthant/layout/rows.h"
#include "orthant/nn/scalar_type.h"
#include "orthant/parallel/tensor/group_axis.h"
#include "orthant/plan/data_actions.h"
#include "orthant/runtime/module_graph.h"
#include "orthant/schedule/generators.h"
#include "orthant/schedule/lowering.h"
#include "orthant/schedule/validate.h"
#include "orthant/train/checkpoint.h"
#include "orthant/train/weights_hash.h"

namespace orthant {
namespace {

const std::vector<std::string> kSchedules = {"gpipe", "1f1b"};

const Mesh& without_tensor_axis(const Mesh& mesh) {
  if (mesh.degree(Axis::tp) == 1) return mesh;
  throw ConfigError(fmt::format("mesh {}: a program's own modules do not say how tp={} would cut them",
                                mesh.to_string(), mesh.degree(Axis::tp)),
                    {.remedy = "use dp or fsdp, or one of the models of build_spec()"});
}

// The store does what the executor's list says.
class StoreKeeper : public ParameterKeeper {
 public:
  explicit StoreKeeper(ParameterStore& store) : store_(store) {}
  void gather(int unit) override { store_.gather(unit); }
  void free(int unit) override { store_.free(unit); }
  void need_values(int unit) override { store_.need_values(unit); }
  void need_gradients(int unit) override { store_.need_gradients(unit); }
  void reduce(int unit, int microbatch) override { store_.reduce(unit, microbatch); }

 private:
  ParameterStore& store_;
};

}  // namespace

namespace {

// As many ranks, the axes that training does not use given to dp.
std::string nearest_mesh(const Mesh& mesh) {
  const int fsdp = mesh.degree(Axis::fsdp);
  const int tp = mesh.degree(Axis::tp);
  std::string text = fmt::format("dp={}", mesh.world_size() / fsdp / tp);
  if (fsdp > 1) text += fmt::format(",fsdp={}", fsdp);
  if (tp > 1) text += fmt::format(",tp={}", tp);
  return text;
}

}  // namespace

void check_mesh(const Mesh& mesh) {
  for (const auto axis : mesh.active_axes()) {
    if (axis == Axis::dp || axis == Axis::fsdp || axis == Axis::tp) continue;
    throw ConfigError(
        fmt::format("mesh {}: training has no {} axis; it uses dp, fsdp and tp", mesh.to_string(), axis_name(axis)),
        {.remedy = fmt::format("use --mesh {}", nearest_mesh(mesh))});
  }
}

RankGroups trainer_groups(const GraphSpec& graph, const Mesh& mesh, const TrainerOptions& options) {
  RankGroups groups{store_groups(mesh, options.policy), {}};
  if (mesh.degree(Axis::tp) == 1) return groups;
  groups.axes.push_back({Axis::tp, comm::Purpose::activations});
  groups.subsets = copy_groups(placed_graph(graph, options.tensor, mesh.degree(Axis::tp)), mesh);
  return groups;
}

PendingStep::PendingStep(const at::Tensor& numbers) {
  if (numbers.is_cpu()) {
    on_host_ = numbers;
    return;
  }
  on_host_ = at::empty(numbers.sizes(), at::TensorOptions().dtype(at::kDouble).pinned_memory(true));
  on_host_.copy_(numbers, /*non_blocking=*/true);
  auto event = std::make_shared<c10::Event>(numbers.device().type());
  event->record(c10::impl::VirtualGuardImpl(numbers.device().type()).getStream(numbers.device()));
  arrived_ = std::move(event);
}

PendingStep::Numbers PendingStep::get() const {
  if (!on_host_.defined()) throw InternalError("no step was made whose numbers could be read");
  if (arrived_) static_cast<const c10::Event*>(arrived_.get())->synchronize();
  const auto* numbers = on_host_.const_data_ptr<double>();
  const auto most = *std::max_element(numbers + 4, numbers + on_host_.numel());
  return {numbers[0], numbers[1], numbers[2] > 0, numbers[3] > 0, static_cast<std::int64_t>(most)};
}

std::shared_ptr<comm::Communicator> connect_ranks(const GraphSpec& graph, const Mesh& mesh, const launch::Job& job,
                                                  const TrainerOptions& options, double timeout_seconds) {
  if (job.world_size == 1) return nullptr;
  const auto groups = trainer_groups(graph, mesh, options);
  comm::CommOptions comm;
  comm.device = options.device;
  comm.bind_address = job.rendezvous.bind_address;
  comm.timeout_seconds = timeout_seconds;
  return comm::make_communicator(mesh, job, comm, groups.axes, groups.subsets);
}

std::shared_ptr<comm::Communicator> connect_ranks(const Mesh& mesh, const launch::Job& job,
                                                  const TrainerOptions& options, double timeout_seconds) {
  return connect_ranks(GraphSpec(), without_tensor_axis(mesh), job, options, timeout_seconds);
}

DataSettings data_settings(const GraphSpec& graph, const Mesh& mesh, const TrainerOptions& options) {
  DataSettings settings;
  settings.mesh = mesh;
  if (options.communicator) settings.coordinate = mesh.coordinate(options.communicator->rank());
  settings.policy = effective_policy(options.policy, mesh);
  settings.params = options.precision.params;
  settings.compute = options.precision.compute;
  settings.reduce = options.precision.reduce;
  settings.optimizer_copies = num_states(options.optimizer);
  settings.microbatches = options.microbatches;
  settings.unit_groups = unit_groups(graph, options.units);
  if (options.hook) {
    const auto probe = at::zeros({1}, scalar_type(options.precision.reduce));
    settings.bf16_hook = encoded(options.hook, probe).element_size() == 2;
  }
  return settings;
}

TensorSettings tensor_settings(const Mesh& mesh, const TrainerOptions& options) {
  TensorSettings settings;
  settings.degree = mesh.degree(Axis::tp);
  settings.sequence_parallel = options.tensor.sequence_parallel;
  settings.loss_parallel = options.tensor.loss_parallel;
  settings.regather = options.tensor.regather;
  settings.compute = options.precision.compute;
  settings.reduce = options.precision.reduce;
  settings.microbatches = options.microbatches;
  settings.recompute = options.recompute;
  if (!options.device.is_cpu() && settings.compute != DType::float64) settings.statistics = DType::float32;
  if (effective_policy(options.policy, mesh).accumulate_sharded) settings.reductions = options.microbatches;
  return settings;
}

std::vector<Action> evaluation_actions(const GraphSpec& graph, const Mesh& mesh, const TrainerOptions& options) {
  return data_actions(forward_actions(graph), graph, data_settings(graph, mesh, options));
}

std::vector<Action> step_actions(const GraphSpec& graph, const Mesh& mesh, const TrainerOptions& options) {
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
  return data_actions(lower(merged, merged_map, graph, /*rank=*/0), graph, data_settings(graph, mesh, options));
}

Trainer::~Trainer() = default;

Trainer::Trainer(GraphSpec graph, const MakeUnits& make_units, const Mesh& mesh, TrainerOptions options)
    : graph_(placed_graph(std::move(graph), options.tensor, mesh.degree(Axis::tp))),
      mesh_(mesh),
      options_(std::move(options)) {
  check_mesh(mesh_);
  graph_.check();
  if (graph_.losses().empty()) {
    throw ConfigError(fmt::format("graph \"{}\": none of its {} units is a loss", graph_.name, graph_.units.size()),
                      {.remedy = "mark the unit that computes the loss with is_loss"});
  }
  actions_ = step_actions(graph_, mesh_, options_);
  evaluation_actions_ = evaluation_actions(graph_, mesh_, options_);
  const bool offloads = options_.policy.offload != Offload::none;
  const auto on_device = [this](std::int64_t elements, at::ScalarType type) {
    return at::zeros({elements}, at::TensorOptions().dtype(type).device(options_.device));
  };
  const auto on_host = [this](std::int64_t elements, at::ScalarType type) {
    return at::zeros({elements}, at::TensorOptions().dtype(type).pinned_memory(!options_.device.is_cpu()));
  };
  // Where peers can read it.
  const auto exchanged = [on_device, this](std::int64_t elements, at::ScalarType type) {
    return options_.communicator ? options_.communicator->allocate(elements, type).zero_() : on_device(elements, type);
  };
  StoreOptions store{.policy = options_.policy,
                     .unit_groups = unit_groups(graph_, options_.units),
                     .hook = options_.hook,
                     .skipped = options_.skipped,
                     .communicator = options_.communicator.get(),
                     .make_host = on_host};
  store_ = std::make_unique<ParameterStore>(graph_, mesh_, rank(), options_.precision, exchanged, std::move(store));
  keeper_ = std::make_unique<StoreKeeper>(*store_);
  if (mesh_.degree(Axis::tp) > 1) {
    tensor_ =
        std::make_unique<GroupAxis>(options_.communicator->group(Axis::tp, comm::Purpose::activations), *graph_.tensor);
  }
  units_ = make_units(*store_, tables_);
  for (const auto& unit : units_) autograd_units_.push_back(unit->accumulates_by_autograd());
  store_->initialise(options_.seed, options_.drawn);
  options_.drawn = {};  // what it refers to may end with this constructor
  if (std::ranges::none_of(store_->buffers(), [](const auto& buffer) { return buffer->trainable(); })) {
    throw ConfigError("every parameter is frozen: there is nothing to train", {.remedy = "narrow model.freeze"});
  }
  executor_ = std::make_unique<Executor>(graph_, units_, options_.recompute, tensor_.get());
  const auto scale = options_.loss_scale.value_or(default_loss_scale(options_.precision));
  loss_scale_ = std::make_unique<LossScale>(scale, options_.device);
  if (offloads) {
    optimizer_ = std::make_unique<Optimizer>(*store_, options_.optimizer, on_host);
  } else {
    optimizer_ = std::make_unique<Optimizer>(*store_, options_.optimizer, on_device);
  }
}

Trainer::Trainer(const Graph& graph, const Mesh& mesh, TrainerOptions options)
    : Trainer(
          graph.spec(),
          [&, this](ParameterStore& store, Tables& tables) {
            if (options_.communicator) graph.take_first_rank(*options_.communicator);
            return graph.make_units(store, tables);
          },
          without_tensor_axis(mesh), std::move(options)) {}

Batch Trainer::own_rows(const Batch& whole) const {
  const auto replicas = num_replicas(mesh_);
  const auto rows = whole.fields.empty() ? 0 : whole.fields.begin()->second.size(0);
  const auto parts = static_cast<std::int64_t>(replicas) * options_.microbatches;
  if (rows == 0 || rows % parts != 0) {
    throw ConfigError(
        fmt::format("a batch of {} rows for {} replicas of {} microbatches", rows, replicas, options_.microbatches),
        {.remedy = fmt::format("give a multiple of {} rows", parts)});
  }
  auto own = whole;
  own.rows = rows / replicas;
  own.first_row = whole.first_row + replica_index(mesh_, mesh_.coordinate(rank())) * own.rows;
  for (auto& [name, field] : own.fields) field = field.narrow(0, own.first_row - whole.first_row, own.rows);
  return own;
}

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

// What an error left half done cannot be made good: gathered values and collected gradients are of no known state.
void Trainer::begin_list() {
  if (unfinished_) {
    throw ConfigError("an earlier step or evaluation of this trainer ended with an error",
                      {.remedy = "make a new trainer and load the last checkpoint"});
  }
  unfinished_ = true;
}

at::Tensor Trainer::run(const Batch& batch, const RankReport& report) {
  const auto parts = microbatches(batch);
  StepFacts facts{options_.seed, steps_done_ + 1, {}, loss_scale_->value()};
  if (batch.weight_sum <= 0) throw DataError("a batch without a single target: the loss has nothing to be divided by");
  for (const auto& loss : graph_.losses()) {
    const auto found = options_.loss_coefficients.find(loss);
    const double coefficient = found == options_.loss_coefficients.end() ? 1.0 : found->second;
    facts.loss_factors[loss] = coefficient / batch.weight_sum;
  }
  begin_list();
  store_->begin_step(autograd_units_);
  const auto losses = executor_->train(actions_, parts, facts, keeper_.get());
  const auto unused = store_->finish_gradients();
  unfinished_ = false;
  if (!unused.empty() && !options_.allow_unused_parameters) {
    throw ConfigError(
        fmt::format("parameter {} got no gradient in step {} ({} such parameters)", unused.front(), facts.step,
                    unused.size()),
        {.remedy = "freeze it (model.freeze), or set train.allow_unused_parameters=true", .rank = rank()});
  }
  auto loss = at::zeros({1}, at::TensorOptions().dtype(at::kDouble).device(options_.device));
  for (const auto& name : graph_.losses()) loss = loss + losses.at(name) * facts.loss_factors.at(name);
  return summed(loss, report);
}

// One sum over all ranks: loss, which tp ranks have alike and the first of them tells, requests to stop, every rank's
// memory, and a slot per unit for the squared norm.
at::Tensor Trainer::summed(const at::Tensor& loss, const RankReport& report) {
  auto told = at::zeros({1 + mesh_.world_size()}, at::kDouble);
  told[0] = report.stop ? 1.0 : 0.0;
  told[1 + rank()] = static_cast<double>(report.peak_memory_bytes);
  const auto norms = optimizer_->squared_norms().to(options_.device);
  const bool tells = mesh_.coordinate(rank())[Axis::tp] == 0;
  auto all = at::cat({tells ? loss : at::zeros_like(loss), told.to(options_.device, /*non_blocking=*/true), norms});
  if (options_.communicator) options_.communicator->world().all_reduce(all).wait();
  const auto told_size = told.numel();
  auto norm = all.narrow(0, 1 + told_size, norms.numel()).sum().sqrt().reshape({1});
  if (loss_scale_->value().defined()) norm = norm / loss_scale_->value();
  const auto whole = all.narrow(0, 0, 1);
  return at::cat({whole, norm, loss_scale_->may_mend(whole, norm), all.narrow(0, 1, told_size)});
}

PendingStep Trainer::step(const Batch& batch, const RankReport& report) {
  const auto numbers = run(batch, report);
  const auto finite = numbers.narrow(0, 0, 2).isfinite().all();
  optimizer_->update(lr(), numbers[1], finite, loss_scale_->value());
  loss_scale_->update(finite);
  ++steps_done_;
  return PendingStep(numbers);
}

PendingStep Trainer::gradients(const Batch& batch) {
  const auto numbers = run(batch, {});
  if (const auto& scale = loss_scale_->value(); scale.defined()) {
    for (const auto& buffer : store_->buffers()) {
      if (buffer->trainable()) buffer->owned_gradient().div_(scale);
    }
  }
  return PendingStep(numbers);
}

std::map<std::string, at::Tensor> Trainer::evaluate(const Fields& fields, const std::vector<std::string>& wanted) {
  Fields trimmed = fields;
  if (options_.pad_to_longest) trim_padding(trimmed);
  Microbatch rows;
  for (const auto& [name, field] : trimmed) {
    rows.fields[name] = field.contiguous().to(options_.device, /*non_blocking=*/true);
  }
  begin_list();
  auto values = executor_->evaluate(evaluation_actions_, rows, {options_.seed, steps_done_, {}}, wanted, keeper_.get());
  unfinished_ = false;
  return values;
}

std::uint64_t Trainer::weights_hash() const {
  std::uint64_t sum = 0;
  for (const auto& buffer : store_->buffers()) {
    for (const auto& piece : pieces_to_write(buffer->layout(), mesh_, rank())) {
      const auto values = buffer->master().narrow(0, piece.local_offset - buffer->owned().begin, piece.elements());
      const TensorBox box{graph_.parameter(piece.tensor).shape, piece.offsets, piece.lengths};
      sum += partial_weights_hash(piece.tensor, values, box, piece.span().begin);
    }
  }
  if (!options_.communicator) return sum;
  // In halves, so that the ranks' sums cannot overflow.
  const auto low = static_cast<std::int64_t>(sum & 0xffffffffU);
  const auto halves = at::tensor({low, static_cast<std::int64_t>(sum >> 32)}, at::kLong).to(options_.device);
  options_.communicator->world().all_reduce(halves).wait();
  const auto on_host = halves.cpu();
  const auto* half = on_host.const_data_ptr<std::int64_t>();
  return static_cast<std::uint64_t>(half[0]) + (static_cast<std::uint64_t>(half[1]) << 32);
}

std::int64_t Trainer::exchanged_bytes() const {
  return options_.communicator && options_.communicator->allocates_shared() ? store_->bytes() : 0;
}

void Trainer::save(const std::string& folder) const {
  save_checkpoint(*this, {}, folder);
}

void Trainer::load(const std::string& folder) {
  load_checkpoint(*this, folder);
}

}  // namespace orthant
