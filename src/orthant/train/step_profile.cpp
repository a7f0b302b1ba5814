#include "orthant/train/step_profile.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <optional>
#include <tuple>

#include "orthant/base/error.h"
#include "orthant/base/index.h"
#include "orthant/base/quantile.h"
#include "orthant/schedule/grid.h"
#include "orthant/schedule/stage_edges.h"

namespace orthant {
namespace {

// An action of a unit as it travels to the other ranks: seconds count from the rank's first action of the step.
struct UnitTime {
  int step = 0;
  int unit = 0;
  StageKind kind = StageKind::F;
  int microbatch = 0;
  double begin = 0;
  double end = 0;
};
constexpr std::int64_t kNumbers = 6;

std::optional<StageKind> stage_kind(ActionKind kind) {
  switch (kind) {
    case ActionKind::forward:
      return StageKind::F;
    case ActionKind::backward:
      return StageKind::BW;
    case ActionKind::backward_input:
      return StageKind::B;
    case ActionKind::backward_weight:
      return StageKind::W;
    default:
      return std::nullopt;
  }
}

at::Tensor encoded(const std::vector<UnitTime>& times) {
  std::vector<double> numbers;
  for (const auto& time : times) {
    const std::array<double, kNumbers> one = {static_cast<double>(time.step),
                                              static_cast<double>(time.unit),
                                              static_cast<double>(time.kind),
                                              static_cast<double>(time.microbatch),
                                              time.begin,
                                              time.end};
    numbers.insert(numbers.end(), one.begin(), one.end());
  }
  return at::tensor(numbers, at::kDouble);
}

std::vector<UnitTime> decoded(const at::Tensor& numbers) {
  std::vector<UnitTime> times;
  const auto* next = numbers.const_data_ptr<double>();
  for (std::int64_t i = 0; i < numbers.numel(); i += kNumbers, next += kNumbers) {
    times.push_back({static_cast<int>(next[0]), static_cast<int>(next[1]), static_cast<StageKind>(next[2]),
                     static_cast<int>(next[3]), next[4], next[5]});
  }
  return times;
}

// Of what may never have run.
double median(const std::vector<double>& samples) {
  return samples.empty() ? 0 : quantile(samples, 0.5);
}

// The times of all ranks of the first replica by stage.
class StageTimes {
 public:
  StageTimes(const Pipeline& pipeline, const GraphSpec& graph) : pipeline_(pipeline), graph_(graph) {
    stage_of_.resize(graph.units.size());
    for (int s = 0; s < pipeline.map.num_stages(); ++s) {
      for (const int unit : pipeline.map.units[to_index(s)]) stage_of_[to_index(unit)] = s;
    }
  }

  void add(const UnitTime& time) {
    auto& run = runs_[{time.step, stage_of_[to_index(time.unit)], time.kind, time.microbatch}];
    if (run.seconds == 0) run.begin = time.begin;
    run.seconds += time.end - time.begin;
    run.end = std::max(run.end, time.end);
    units_[{time.unit, time.kind}].push_back(time.end - time.begin);
  }

  StageCosts costs() const {
    std::map<std::pair<int, StageKind>, std::vector<double>> samples;
    for (const auto& [key, run] : runs_) samples[{std::get<1>(key), std::get<2>(key)}].push_back(run.seconds);
    StageCosts costs;
    for (int s = 0; s < pipeline_.map.num_stages(); ++s) {
      costs.push_back({.forward = median(samples[{s, StageKind::F}]),
                       .inputs = median(samples[{s, StageKind::B}]) + median(samples[{s, StageKind::BW}]),
                       .weights = median(samples[{s, StageKind::W}]),
                       .send = 0});
    }
    return costs;
  }

  std::map<std::string, double> unit_seconds() const {
    std::map<std::string, double> seconds;
    for (const auto& [key, samples] : units_) seconds[graph_.units[to_index(key.first)].name] += median(samples);
    return seconds;
  }

  std::vector<double> busy() const {
    std::map<std::pair<int, int>, double> seconds;  // pp coordinate, step
    for (const auto& [key, run] : runs_) {
      const auto& [step, stage, kind, microbatch] = key;
      seconds[{pipeline_.map.pp_coordinates[to_index(stage)], step}] += run.seconds;
    }
    std::vector<std::vector<double>> samples(to_index(pipeline_.pp_degree()));
    for (const auto& [place, of_step] : seconds) samples[to_index(place.first)].push_back(of_step);
    std::vector<double> busy;
    for (const auto& of_steps : samples) busy.push_back(median(of_steps));
    return busy;
  }

