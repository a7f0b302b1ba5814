// Putting the search together: the request is checked, the space enumerated, the best priced again by what would run.
#include "orthant/plan/search/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <set>

#include "orthant/base/error.h"
#include "orthant/base/nearest.h"
#include "orthant/plan/search/advice.h"
#include "orthant/plan/search/engine.h"
#include "orthant/plan/search/request.h"

namespace orthant {
namespace {

constexpr std::size_t kSimulated = 100;   // of the best, where there are so many
constexpr double kEstimateSeconds = 0.3;  // about what estimates may take together, beyond those that are asked for
constexpr double kAsGood = 1.05;          // plain data parallelism is told to whoever loses no more by it

const std::vector<std::string> kStrategies = {"memory", "throughput", "latency"};

struct PricedPlan {
  Plan plan;
  Candidate candidate;
};

// About what estimate() takes: it builds the units, and walks the actions of all of them and all microbatches.
double estimate_seconds(const Candidate& candidate, const SearchRequest& request, int units) {
  const auto& point = candidate.point;
  const auto microbatches = request.global_batch / (point.dp * point.fsdp) / point.micro_batch;
  return units * (1.5e-4 + 1.5e-5 * static_cast<double>(microbatches));
}

// Estimates plans one by one and keeps those that fit.
class Finalists {
 public:
  Finalists(const SearchRequest& request, SearchResult& result, ProgramCache* programs)
      : request_(request), result_(result), stack_(find_stack("orthant")), programs_(programs) {}

  void add(const Candidate& candidate) {
    Plan plan = estimate(request_.model, settings_of(candidate.point, request_), request_.hardware, stack_, programs_);
    if (!plan.fits) {
      // Beyond the card it has been counted.
      const bool counted = candidate.memory_bytes > static_cast<double>(request_.hardware.memory_bytes);
      if (!counted) ++result_.rejected[std::string(kDoesNotFit)];
      return;
    }
    Candidate priced = candidate_of(plan, candidate.order);
    priced.point = candidate.point;
    plans_.push_back({std::move(plan), priced});
  }

  std::size_t size() const { return plans_.size(); }

  // Best first.
  std::vector<PricedPlan> sorted() {
    std::ranges::sort(plans_, [this](const PricedPlan& left, const PricedPlan& right) {
      return is_better(left.candidate, right.candidate, request_.strategy);
    });
    return std::move(plans_);
  }

 private:
  const SearchRequest& request_;
  SearchResult& result_;
  Stack stack_;
  ProgramCache* programs_;
  std::vector<PricedPlan> plans_;
};

// The first of them by simulated times, best first; the others behind as they are.
void simulate_best(std::vector<Candidate>& best, SearchEngine& engine, Strategy strategy) {
  const auto end = best.begin() + static_cast<std::ptrdiff_t>(std::min(best.size(), kSimulated));
  for (auto candidate = best.begin(); candidate != end; ++candidate) {
    candidate->step_seconds = engine.prices().simulated_seconds(candidate->point) + candidate->behind_seconds;
  }
  std::sort(best.begin(), end,
            [&](const Candidate& left, const Candidate& right) { return is_better(left, right, strategy); });
}

bool is_plain(const PricedPoint& point) {
  return point.tp == 1 && point.pp == 1 && point.cp == 1 && point.ep == 1 && point.zero == 0;
}

// The best plans that fit, by estimates; the plain one among them where it fits.
std::vector<PricedPlan> finalists_of(const SearchFindings& findings, const SearchRequest& request,
                                     const SearchModel& model, SearchResult& result) {
  Finalists finalists(request, result, model.programs());
  double spent = 0;
  const auto wanted = static_cast<std::size_t>(request.top);
  for (std::size_t i = 0; i < findings.best.size(); ++i) {
    const bool enough = finalists.size() >= wanted;
    if (enough && (i >= kSimulated || spent > kEstimateSeconds)) break;
    spent += estimate_seconds(findings.best[i], request, model.num_units());
    finalists.add(findings.best[i]);
  }
  if (findings.plain) finalists.add(*findings.plain);
  return finalists.sorted();
}

// Puts plain data parallelism first where it loses next to nothing, and says so.
std::string prefer_plain(std::vector<PricedPlan>& plans, const SearchRequest& request) {
  if (request.cards == 1 || request.strategy != Strategy::throughput || plans.empty()) return "";
  const auto plain = std::ranges::find_if(plans, [](const auto& one) { return is_plain(one.candidate.point); });
  if (plain == plans.end()) return "";
  const double slower = plain->plan.time.step / plans.front().plan.time.step;
  if (slower > kAsGood) return "";
  const bool first = plain == plans.begin();
  std::rotate(plans.begin(), plain, plain + 1);
  return fmt::format("Plain data parallelism will do: every card holds the whole model{}.",
                     first ? "" : fmt::format(", and the fastest plan is only {:.1f}% faster", 100 * (slower - 1)));
}

// Equal settings once: the plain plan may have been among the best.
void drop_doubles(std::vector<PricedPlan>& plans) {
  std::set<std::int64_t> seen;
  std::erase_if(plans, [&](const PricedPlan& one) { return !seen.insert(one.candidate.order).second; });
}

PricedPoint point_of(const PricedPlan& one) {
  PricedPoint point = one.candidate.point;
  point.memory_bytes = static_cast<float>(one.plan.peak_bytes());
  point.tokens_per_second_per_gpu = static_cast<float>(one.plan.tokens_per_second_per_gpu);
  point.fits = true;
  return point;
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

std::string_view strategy_name(Strategy strategy) {
  return kStrategies.at(static_cast<std::size_t>(strategy));
}

Strategy parse_strategy(std::string_view text) {
  const auto found = std::ranges::find(kStrategies, text);
  if (found != kStrategies.end()) return static_cast<Strategy>(found - kStrategies.begin());
  throw ConfigError(fmt::format("\"{}\" is no strategy", text), {.remedy = did_you_mean(text, kStrategies)});
}

SearchResult search(const SearchRequest& request) {
  const auto start = std::chrono::steady_clock::now();
  check_request(request);
  SearchEngine engine(request);
  SearchFindings findings = engine.run();
  const SearchModel& model = engine.prices().model();
  if (findings.meshes == 0) refuse_batch(request, model);
  SearchResult result;
  result.rejected = findings.rejected;
  result.evaluated = findings.evaluated;
  const auto by_closed_forms = first_that_fits(findings.best, request);
  simulate_best(findings.best, engine, request.strategy);
  auto plans = finalists_of(findings, request, model, result);
  drop_doubles(plans);
  result.simple = prefer_plain(plans, request);
  const auto& shared = engine.prices().shared();
  if (plans.empty()) result.advice = advice_to_fit(request, shared);
  if (!plans.empty() && by_closed_forms) result.advice = advice_for(request, *by_closed_forms, shared);
  plans.resize(std::min(plans.size(), static_cast<std::size_t>(request.top)));
  result.points = std::move(findings.points);
  for (PricedPlan& one : plans) {
    result.points.push_back(point_of(one));
    result.plans.push_back(std::move(one.plan));
  }
  result.seconds = seconds_since(start);
  return result;
}

}  // namespace orthant
