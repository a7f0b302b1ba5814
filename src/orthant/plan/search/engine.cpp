#include "orthant/plan/search/engine.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "orthant/schedule/named_schedules.h"

namespace orthant {
namespace {

constexpr std::size_t kKept = 1000;  // of the best, for closer pricing
// How far closed forms of memory may be above estimates.
constexpr double kSlack = 0.01;
constexpr double kBranchingSlack = 0.2;  // where units are no chain

const std::string kHeads = "tp does not divide the heads";
const std::string kLayers = "fewer layers than stages";
const std::string kBatch = "dp x fsdp does not divide the batch";
const std::string kTable = "more microbatches than a schedule may have";
const std::string kState = "does not fit: parameters and optimizer";
const std::string kActivations(kDoesNotFit);

bool is_asked(const std::vector<int>& degrees, std::int64_t degree) {
  return degrees.empty() || std::ranges::find(degrees, degree) != degrees.end();
}

}  // namespace

SearchEngine::SearchEngine(const SearchRequest& request, std::shared_ptr<ModelBook> shared)
    : request_(request),
      stack_(find_stack("orthant")),
      prices_(request, std::move(shared)),
      data_(settings_of({.schedule = "1f1b"}, request), prices_.model().row_bytes(), request.hardware, stack_),
      card_bytes_(static_cast<double>(request.hardware.memory_bytes)),
      kept_bytes_(card_bytes_ * (1 + (prices_.model().is_chain() ? kSlack : kBranchingSlack))),
      tokens_(static_cast<double>(request.global_batch) * static_cast<double>(request.sequence) / request.cards),
      best_(request.strategy, kKept) {}

SearchFindings SearchEngine::run(const SearchScope& scope) {
  scope_ = scope;
  findings_ = {};
  best_ = BestCandidates(request_.strategy, kKept);
  sample_ = {};
  order_ = 0;
  for (const std::int64_t tp : divisors(request_.cards)) {
    if (is_asked(scope_.tp, tp)) run_degree(static_cast<int>(tp));
  }
  findings_.best = best_.sorted();
  findings_.points = sample_.points();
  return std::move(findings_);
}

void SearchEngine::run_degree(int tp) {
  const bool fits_heads = prices_.model().fits_tensor(tp);
  if (fits_heads) parameters_ = prices_.num_parameters(tp);
  for (const std::int64_t pp : divisors(request_.cards / tp)) {
    if (!is_asked(scope_.pp, pp)) continue;
    const auto replicas = static_cast<int>(request_.cards / tp / pp);
    const auto splits = std::ssize(divisors(replicas));
    if (!fits_heads) {
      reject(kHeads, splits);
    } else if (pp > prices_.model().most_stages()) {
      reject(kLayers, splits);
    } else if (request_.global_batch % replicas != 0) {
      reject(kBatch, splits);
    } else {
      findings_.meshes += splits;
      run_frame(frame_of(tp, static_cast<int>(pp)));
    }
  }
}

Span SearchEngine::span(const Mesh& mesh, Axis axis, int stride) {
  const auto [found, made] = spans_.try_emplace({mesh.degree(axis), stride});
  if (made) found->second = span_of(mesh, axis, request_.hardware.cards_per_node);
  return found->second;
}

SearchEngine::Frame SearchEngine::frame_of(int tp, int pp) {
  Frame frame{.tp = tp, .pp = pp, .replicas = request_.cards / tp / pp};
  for (const ScheduleChoice& choice : schedule_choices(pp, prices_.model().most_stages())) {
    frame.schedules.push_back({choice, schedule_placement(choice.name, pp, choice.virtual_stages)});
  }
  for (const DataChoice& choice : data_choices(frame.replicas)) {
    const Mesh mesh({{Axis::pp, pp}, {Axis::dp, choice.dp}, {Axis::fsdp, choice.fsdp}, {Axis::tp, tp}});
    frame.pp_span = span(mesh, Axis::pp, frame.replicas * tp);
    frame.tp_span = span(mesh, Axis::tp, 1);
    frame.data.push_back({choice, span(mesh, Axis::dp, choice.fsdp * tp), span(mesh, Axis::fsdp, tp), frame.pp_span});
    if (!choice.accumulate_sharded) ++frame.one_microbatch;
  }
  return frame;
}

void SearchEngine::run_frame(const Frame& frame) {
  const auto rows = request_.global_batch / frame.replicas;  // of a replica
  const bool fits = data_.least_state(parameters_ / frame.pp, frame.replicas) <= kept_bytes_;
  for (const TensorChoice& tensor : tensor_choices(frame.tp)) {
    bool open = fits;
    for (const std::int64_t micro_batch : divisors(rows)) {
      if (open) {
        open = run_micro_batch(frame, tensor, micro_batch);
      } else {
        reject(fits ? kActivations : kState,
               std::ssize(frame.schedules) * std::ssize(kSearchedRecomputes) * frame.num_data(rows / micro_batch));
      }
    }
  }
}

bool SearchEngine::run_micro_batch(const Frame& frame, const TensorChoice& tensor, std::int64_t micro_batch) {
  const PriceBook::Sized& units = prices_.sized(tensor, micro_batch);
  Place place{.frame = frame,
              .tensor = tensor,
              .micro_batch = micro_batch,
              .microbatches = request_.global_batch / frame.replicas / micro_batch};
  bool within = false;
  for (const AssignedSchedule& schedule : frame.schedules) {
    if (is_table_small(frame.pp, schedule.choice.virtual_stages, place.microbatches)) {
      within |= run_schedule(place, units, schedule);
    } else {
      reject(kTable, frame.num_data(place.microbatches) * std::ssize(kSearchedRecomputes));
      within = true;  // larger micro batches make fewer
    }
  }
  return within;
}

bool SearchEngine::run_schedule(Place& place, const PriceBook::Sized& units, const AssignedSchedule& schedule) {
  const Frame& frame = place.frame;
  place.schedule = schedule.choice;
  PipelineShape shape = prices_.shape(units, schedule.choice, schedule.pp_coordinates, frame.pp, place.microbatches);
  shape.tp = frame.tp_span;
  shape.pp = frame.pp_span;
  const auto& prices = units.of(schedule.choice, frame.pp, place.microbatches);
  bool within = false;
  for (std::size_t mode = 0; mode < kSearchedRecomputes.size(); ++mode) {
    auto pipeline = price_pipeline(shape, prices[mode], prices_.model(), request_.hardware);
    if (data_.least_memory(pipeline, frame.replicas) > kept_bytes_) {
      reject(kActivations, frame.num_data(place.microbatches));
      continue;
    }
    within = true;
    place.recompute = kSearchedRecomputes[mode];
    if (!prices_.model().is_chain() && frame.pp > 1) {  // branches run side by side, for which there is no closed form
      pipeline.step_seconds = prices_.simulated_seconds(point_of(place, {.dp = frame.replicas}));
    }
    for (const SpannedData& data : frame.data) {
      if (place.microbatches > 1 || !data.choice.accumulate_sharded) run_data(place, pipeline, data);
    }
  }
  return within;
}

void SearchEngine::run_data(const Place& place, const PipelinePrice& pipeline, const SpannedData& data) {
  ++findings_.evaluated;
  DataPrice price;
  data_.add_memory(price, pipeline, data.choice, place.microbatches, place.microbatches * place.micro_batch);
  data_.add_time(price, pipeline, data, place.microbatches, place.schedule);
  if (price.memory > card_bytes_) reject(price.state > card_bytes_ ? kState : kActivations);
  Candidate candidate{.step_seconds = pipeline.step_seconds + price.seconds,
                      .behind_seconds = price.seconds,
                      .microbatch_seconds = pipeline.microbatch_seconds,
                      .memory_bytes = price.memory,
                      .sent_bytes = pipeline.bytes + price.bytes,
                      .order = order_++};
  note(place, data, candidate);
}

PricedPoint SearchEngine::point_of(const Place& place, const DataChoice& data) const {
  return {.pp = place.frame.pp,
          .dp = data.dp,
          .fsdp = data.fsdp,
          .tp = place.frame.tp,
          .virtual_stages = place.schedule.virtual_stages,
          .zero = data.zero,
          .micro_batch = place.micro_batch,
          .schedule = place.schedule.name,
          .recompute = place.recompute,
          .sequence_parallel = place.tensor.sequence_parallel,
          .regather = place.tensor.regather,
          .accumulate_sharded = data.accumulate_sharded};
}

void SearchEngine::note(const Place& place, const SpannedData& data, Candidate& candidate) {
  const auto speed = static_cast<float>(tokens_ / candidate.step_seconds);
  const auto memory = static_cast<float>(candidate.memory_bytes);
  const bool fits = candidate.memory_bytes <= card_bytes_;
  const bool near = candidate.memory_bytes <= kept_bytes_;
  const bool sampled =
      scope_.sample && sample_.wants(candidate.order, {place.frame.tp, place.frame.pp, memory, speed, fits});
  const bool kept = near && best_.wants(candidate);
  const bool plain = near && place.frame.tp == 1 && place.frame.pp == 1 && data.choice.zero == 0;
  if (!sampled && !kept && !plain) return;
  candidate.point = point_of(place, data.choice);
  candidate.point.memory_bytes = memory;
  candidate.point.tokens_per_second_per_gpu = speed;
  candidate.point.fits = fits;
  if (sampled) sample_.add(candidate.order, candidate.point);
  if (kept) best_.add(candidate);
  auto& best_plain = findings_.plain;
  if (plain && (!best_plain || is_better(candidate, *best_plain, request_.strategy))) best_plain = candidate;
}

}  // namespace orthant
