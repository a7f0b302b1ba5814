#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "orthant/base/human.h"
#include "orthant/base/quantile.h"
#include "orthant/report/failures.h"
#include "orthant/trace/step_table.h"

namespace orthant::report {
namespace {

using trace::EventKind;
using trace::Part;

constexpr int kColdSteps = 2;
constexpr int kStepsThatTell = 8;       // fewer show nothing but chance
constexpr int kSavesThatTell = 3;       // every run saves at its end
constexpr double kLongAction = 0.0005;  // seconds: below it starting operations takes much of the time

// Whole steps of a rank's record, the first ones left out where there are others.
trace::RankTrace whole_steps(const trace::RankRecord& record) {
  trace::RankTrace whole{.rank = record.header.rank, .place = "", .clock_error_ns = 0, .events = {}};
  int last = 0;
  for (const auto& event : record.events) last = std::max(last, event.step);
  for (const auto& event : record.events) {
    if (!event.is_open() && (event.step > kColdSteps || last <= kColdSteps + 2)) whole.events.push_back(event);
  }
  std::ranges::sort(whole.events, [](const auto& a, const auto& b) {
    return a.begin_ns != b.begin_ns ? a.begin_ns < b.begin_ns : a.number < b.number;
  });
  whole.events = trace::of_steps(whole.events);
  return whole;
}

double median_of_steps(const std::map<int, double>& by_step) {
  std::vector<double> seconds;
  for (const auto& [step, one] : by_step) seconds.push_back(one);
  return seconds.empty() ? 0 : quantile(seconds, 0.5);
}

// What the last steps of all ranks tell.
class Steps {
 public:
  explicit Steps(const RunFolder& run) {
    for (const auto& record : run.ranks) traces_.push_back(whole_steps(record));
    table_ = trace::step_table(traces_, {}, {});
    for (const auto& trace : traces_) look(trace);
  }

  const trace::StepTable& table() const { return table_; }
  bool enough() const { return table_.num_steps >= kStepsThatTell && table_.step_seconds() > 0; }

  // Of a step, on average over the ranks.
  double share(Part part) const {
    double sum = 0;
    for (const auto& rank : table_.ranks)
      sum += rank.seconds[static_cast<std::size_t>(part)] / std::max(rank.step_seconds, 1e-9);
    return sum / static_cast<double>(std::max<std::size_t>(table_.ranks.size(), 1));
  }

  // What a rank does itself, a step: the median, since any process may lose its core for a while.
  double own(std::size_t place) const { return own_[place]; }

  const std::set<int>& stages(std::size_t place) const { return stages_[place]; }
  // Of all ranks' actions of a stage, a step.
  const std::map<int, double>& stage_seconds() const { return stage_seconds_; }
  double median_forward() const { return forwards_.empty() ? 0 : quantile(forwards_, 0.5); }
  int microbatches() const { return microbatches_; }
  double save_seconds() const { return save_seconds_; }
  int saves() const { return saves_; }
  double elapsed() const { return elapsed_; }

 private:
  void look(const trace::RankTrace& trace) {
    const auto own = trace::own_seconds(trace.events);
    std::set<int> stages;
    std::map<int, double> own_by_step;
    std::map<int, std::map<int, double>> stage_by_step;
    double saving = 0;
    int saves = 0;
    for (std::size_t i = 0; i < trace.events.size(); ++i) {
      const auto& event = trace.events[i];
      if (event.kind == EventKind::phase && (event.text == "save" || event.text == "copy for a checkpoint")) {
        saving += event.seconds();
        if (event.text == "save") ++saves;
      }
      const bool waits = event.kind == EventKind::wait || event.kind == EventKind::exchange;
      if (!waits && event.text != "save" && event.text != "evaluation") own_by_step[event.step] += own[i];
      if (event.kind != EventKind::action) continue;
      microbatches_ = std::max(microbatches_, event.microbatch + 1);
      if (event.text.starts_with("F ")) forwards_.push_back(own[i]);
      const bool works = event.text.starts_with("F ") || event.text.starts_with("B") || event.text.starts_with("W ");
      if (event.stage < 0 || !works) continue;
      stages.insert(event.stage);
      stage_by_step[event.stage][event.step] += own[i];
    }
    stages_.push_back(std::move(stages));
    own_.push_back(median_of_steps(own_by_step));
    for (const auto& [stage, by_step] : stage_by_step) stage_seconds_[stage] += median_of_steps(by_step);
    save_seconds_ = std::max(save_seconds_, saving);
    saves_ = std::max(saves_, saves);
    if (trace.events.empty()) return;
    const double elapsed = static_cast<double>(trace.events.back().end_ns - trace.events.front().begin_ns) * 1e-9;
    elapsed_ = std::max(elapsed_, elapsed);
  }

