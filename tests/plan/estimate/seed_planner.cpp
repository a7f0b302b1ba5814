#include "plan/estimate/seed_planner.h"

#include <algorithm>

#include "orthant/plan/estimate/collective_time.h"

namespace orthant::seed001 {
namespace {

constexpr std::int64_t kSearchedBatch = 512;

PlanSettings settings_of(const Degrees& degrees, const Rows& rows, int zero = 0) {
  PlanSettings settings;
  settings.mesh =
      Mesh({{Axis::pp, degrees.pp}, {zero == 0 ? Axis::dp : Axis::fsdp, degrees.dp}, {Axis::tp, degrees.tp}});
  settings.micro_batch = rows.micro_batch;
  settings.global_batch = rows.micro_batch * rows.microbatches * degrees.dp;
  settings.sequence = kSequence;
  settings.data.zero = zero;
  return settings;
}

// What a rank sends for its part in a ring.
double sent_bytes(const PricedExchange& exchange, int ranks) {
  const double once = exchange.bytes * (ranks - 1) / ranks;
  return exchange.kind == ExchangeKind::all_reduce ? 2 * once : once;
}

}  // namespace

std::vector<PricedExchange> exchanges_of(const UnitWork& work) {
  std::vector<PricedExchange> exchanges = work.forward_exchanges;
  exchanges.insert(exchanges.end(), work.backward_exchanges.begin(), work.backward_exchanges.end());
  return exchanges;
}

Planner::Planner()
    : llama_(find_plan_model("llama3-70b")), card_(find_hardware("a100-80gb")), stack_(find_stack("megatron")) {
  stack_.scatters_messages = false;
}

std::vector<Plan> Planner::choose(const PlanModel& model, int cards, Strategy strategy) const {
  SearchRequest request;
  request.model = model;
  request.hardware = card_;
  request.cards = cards;
  request.global_batch = kSearchedBatch;
  request.sequence = kSequence;
  request.strategy = strategy;
  request.top = 1;
  return search(request).plans;
}

double Planner::state_bytes(int zero, int shards) const {
  const auto share = [&](int from, double bytes) { return zero >= from ? bytes / shards : bytes; };
  const auto gradient = static_cast<double>(bytes_of(DType::float32));
  return share(3, stack_.parameter_bytes) + share(2, gradient) + share(1, stack_.optimizer_bytes);
}

double Planner::states_gb(double parameters, const Degrees& degrees, int zero) const {
  return parameters / (degrees.tp * degrees.pp) * state_bytes(zero, degrees.dp) / kGigabyte;
}

UnitWork Planner::layer(const Degrees& degrees, const Rows& rows, bool sequence_parallel) const {
  PlanSettings settings = settings_of(degrees, rows);
  settings.tensor.sequence_parallel = sequence_parallel;
  const ModelWork work = formula_work(*llama_.shape, stack_, settings);
  return *std::ranges::find(work, UnitRole::layer, &UnitWork::role);
}

double Planner::local_parameters(const Degrees& degrees) const {
  return static_cast<double>(llama_.num_parameters()) / (degrees.tp * degrees.pp);
}

double Planner::activations_gb(const Degrees& degrees, const Rows& rows) const {
  const auto in_flight = static_cast<double>(std::min<std::int64_t>(rows.microbatches, degrees.pp));
  const double layers = static_cast<double>(llama_.shape->layers) / degrees.pp;
  return layer(degrees, rows, true).kept_bytes[0] * layers * in_flight / kGigabyte;
}

double Planner::worst_rank_gb(const Degrees& degrees, const Rows& rows, int zero) const {
  PlanSettings settings = settings_of(degrees, rows, zero);
  settings.tensor.sequence_parallel = true;
  settings.tensor.loss_parallel = true;
  return static_cast<double>(estimate(llama_, settings, card_, find_stack("orthant")).peak_bytes()) / kGigabyte;
}

Volume Planner::sent_gb(const Degrees& degrees, const Rows& rows, DType gradients, bool sequence_parallel) const {
  const UnitWork work = layer(degrees, rows, sequence_parallel);
  const auto microbatches = static_cast<double>(rows.microbatches);
  Volume sent;
  for (const PricedExchange& exchange : exchanges_of(work)) sent.tp += sent_bytes(exchange, degrees.tp);
  sent.tp *= microbatches * static_cast<double>(llama_.shape->layers) / degrees.pp / kGigabyte;
  sent.pp = 2 * microbatches * work.output_bytes / kGigabyte;
  const double bytes = local_parameters(degrees) * static_cast<double>(bytes_of(gradients));
  sent.dp = sent_bytes({ExchangeKind::all_reduce, Axis::dp, bytes}, degrees.dp) / kGigabyte;
  return sent;
}

Volume Planner::exchange_seconds(const Degrees& degrees, const Rows& rows) const {
  const UnitWork work = layer(degrees, rows);
  const Mesh mesh = settings_of(degrees, rows).mesh;
  const auto span = [&](Axis axis) { return span_of(mesh, axis, card_.cards_per_node); };
  const auto microbatches = static_cast<double>(rows.microbatches);
  Volume seconds;
  for (const PricedExchange& exchange : exchanges_of(work)) {
    seconds.tp += orthant::exchange_seconds(exchange.kind, exchange.bytes, span(Axis::tp), card_);
  }
  seconds.tp *= microbatches * static_cast<double>(llama_.shape->layers) / degrees.pp;
  seconds.pp = 2 * microbatches * message_seconds(work.output_bytes, span(Axis::pp), card_);
  const double bytes = local_parameters(degrees) * static_cast<double>(bytes_of(DType::float32));
  seconds.dp = orthant::exchange_seconds(ExchangeKind::all_reduce, bytes, span(Axis::dp), card_);
  return seconds;
}

double Planner::scaling_efficiency(const Degrees& degrees, int microbatches) const {
  const PlanSettings many = settings_of(degrees, {.microbatches = microbatches});
  const PlanSettings one = settings_of({}, {.microbatches = many.global_batch});
  const auto seconds = [&](const PlanSettings& settings) {
    return estimate(llama_, settings, card_, stack_).time.step;
  };
  return seconds(one) / (many.mesh.world_size() * seconds(many));
}

InferenceSize Planner::serve(const PlanModel& model, std::int64_t batch, std::int64_t context) const {
  InferenceRequest request;
  request.model = model;
  request.hardware = card_;
  request.mesh = Mesh::parse("pp=2,tp=4");
  request.batch = batch;
  request.context = context;
  return size_inference(request);
}

}  // namespace orthant::seed001
