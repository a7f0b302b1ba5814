#include "orthant/train/trainer.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "orthant/base/error.h"
#include "orthant/checkpoint/checkpoint.h"
#include "orthant/data/trim_padding.h"
#include "orthant/graph/backward.h"
#include "orthant/launch/activity_board.h"
#include "orthant/layout/pieces.h"
#include "orthant/layout/rows.h"
#include "orthant/parallel/context/group_context.h"
#include "orthant/parallel/expert/group_experts.h"
#include "orthant/parallel/tensor/group_axis.h"
#include "orthant/runtime/module_graph.h"
#include "orthant/train/device_setup.h"
#include "orthant/train/expert_balance.h"
#include "orthant/train/measured_plans.h"
#include "orthant/train/memory_use.h"
#include "orthant/train/replica_watch.h"
#include "orthant/train/step_recorder.h"
#include "orthant/train/step_watch.h"
#include "orthant/train/unpadded_rows.h"
#include "orthant/train/weights_hash.h"

namespace orthant {

// The store does what the executor's list says. The first gradient is written after a look at those of the last step.
class Trainer::StoreKeeper : public ParameterKeeper {
 public:
  StoreKeeper(ParameterStore& store, StepWatch& watch, at::Device device)
      : store_(store), watch_(watch), device_(device) {}
  void gather(int unit) override { store_.gather(unit); }
  void free(int unit) override { store_.free(unit); }
  void need_values(int unit) override { store_.need_values(unit); }
  void need_gradients(int unit) override {
    watch_.before_gradients();
    store_.need_gradients(unit);
  }
  void reduce(int unit, int microbatch) override { store_.reduce(unit, microbatch); }
  void failed() noexcept override { bytes_at_failure_ = live_memory_bytes(device_); }
  std::int64_t bytes_at_failure() const { return bytes_at_failure_; }