  std::vector<trace::RankTrace> traces_;
  trace::StepTable table_;
  std::vector<std::set<int>> stages_;
  std::vector<double> own_;
  std::map<int, double> stage_seconds_;
  std::vector<double> forwards_;
  int microbatches_ = 0;
  double save_seconds_ = 0;
  int saves_ = 0;
  double elapsed_ = 0;
};

std::string percent(double share) {
  return fmt::format("{:.0f}%", 100 * share);
}

// Sure from twice the share at which it is worth naming.
double confidence_of(double share, double worth) {
  return std::clamp(0.6 + 0.2 * (share / worth - 1), 0.0, 0.85);
}

std::string evidence_of(const Steps& steps, Part part) {
  return fmt::format("flight: {} of a step of {} is {}, on average over {} ranks and {} steps",
                     percent(steps.share(part)), format_seconds(steps.table().step_seconds()), trace::name_of(part),
                     steps.table().ranks.size(), steps.table().num_steps);
}

void find_data(const Steps& steps, std::vector<Finding>& findings) {
  const double share = steps.share(Part::data);
  if (share < 0.15) return;
  findings.push_back({"slow data",
                      confidence_of(share, 0.15),
                      fmt::format("steps wait for data: {} of a step is spent on reading its batch", percent(share)),
                      {evidence_of(steps, Part::data)},
                      "data.kind=tokens shows how fast it goes without reading; put the files on a faster disk, or "
                      "tokenize them before (orthant data prepare-text)"});
}

void find_saves(const Steps& steps, std::vector<Finding>& findings) {
  if (steps.saves() < kSavesThatTell || steps.elapsed() <= 0) return;
  const double share = steps.save_seconds() / steps.elapsed();
  if (share < 0.1) return;
  findings.push_back({"slow disk",
                      confidence_of(share, 0.1),
                      fmt::format("checkpoints hold training up: {} of the time went into saving", percent(share)),
                      {fmt::format("flight: {} in saves within {}", format_seconds(steps.save_seconds()),
                                   format_seconds(steps.elapsed()))},
                      "checkpoint.asynchronous=true, a larger checkpoint.save_every, or a faster disk"});
}

// A rank that does more itself than those that do the same.
void find_straggler(const Steps& steps, std::vector<Finding>& findings) {
  const auto& ranks = steps.table().ranks;
  double most = 0;
  std::size_t slowest = 0;
  double usual_of_slowest = 0;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    std::vector<double> others;
    for (std::size_t o = 0; o < ranks.size(); ++o) {
      if (o != r && steps.stages(o) == steps.stages(r)) others.push_back(steps.own(o));
    }
    if (others.empty()) continue;
    const double usual = quantile(others, 0.5);
    const double extra = (steps.own(r) - usual) / std::max(ranks[r].step_seconds, 1e-9);
    const double second = *std::ranges::max_element(others);
    if (steps.own(r) < 1.2 * usual || steps.own(r) < 1.1 * second || extra <= most) continue;
    most = extra;
    slowest = r;
    usual_of_slowest = usual;
  }
  if (most < 0.1) return;
  const double waiting = steps.share(Part::slower_ranks) + steps.share(Part::other_stages);
  findings.push_back(
      {"slow rank",
       std::min(confidence_of(most, 0.1), waiting > 0.1 ? 0.88 : 0.55),
       fmt::format("rank {} is slower than the ranks that do the same work: {} a step and not {}, and the others wait "
                   "for it",
                   ranks[slowest].rank, format_seconds(steps.own(slowest)), format_seconds(usual_of_slowest)),
       {fmt::format("flight: others wait for slower ranks or stages {} of a step", percent(waiting))},
       "see what else runs on that core or card (top, nvidia-smi), or leave that host out"});
}

void find_stages(const Steps& steps, std::vector<Finding>& findings) {
  const auto& seconds = steps.stage_seconds();
  if (seconds.size() < 2) return;
  double sum = 0;
  auto heaviest = seconds.begin();
  for (auto stage = seconds.begin(); stage != seconds.end(); ++stage) {
    sum += stage->second;
    if (stage->second > heaviest->second) heaviest = stage;
  }
  const double mean = sum / static_cast<double>(seconds.size());
  const double over = heaviest->second / std::max(mean, 1e-12);
  const double waiting = steps.share(Part::other_stages);
  if (over > 1.25 && waiting > 0.1) {
    findings.push_back({"uneven split",
                        confidence_of(over - 1, 0.25),
                        fmt::format("stage {} takes {:.2f} of the mean of the stages, and the others wait for it",
                                    heaviest->first, over),
                        {fmt::format("flight: {} of stage {} a step, {} on average", format_seconds(heaviest->second),
                                     heaviest->first, format_seconds(mean)),
                         evidence_of(steps, Part::other_stages)},
                        "parallel.split=auto, with parallel.split_costs measured by orthant bench step --costs FILE"});
    return;
  }
  const double even =
      static_cast<double>(seconds.size() - 1) /
      static_cast<double>(seconds.size() - 1 + static_cast<std::size_t>(std::max(steps.microbatches(), 1)));
  if (waiting < 0.25 || even < 0.2) return;
  findings.push_back(
      {"bubble",
       confidence_of(waiting, 0.25),
       fmt::format("the pipeline idles: {} stages and {} microbatch{} leave {} of a step to waiting for "
                   "other stages",
                   seconds.size(), steps.microbatches(), steps.microbatches() == 1 ? "" : "es", percent(waiting)),
       {evidence_of(steps, Part::other_stages)},
       fmt::format("parallel.microbatches={}, or fewer stages", 4 * seconds.size())});
}

void find_small_work(const Steps& steps, std::vector<Finding>& findings) {
  const double forward = steps.median_forward();
  if (forward <= 0 || forward > kLongAction || steps.microbatches() < 8) return;
  findings.push_back({"tiny microbatches",
                      0.75,
                      fmt::format("microbatches are tiny: half of all forwards of a unit take less than {}, so that "
                                  "starting the work takes much of the time",
                                  format_seconds(forward)),
                      {fmt::format("flight: {} microbatches a step, median forward of a unit {}", steps.microbatches(),
                                   format_seconds(forward))},
                      fmt::format("parallel.microbatches={}, or a larger train.global_batch_size",
                                  std::max(1, steps.microbatches() / 4))});
}

void find_exchange(const Steps& steps, std::vector<Finding>& findings) {
  const double share = steps.share(Part::exchange);
  if (share < 0.3) return;
  findings.push_back({"exposed exchange",
                      std::min(confidence_of(share, 0.3), 0.75),
                      fmt::format("ranks exchange more than they compute: {} of a step is exchange that nothing hides",
                                  percent(share)),
                      {evidence_of(steps, Part::exchange)},
                      "larger microbatches, a smaller tp degree, or ranks of a group on one host; orthant bench comm "
                      "shows what the links reach"});
}

void find_oversubscription(const RunFolder& run, std::vector<Finding>& findings) {
  std::map<std::string, std::pair<int, int>> hosts;  // threads, cores
  bool many_threads = false;
  for (const auto& rank : run.ranks) {
    auto& [threads, cores] = hosts[rank.host()];
    threads += std::max(1, rank.header.threads);
    cores = std::max(cores, rank.header.cores);
    many_threads |= rank.header.threads > 1;
  }
  for (const auto& [host, use] : hosts) {
    const auto& [threads, cores] = use;
    if (cores == 0 || threads <= cores) continue;
    findings.push_back({"too many threads",
                        many_threads ? 0.87 : 0.5,
                        fmt::format("{} threads compute on {} core{} of host {}: they take turns", threads, cores,
                                    cores == 1 ? "" : "s", host),
                        {fmt::format("flight: {} ranks there, with their threads {}", run.ranks.size(), threads)},
                        many_threads ? "--threads 1, or as few as cores / ranks" : "no more ranks than cores"});
  }
}

}  // namespace

std::vector<Finding> find_slowness(const RunFolder& run) {
  std::vector<Finding> findings;
  const Steps steps(run);
  if (!run.ranks.empty()) find_oversubscription(run, findings);
  if (!steps.enough()) return findings;
  find_data(steps, findings);
  find_saves(steps, findings);
  find_straggler(steps, findings);
  find_stages(steps, findings);
  find_small_work(steps, findings);
  find_exchange(steps, findings);
  return findings;
}

}  // namespace orthant::report
