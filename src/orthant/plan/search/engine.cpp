#include "orthant/plan/search/engine.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "orthant/layout/expert_view.h"
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
  for (const int cp : context_degrees(request_.cards, request_.sequence)) {
    if (is_asked(scope_.cp, cp)) run_degrees(cp);
  }
  findings_.best = best_.sorted();
  findings_.points = sample_.points();
  return std::move(findings_);
}

void SearchEngine::run_degrees(int cp) {
  for (const std::int64_t tp : divisors(request_.cards / cp)) {
    if (is_asked(scope_.tp, tp)) run_stages(static_cast<int>(tp), cp);
  }
}

void SearchEngine::run_stages(int tp, int cp) {
  const bool fits_heads = prices_.model().fits_tensor(tp);
  for (const std::int64_t pp : divisors(request_.cards / cp / tp)) {
    if (!is_asked(scope_.pp, pp)) continue;
    const auto replicas = static_cast<int>(request_.cards / cp / tp / pp);
    const auto splits = std::ssize(divisors(replicas));
    if (!fits_heads) {
      reject(kHeads, splits);
    } else if (pp > prices_.model().most_stages()) {
      reject(kLayers, splits);
    } else if (request_.global_batch % replicas != 0) {
      reject(kBatch, splits);
    } else {
      for (const ExpertChoice& experts : expert_choices(replicas * cp * tp, tp, prices_.model().num_experts())) {
        if (!is_asked(scope_.ep, experts.ep)) continue;
        findings_.meshes += splits;
        run_frame(frame_of(tp, static_cast<int>(pp), cp, experts));
      }
    }
  }
}

Span SearchEngine::span(const Mesh& mesh, AxisSet axes, int stride) {
  const auto [found, made] = spans_.try_emplace({mesh.group_size(axes), stride});
  if (made) found->second = span_of(mesh, axes, request_.hardware.cards_per_node);
  return found->second;
}

ParameterShares SearchEngine::shares_of(const Mesh& mesh, const DataChoice& choice) {
  const int cp = mesh.degree(Axis::cp);
  const int tp = mesh.degree(Axis::tp);
  const DataPolicy policy =
      effective_policy({.zero = choice.zero, .shard_over_context = choice.shard_over_context}, mesh);
  const AxisSet shards = shard_axes(policy, mesh);
  const AxisSet copies = copy_axes(policy, mesh);
  ParameterShares shares{.zero = policy.zero};
  if (policy.zero > 0) shares.shards = mesh.group_size(shards);
  // fsdp between ranks of cp and of dp is no run of neighbours.
  const bool split = copies.contains(Axis::cp) && copies.contains(Axis::dp) && mesh.degree(Axis::fsdp) > 1;
  const int between = mesh.degree(Axis::fsdp) * cp * tp;
  shares.copies = split ? span_of(mesh, copies, request_.hardware.cards_per_node)
                        : span(mesh, copies, copies.contains(Axis::cp) ? tp : between);
  shares.shard_ranks = span(mesh, shards, shards.contains(Axis::cp) ? tp : cp * tp);
  return shares;
}

SpannedData SearchEngine::spanned(const Frame& frame, const DataChoice& choice) {
  const Mesh mesh({{Axis::pp, frame.pp},
                   {Axis::dp, choice.dp},
                   {Axis::fsdp, choice.fsdp},
                   {Axis::cp, frame.cp},
                   {Axis::tp, frame.tp}});
  SpannedData data{.choice = choice, .dense = shares_of(mesh, choice)};
  data.experts = data.dense;
  data.pp = span(mesh, Axis::pp, request_.cards / frame.pp);
  if (frame.experts == ExpertChoice{}) return data;
  auto degrees = mesh.degrees();
  degrees[Axis::ep] = frame.experts.ep;
  const DataPolicy policy{.zero = choice.zero, .shard_over_context = choice.shard_over_context};
  const Mesh lies_on = parameter_mesh(Mesh(degrees), effective_policy(policy, mesh));
  data.experts = shares_of(expert_mesh(lies_on, *frame.experts.expert_tp ? frame.tp : 1), choice);
  return data;
}