 private:
  ParameterStore& store_;
  StepWatch& watch_;
  at::Device device_;
  std::int64_t bytes_at_failure_ = 0;
};

Trainer::~Trainer() = default;

Trainer::Trainer(GraphSpec graph, const MakeUnits& make_units, const Mesh& mesh, TrainerOptions options)
    : graph_(trainer_graph(std::move(graph), mesh, options)), mesh_(mesh), options_(std::move(options)) {
  graph_.check();
  mark_gradients(graph_);
  if (graph_.losses().empty()) {
    throw ConfigError(fmt::format("graph \"{}\": none of its {} units is a loss", graph_.name, graph_.units.size()),
                      {.remedy = "mark the unit that computes the loss with is_loss"});
  }
  for (const UnitSpec& unit : graph_.units) {
    if (!unit.auxiliary_loss.empty()) auxiliary_losses_.insert(unit.auxiliary_loss);
  }
  if (options_.trains) check_trains(graph_);
  recorder_ = options_.communicator ? options_.communicator->recorder() : std::make_shared<trace::Recorder>(0, 1);
  pipeline_ = trainer_pipeline(graph_, mesh_, options_);
  if (options_.trains) actions_ = step_actions(pipeline_, graph_, mesh_, options_);
  evaluation_actions_ = evaluation_actions(pipeline_, graph_, mesh_, options_);
  prepare_device(options_, graph_);
  choose_padding();
  if (options_.product_plans == ProductChoice::measured)
    products_ = std::make_unique<MeasuredPlans>(graph_, options_, mesh_);
  make_store();
  if (mesh_.degree(Axis::tp) > 1) {
    tensor_ =
        std::make_unique<GroupAxis>(options_.communicator->group(Axis::tp, comm::Purpose::activations), *graph_.tensor);
  }
  if (mesh_.degree(Axis::cp) > 1) {
    context_ = std::make_unique<GroupContext>(options_.communicator->group(Axis::cp, comm::Purpose::activations),
                                              graph_.context);
  }
  if (mesh_.degree(Axis::ep) > 1) {
    experts_ = std::make_unique<GroupExperts>(options_.communicator->subgroup(kTokenGroup));
  }
  if (mesh_.degree(Axis::pp) > 1) {
    const LinkGroups groups{options_.communicator->group(Axis::pp, comm::Purpose::activations),
                            options_.communicator->group(Axis::pp, comm::Purpose::gradients)};
    links_ = std::make_unique<StageLinks>(graph_, groups, pipeline_.map, message_channels(pipeline_, graph_),
                                          options_.device);
  }
  units_ = make_units(*store_, tables_);
  for (const auto& unit : graph_.units) module_units_.push_back(unit.runs_module());
  store_->initialise(options_.seed, options_.drawn);
  options_.drawn = {};  // what it refers to may end with this constructor
  executor_ = std::make_unique<Executor>(
      graph_, units_, options_.recompute,
      Peers{.tensor = tensor_.get(), .context = context_.get(), .experts = experts_.get(), .links = links_.get()},
      options_.remade);
  executor_->set_unit_stages(pipeline_.unit_stages());
  auto poison = locate_poison(options_.poison, graph_, store_->mesh(), pipeline_.unit_pp_coordinates(),
                              store_->policy(), options_.microbatches);
  std::vector<bool> runs_here;
  for (const auto& unit : units_) runs_here.push_back(unit != nullptr);
  watch_ = std::make_unique<StepWatch>(graph_, *store_, options_, runs_here, Poisoner(std::move(poison), rank()));
  watch_->trust_updates(optimizer_->parameters_verdict());
  keeper_ = std::make_unique<StoreKeeper>(*store_, *watch_, options_.device);
  executor_->observe(watch_.get());
  if (options_.trains && options_.verify_replicas > 0 && mesh_.world_size() > 1) {
    replicas_ = std::make_unique<ReplicaWatch>(*store_, control_group(options_), options_.verify_replicas);
  }
  make_recorder();
  const auto scale = options_.loss_scale.value_or(default_loss_scale(options_.precision));
  loss_scale_ = std::make_unique<LossScale>(scale, options_.device);
}

void Trainer::choose_padding() {
  if (!options_.unpadded || !options_.trains) return;
  const auto why = padding_obstacle(graph_, options_.precision, options_.device);
  unpadded_ = why.empty();
  if (!unpadded_ && options_.say && rank() == 0) {
    options_.say(fmt::format("rows keep their padding, as with data.padding longest: {}", why));
  }
}

// Of what a device needs between steps.
void Trainer::make_recorder() {
  if (options_.trains && !options_.device.is_cpu()) {
    streams_ = std::make_unique<nn::DeviceStreams>(options_.seed, options_.device);
  }
  const bool host_waits = watch_->waits_for_numbers() || !optimizer_->updates_by_kernels();
  std::function<void(const std::string&)> failed;
  if (options_.record_steps == RecordSteps::automatic) {
    failed = [this](const std::string& why) {
      unfinished_ = false;  // nothing of it ran
      if (options_.say) options_.say(fmt::format("no CUDA graph of the step: {}", why));
    };
  }
  recorded_ = std::make_unique<RecordedSteps>(options_.device, step_recorder(options_, graph_, mesh_, host_waits),
                                              std::move(failed));
  lanes_ = step_lanes(options_, graph_, mesh_, host_waits);
  if (lanes_) device_bytes_ = device_memory_bytes(options_.device);
}

// The buffers of this rank's units, and the optimizer's state for them.
void Trainer::make_store() {
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
  StoreOptions store{
      .policy = options_.policy,
      .unit_groups = unit_groups(graph_, options_.units, pipeline_.unit_stages()),
      .unit_pp_coordinates = mesh_.degree(Axis::pp) > 1 ? pipeline_.unit_pp_coordinates() : std::vector<int>(),
      .hook = options_.hook,
      .communicator = options_.communicator.get(),
      .make_host = on_host};
  store_ = std::make_unique<ParameterStore>(graph_, mesh_, rank(), options_.precision, exchanged, std::move(store));
  const bool offloads = options_.policy.offload != Offload::none;
  const auto optimizer_memory = offloads ? MakeBuffer(on_host) : MakeBuffer(on_device);
  optimizer_ = std::make_unique<Optimizer>(*store_, options_.optimizer, optimizer_memory);
}

Trainer::Trainer(const Graph& graph, const Mesh& mesh, TrainerOptions options)
    : Trainer(
          graph.spec(),
          [&, this](ParameterStore& store, Tables& tables) {
            if (options_.communicator) graph.take_first_rank(*options_.communicator);
            return graph.make_units(store, tables);
          },
          mesh, std::move(options)) {}

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

std::int64_t Trainer::length_step(const Fields& fields) const {
  const auto least = least_sequence(graph_.context);
  if (!options_.device.is_cuda()) return least;
  std::int64_t longest = 0;
  for (const auto& [name, field] : fields) longest = std::max(longest, field.dim() > 1 ? field.size(1) : 0);
  return step_of_few_lengths(longest, least);
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
  if (unpadded_) return unpadded_microbatches(batch, count, /*few_totals=*/!options_.device.is_cpu());
  std::vector<Microbatch> parts(static_cast<std::size_t>(count));
  for (int m = 0; m < count; ++m) {
    auto& part = parts[static_cast<std::size_t>(m)];
    part.first_row = batch.first_row + m * size;
    for (const auto& [name, field] : batch.fields) part.fields[name] = field.narrow(0, m * size, size);
    if (!options_.pad_to_longest) continue;
    trim_padding(part.fields, length_step(part.fields));
    for (auto& [name, field] : part.fields) field = field.contiguous();
  }
  return parts;
}

// What an error left half done cannot be made good: gathered values and collected gradients are of no known state.
void Trainer::check_finished() const {
  if (!unfinished_) return;
  throw ConfigError("an earlier step or evaluation of this trainer ended with an error",
                    {.remedy = "connect the ranks anew, make a new trainer and load the last checkpoint"});
}

void Trainer::begin_list() {
  check_finished();
  unfinished_ = true;
}

StepInputs Trainer::step_inputs(const Batch& batch, const RankReport& report) const {
  if (!options_.trains) {
    throw ConfigError("a step of a trainer that was made to evaluate alone",
                      {.remedy = "make it with TrainerOptions::trains"});
  }
  StepInputs inputs{.microbatches = microbatches(batch), .loss_factors = {}, .told = {}};
  if (batch.weight_sum <= 0) throw DataError("a batch without a single target: the loss has nothing to be divided by");
  std::vector<double> factors;
  for (const auto& loss : graph_.losses()) {
    const auto found = options_.loss_coefficients.find(loss);
    factors.push_back((found == options_.loss_coefficients.end() ? 1.0 : found->second) / batch.weight_sum);
  }
  inputs.loss_factors = at::tensor(factors, at::kDouble);
  inputs.told = at::zeros({3 + 2 * mesh_.world_size()}, at::kDouble);
  auto* told = inputs.told.mutable_data_ptr<double>();
  told[0] = report.stop ? 1.0 : 0.0;
  told[1] = report.saving ? 1.0 : 0.0;
  told[2] = report.save_due ? 1.0 : 0.0;
  told[3 + rank()] = static_cast<double>(report.peak_memory_bytes);
  told[3 + mesh_.world_size() + rank()] = report.busy_seconds;
  return inputs;
}

void Trainer::begin_step() {
  check_finished();
  if (!options_.poison.empty()) await_readers();  // a fault may damage a parameter
  watch_->begin(steps_done_ + 1);
  if (streams_) streams_->begin_step(steps_done_ + 1);
}

at::Tensor Trainer::run(const StepInputs& inputs, bool lanes) {
  StepFacts facts{.seed = options_.seed,
                  .step = steps_done_ + 1,
                  .loss_scale = loss_scale_->value(),
                  .repeatable = repeats_to_the_bit(options_),
                  .products = products_ ? products_->for_step(steps_done_) : nullptr,
                  .streams = streams_.get(),
                  .lanes = lanes ? lanes_.get() : nullptr,
                  .activity = &launch::Activity::of_process(),
                  .recorder = recorder_.get(),
                  .wait_for_device = times_actions_ && !options_.device.is_cpu()};
  const auto names = graph_.losses();
  for (std::size_t i = 0; i < names.size(); ++i) {
    facts.loss_factors[names[i]] = inputs.loss_factors.select(0, static_cast<std::int64_t>(i));
  }
  begin_list();
  watch_->begin_on_device();
  store_->begin_step(module_units_);
  const auto losses = executor_->train(actions_, inputs.microbatches, facts, keeper_.get());
  const auto unused = [&] {
    const trace::Span span(recorder_.get(), trace::phase(recorder_.get(), "gradients"));
    return store_->finish_gradients();
  }();
  if (!unused.empty() && !options_.allow_unused_parameters) {
    throw ConfigError(
        fmt::format("parameter {} got no gradient in step {} ({} such parameters)", unused.front(), facts.step,
                    unused.size()),
        {.remedy = "freeze it (model.freeze), or set train.allow_unused_parameters=true", .rank = rank()});
  }
  const auto numbers = [&] {
    const trace::Span span(recorder_.get(), trace::phase(recorder_.get(), "norm"));
    return summed(losses, facts, inputs);
  }();
  watch_->summed();
  unfinished_ = false;
  return numbers;
}

// The step while it is recorded. Between steps that are recorded or played nothing is under way.
at::Tensor Trainer::record(const StepInputs& inputs) {
  if (mesh_.world_size() == 1) return run_and_update(inputs, /*lanes=*/true);
  if (cuts_at_exchanges(mesh_)) return record_pieces(inputs);
  options_.communicator->begin_recording();
  try {
    const auto numbers = run_and_update(inputs);
    store_->settle_values();
    recorded_calls_ = options_.communicator->end_recording();
    return numbers;
  } catch (...) {
    options_.communicator->end_recording(/*whole=*/false);
    throw;
  }
}

at::Tensor Trainer::record_pieces(const StepInputs& inputs) {
  const auto& communicator = *options_.communicator;
  communicator.begin_cutting([this](std::function<void()> between) { recorded_->cut(std::move(between)); });
  try {
    const auto numbers = run_and_update(inputs);
    store_->settle_values();
    communicator.end_cutting();
    return numbers;
  } catch (...) {
    communicator.end_cutting();
    throw;
  }
}

bool Trainer::may_use_lanes(const StepInputs& inputs) const {
  return lanes_ && most_tokens(inputs) >= options_.lanes_from_tokens &&
         lanes_fit(reserved_memory_bytes(options_.device), device_bytes_);
}

std::function<void(bool)> Trainer::counting_of_plays() {
  if (mesh_.world_size() == 1 || cuts_at_exchanges(mesh_)) return {};  // calls between pieces count themselves
  return [this, calls = std::exchange(recorded_calls_, nullptr)](bool again) {
    options_.communicator->played(*calls, again);
  };
}

at::Tensor Trainer::run_and_update(const StepInputs& inputs, bool lanes) {
  auto numbers = run(inputs, lanes);
  if (compares_replicas()) numbers = with_equal_replicas(inputs, numbers);
  await_readers();
  const trace::Span span(recorder_.get(), trace::phase(recorder_.get(), "update"));
  const auto finite = numbers.narrow(0, 0, 2).isfinite().all();
  optimizer_->update(numbers[1], finite, loss_scale_->value());
  loss_scale_->update(finite);
  const auto loads = own_expert_loads().numel();
  if (loads > 0) move_router_biases(*store_, numbers.narrow(0, numbers.numel() - loads, loads), finite);
  watch_->end_on_device(numbers);
  return numbers;
}

// One sum over all ranks, with slots of experts at its end: a slot per loss, which tp ranks have alike and the first of
// them tells, requests to stop, saves under way and saves that are due, every rank's memory, and a slot per unit for
// the squared norm. What has a slot of its own is added in one order. What is not finite on a rank reaches all, also
// where another rank tells: 0 times it is NaN.
at::Tensor Trainer::summed(const std::map<std::string, at::Tensor>& losses, const StepFacts& facts,
                           const StepInputs& inputs) {
  const bool tells = mesh_.coordinate(rank())[Axis::tp] == 0;
  const auto names = graph_.losses();
  auto loss = at::zeros({static_cast<std::int64_t>(names.size())},
                        at::TensorOptions().dtype(at::kDouble).device(options_.device));
  for (std::size_t i = 0; i < names.size(); ++i) {
    const auto found = losses.find(names[i]);
    if (found == losses.end()) continue;
    auto slot = loss.select(0, static_cast<std::int64_t>(i));
    slot.copy_(tells ? found->second * facts.loss_factors.at(names[i]) : found->second * 0.0);
  }
  loss.narrow(0, 0, 1).add_(watch_->parameters_verdict());
  auto norms = optimizer_->squared_norms().to(options_.device);
  norms.narrow(0, 0, 1).add_(watch_->gradients_verdict());
  const auto own_loads = own_expert_loads();
  auto all = at::cat({loss, inputs.told, norms, own_loads});
  facts.activity->say({launch::ActivityMoment::Kind::step, facts.step}, "sum of loss and norm over all ranks");
  if (options_.communicator) options_.communicator->world().all_reduce(all).wait();
  const auto told_size = inputs.told.numel();
  auto norm = all.narrow(0, loss.numel() + told_size, norms.numel()).sum().sqrt().reshape({1});
  if (loss_scale_->value().defined()) norm = norm / loss_scale_->value();
  const auto whole = all.narrow(0, 0, loss.numel()).sum().reshape({1});
  auto auxiliary = at::zeros_like(whole);
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (auxiliary_losses_.contains(names[i])) auxiliary.add_(all[static_cast<std::int64_t>(i)]);
  }
  const auto loads = all.narrow(0, loss.numel() + told_size + norms.numel(), own_loads.numel());
  return at::cat(
      {whole, norm, loss_scale_->may_mend(whole, norm), all.narrow(0, loss.numel(), told_size), auxiliary, loads});
}