  Simulation picture(int step) const {
    Simulation simulation;
    simulation.actions.resize(to_index(pipeline_.pp_degree()));
    for (const auto& [key, run] : runs_) {
      const auto& [of_step, stage, kind, microbatch] = key;
      if (of_step != step) continue;
      simulation.actions[to_index(pipeline_.map.pp_coordinates[to_index(stage)])].push_back(
          {{stage, kind, microbatch}, run.begin, run.end});
      simulation.makespan = std::max(simulation.makespan, run.end);
    }
    double all_busy = 0;
    for (auto& actions : simulation.actions) {
      std::ranges::sort(actions, {}, &TimedAction::start);
      double busy = 0;
      for (const auto& action : actions) busy += action.end - action.start;
      simulation.busy.push_back(busy);
      simulation.bubble_fractions.push_back(1 - busy / simulation.makespan);
      all_busy += busy;
    }
    simulation.bubble_fraction = 1 - all_busy / (simulation.makespan * pipeline_.pp_degree());
    simulation.peak_in_flight = peak_in_flight(pipeline_.table);
    return simulation;
  }

 private:
  struct Run {
    double seconds = 0;
    double begin = 0;
    double end = 0;
  };

  const Pipeline& pipeline_;
  const GraphSpec& graph_;
  std::vector<int> stage_of_;
  std::map<std::tuple<int, int, StageKind, int>, Run> runs_;  // step, stage, kind, microbatch
  std::map<std::pair<int, StageKind>, std::vector<double>> units_;
};

// The actions of each step, those of evaluations between steps left out.
std::vector<std::vector<trace::NamedEvent>> step_lists(const std::vector<trace::NamedEvent>& events) {
  std::vector<std::vector<trace::NamedEvent>> lists;
  std::int64_t work_ends = 0;
  for (const auto& event : events) {
    if (event.kind == trace::EventKind::phase && event.text == "work") {
      work_ends = event.end_ns;
      lists.emplace_back();
    }
    if (event.kind == trace::EventKind::action && event.begin_ns < work_ends) lists.back().push_back(event);
  }
  std::erase_if(lists, [](const auto& list) { return list.empty(); });
  return lists;
}

bool is_first_replica(const Mesh& mesh, int rank) {
  auto coordinate = mesh.coordinate(rank);
  coordinate[Axis::pp] = 0;
  return mesh.rank_of(coordinate) == 0;
}

}  // namespace

StepProfiler::StepProfiler(Trainer& trainer, trace::Capture::Of depth)
    : trainer_(trainer), capture_(trainer.recorder(), depth) {
  trainer_.time_actions(true);
}

StepProfiler::~StepProfiler() {
  trainer_.time_actions(false);
}

StepProfile StepProfiler::result(const ControlGroup& ranks) const {
  const auto lists = step_lists(capture_.events());
  const auto steps = lists.size();
  if (steps == 0) throw InternalError("a profile of no steps");
  std::vector<UnitTime> own;
  std::vector<double> seconds;
  const bool counts = is_first_replica(trainer_.mesh(), trainer_.rank());
  for (std::size_t s = 0; s < steps; ++s) {
    const auto& list = lists[s];
    const auto began = list.front().begin_ns;
    const auto since = [&](std::int64_t ns) { return static_cast<double>(ns - began) * 1e-9; };
    seconds.push_back(since(list.back().end_ns));
    for (const auto& event : list) {
      const auto kind = stage_kind(static_cast<ActionKind>(event.tag));
      if (!counts || !kind) continue;
      own.push_back(
          {static_cast<int>(s), event.unit, *kind, event.microbatch, since(event.begin_ns), since(event.end_ns)});
    }
  }
  StageTimes times(trainer_.pipeline(), trainer_.graph());
  for (const auto& numbers : ranks.gather(encoded(own))) {
    for (const auto& time : decoded(numbers)) times.add(time);
  }
  std::vector<double> slowest(steps);
  for (const auto& of_rank : ranks.gather(at::tensor(seconds, at::kDouble))) {
    for (std::size_t s = 0; s < steps; ++s) slowest[s] = std::max(slowest[s], of_rank.const_data_ptr<double>()[s]);
  }
  const auto& pipeline = trainer_.pipeline();
  StepProfile profile;
  profile.costs = times.costs();
  profile.unit_seconds = times.unit_seconds();
  profile.busy = times.busy();
  profile.list_seconds = median(slowest);
  profile.simulated = simulate(pipeline.table, stage_edges(pipeline.map, trainer_.graph()), profile.costs);
  profile.simulated_seconds = profile.simulated.makespan;
  profile.last_step = times.picture(static_cast<int>(steps) - 1);
  return profile;
}

}  // namespace orthant