SearchEngine::Frame SearchEngine::frame_of(int tp, int pp, int cp, const ExpertChoice& experts) {
  Frame frame{.tp = tp, .pp = pp, .cp = cp, .experts = experts, .replicas = request_.cards / cp / tp / pp};
  // Experts that are whole on each tp rank may have as many shards as the stage has ranks.
  const bool apart = !(experts == ExpertChoice{});
  if (frame.replicas > 1) frame.most_shards = frame.replicas * cp * (apart ? tp : 1);
  for (const ScheduleChoice& choice : schedule_choices(pp, prices_.model().most_stages())) {
    frame.schedules.push_back({choice, schedule_placement(choice.name, pp, choice.virtual_stages)});
  }
  for (const DataChoice& choice : data_choices(frame.replicas, cp)) {
    frame.data.push_back(spanned(frame, choice));
    if (!choice.accumulate_sharded) ++frame.one_microbatch;
  }
  const Mesh mesh({{Axis::pp, pp}, {Axis::dp, frame.replicas}, {Axis::cp, cp}, {Axis::tp, tp}});
  frame.pp_span = span(mesh, Axis::pp, request_.cards / pp);
  frame.tp_span = span(mesh, Axis::tp, 1);
  return frame;
}

void SearchEngine::run_frame(const Frame& frame) {
  for (const TensorChoice& tensor : tensor_choices(frame.tp)) {
    std::vector<UnitChoice> choices;
    for (const ContextChoice& context : context_choices(frame.cp)) {
      const UnitChoice choice{tensor, context, frame.experts};
      if (prices_.fits(choice)) choices.push_back(choice);
    }
    if (!choices.empty()) run_choices(frame, choices);
  }
}

void SearchEngine::run_choices(const Frame& frame, const std::vector<UnitChoice>& choices) {
  const auto rows = request_.global_batch / frame.replicas;  // of a replica
  const double parameters = prices_.num_parameters(choices.front());
  const bool fits = data_.least_state(parameters / frame.pp, frame.most_shards) <= kept_bytes_;
  const auto closed = [&](std::int64_t micro_batch) {
    reject(fits ? kActivations : kState,
           std::ssize(frame.schedules) * std::ssize(kSearchedRecomputes) * frame.num_data(rows / micro_batch));
  };
  std::vector<UnitChoice> open = fits ? choices : std::vector<UnitChoice>();
  for (const std::int64_t micro_batch : divisors(rows)) {
    for (std::size_t i = open.size(); i < choices.size(); ++i) closed(micro_batch);
    std::vector<UnitChoice> still_open;
    std::vector<UnitChoice> outdone;  // open as long as one that outdoes them
    for (const UnitChoice& choice : open) {
      if (open.size() > 1 && prices_.is_outdone(choice, open, micro_batch)) {
        outdone.push_back(choice);
      } else if (run_micro_batch(frame, choice, micro_batch)) {
        still_open.push_back(choice);
      }
    }
    if (!still_open.empty()) still_open.insert(still_open.end(), outdone.begin(), outdone.end());
    open = std::move(still_open);
  }
}

bool SearchEngine::run_micro_batch(const Frame& frame, const UnitChoice& choice, std::int64_t micro_batch) {
  const PriceBook::Sized& units = prices_.sized(choice, micro_batch);
  Place place{.frame = frame,
              .units = choice,
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
    if (data_.least_memory(pipeline, frame.most_shards) > kept_bytes_) {
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
  data_.add_memory(price, pipeline, data, place.microbatches, place.microbatches * place.micro_batch);
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
  const auto& [tensor, context, experts] = place.units;
  return {.pp = place.frame.pp,
          .dp = data.dp,
          .fsdp = data.fsdp,
          .cp = context.cp,
          .tp = tensor.tp,
          .ep = experts.ep,
          .virtual_stages = place.schedule.virtual_stages,
          .zero = data.zero,
          .micro_batch = place.micro_batch,
          .schedule = place.schedule.name,
          .recompute = place.recompute,
          .sequence_parallel = tensor.sequence_parallel,
          .regather = tensor.regather,
          .accumulate_sharded = data.accumulate_sharded,
          .way = context.way,
          .shard_over_context = data.shard_over_context,
          .expert_tp = experts.expert_tp};
}

void SearchEngine::note(const Place& place, const SpannedData& data, Candidate& candidate) {
  const auto speed = static_cast<float>(tokens_ / candidate.step_seconds);
  const auto memory = static_cast<float>(candidate.memory_bytes);
  const bool fits = candidate.memory_bytes <= card_bytes_;
  const bool near = candidate.memory_bytes <= kept_bytes_;
  const bool sampled =
      scope_.sample && sample_.wants(candidate.order, {place.frame.tp, place.frame.pp, memory, speed, fits});
  const bool kept = near && best_.wants(candidate);
  const bool plain = near && place.frame.is_plain() && data.choice.zero == 0;
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