// Layer after layer, behind each one's loads what it dropped; zeros of those that other ranks run.
at::Tensor Trainer::own_expert_loads() const {
  std::vector<at::Tensor> loads = {at::zeros({0}, at::TensorOptions().dtype(at::kDouble).device(options_.device))};
  for (std::size_t u = 0; u < graph_.units.size(); ++u) {
    const auto experts = graph_.units[u].num_experts();
    if (experts == 0) continue;
    const at::Tensor& own = executor_->expert_loads()[u];
    loads.push_back(own.defined() ? own.to(at::kDouble) : at::zeros({experts + 1}, loads.front().options()));
  }
  return at::cat(loads);
}

void Trainer::await_readers() {
  if (!readers_.valid()) return;
  const trace::Span span(recorder_.get(), trace::phase(recorder_.get(), "copy for a checkpoint"));
  const auto began = std::chrono::steady_clock::now();
  launch::Activity::of_process().say({launch::ActivityMoment::Kind::step, steps_done_ + 1}, "copy for a checkpoint");
  readers_.wait();
  readers_ = {};
  seconds_held_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
}

PendingStep Trainer::step(const Batch& batch, const RankReport& report) {
  recorder_->begin_step(steps_done_ + 1);
  const trace::Span span(recorder_.get(), trace::phase(recorder_.get(), "work"));
  const StepInputs inputs = step_inputs(batch, report);
  const bool may_record = !times_actions_ && !watch_->disturbs(steps_done_ + 1) && !compares_replicas();
  begin_step();
  optimizer_->set_lr(lr());
  launch::Activity::of_process().say({launch::ActivityMoment::Kind::step, steps_done_ + 1}, "its recorded work");
  const RecordedSteps::Work work{
      .make =
          [this](const StepInputs& held, StepStart start) {
            if (start == StepStart::recorded) return record(held);
            return run_and_update(held, /*lanes=*/start == StepStart::later && may_use_lanes(held));
          },
      .before_play =
          [this] {
            await_readers();
            store_->settle_values();
            if (links_) links_->finish();  // an evaluation's messages may be under way
          },
      .recorded = [this] { return counting_of_plays(); },
      .agree = mesh_.world_size() == 1 ? std::function<bool(bool)>() : [this](bool here) {
        if (!here) recorded_calls_ = nullptr;  // what holds calls keeps their groups from being closed
        return !control_group(options_).any(!here);
      }};
  const auto numbers = recorded_->run(inputs, work, may_record);
  ++steps_done_;
  const PendingStep pending(numbers, mesh_.world_size(), [peers = options_.communicator] {
    if (peers) peers->throw_if_failed();
  });
  watch_->end(pending);
  if (products_) products_->end_step();
  if (!has_stepped_) control_group(options_).enter(JobPhase::step);
  has_stepped_ = true;
  if (after_step_) after_step_(steps_done_);
  return pending;
}

BadStep Trainer::explain_bad_step() {
  return watch_->explain();
}

PendingStep Trainer::gradients(const Batch& batch) {
  const StepInputs inputs = step_inputs(batch, {});
  InputMemory memory(inputs, options_.device);
  memory.fill(inputs);
  begin_step();
  const auto numbers = run(memory.held());
  if (const auto& scale = loss_scale_->value(); scale.defined()) {
    for (const auto& buffer : store_->buffers()) {
      if (buffer->trainable()) buffer->owned_gradient().div_(scale);
    }
  }
  return {numbers, mesh_.world_size()};
}

std::map<std::string, at::Tensor> Trainer::evaluate(const Fields& fields, const std::vector<std::string>& wanted) {
  for (const auto& name : wanted) {
    if (std::ranges::find(graph_.values, name, &ValueSpec::name) != graph_.values.end()) continue;
    throw ConfigError(fmt::format("an evaluation asks for {}, which no unit of graph \"{}\" writes", name, graph_.name),
                      {.remedy = "ask for a value of the graph; logits exist with train.join_head_and_loss=off"});
  }
  Fields trimmed = fields;
  if (options_.pad_to_longest) trim_padding(trimmed, length_step(trimmed));
  Microbatch rows;
  for (const auto& [name, field] : trimmed) {
    rows.fields[name] = to_device(field.contiguous(), options_.device);
  }
  begin_list();
  const StepFacts facts{.seed = options_.seed,
                        .step = steps_done_,
                        .products = products_ ? products_->for_evaluation(steps_done_) : nullptr,
                        .activity = &launch::Activity::of_process(),
                        .recorder = recorder_.get()};
  auto values = executor_->evaluate(evaluation_actions_, rows, facts, wanted, keeper_.get());
  unfinished_ = false;
  return values;
}

std::uint64_t Trainer::weights_hash() const {
  std::uint64_t sum = 0;
  for (std::size_t b = 0; b < store_->buffers().size(); ++b) {
    if (!store_->answers(b)) continue;
    const auto& buffer = store_->buffers()[b];
    for (const auto& piece : pieces_to_write(buffer->layout(), store_->mesh(), rank())) {
      const auto held = buffer->master().narrow(piece.local_offset - buffer->owned().begin, piece.elements());
      const TensorBox box{graph_.parameter(piece.tensor).shape, piece.offsets, piece.lengths};
      held.in_pieces([&](std::int64_t first, const MasterValues& part) {
        sum += partial_weights_hash(piece.tensor, part.values(), box, piece.span().begin + first);
      });
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

std::int64_t Trainer::bytes_at_failure() const {
  return keeper_->bytes_at_failure();
}

std::int64_t Trainer::exchanged_bytes() const {
  return options_.communicator && options_.communicator->allocates_shared() ? store_->bytes() : 0;
}

CheckpointedTensors Trainer::checkpointed() const {
  CheckpointedTensors tensors{.graph = &graph_,
                              .mesh = mesh_,
                              .unit_pp_coordinates = pipeline_.unit_pp_coordinates(),
                              .ranks = control_group(options_),
                              .dtype = options_.precision.params,
                              .parameters = store_.get()};
  const auto& names = optimizer_->state_names();
  for (std::size_t s = 0; s < names.size(); ++s) {
    auto& state = tensors.states.emplace_back(CheckpointedTensors::OptimizerState{names[s], {}});
    for (std::size_t b = 0; b < store_->buffers().size(); ++b) state.buffers.push_back(optimizer_->state(s, b));
  }
  return tensors;
}

TrainingProgress Trainer::progress() const {
  TrainingProgress progress{.step = steps_done_, .updates = optimizer_->num_updates()};
  if (loss_scale_->dynamic()) {
    const auto scale = loss_scale_->state();
    progress.loss_scale = scale.value;
    progress.good_steps = scale.good_steps;
  }
  return progress;
}

void Trainer::set_progress(const TrainingProgress& progress) {
  optimizer_->set_num_updates(progress.updates);
  if (progress.loss_scale > 0) loss_scale_->set_state({progress.loss_scale, progress.good_steps});
  set_steps_done(progress.step);
}

void Trainer::set_steps_done(std::int64_t steps) {
  steps_done_ = steps;
  recorded_->forget();  // measured plans depend on it
}

void Trainer::save(const std::string& folder) const {
  save_checkpoint(*this, {}, folder);
}

void Trainer::load(const std::string& folder) {
  load_checkpoint(*this, folder);
}

}  // namespace orthant
