// Configurations that the search has priced: how they are ordered, and the best of them.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "orthant/plan/search/search.h"
#include "orthant/plan/search/space.h"

namespace orthant {

struct Candidate {
  PricedPoint point = {};
  double step_seconds = 0;
  double behind_seconds = 0;      // the part after the pipeline: exposed communication and the update
  double microbatch_seconds = 0;  // of one microbatch through all stages, forward and back
  double memory_bytes = 0;
  double sent_bytes = 0;
  std::int64_t order = 0;  // of enumeration
};

// Whether `left` comes before `right`: by the strategy, then fewer bytes sent, less memory, earlier enumeration. Times
// and sizes that differ by less than a float can say are equal.
bool is_better(const Candidate& left, const Candidate& right, Strategy strategy);

// As a run would be told.
PlanSettings settings_of(const PricedPoint& point, const SearchRequest& request);

// How its units lie on ranks.
UnitChoice unit_choice(const PricedPoint& point);

// A priced plan in the same terms; `order` as given.
Candidate candidate_of(const Plan& plan, std::int64_t order);

// Of a list, best first, that may hold some which nearly fit.
std::optional<Candidate> first_that_fits(const std::vector<Candidate>& candidates, const SearchRequest& request);

// The best `most` of all that were added.
class BestCandidates {
 public:
  BestCandidates(Strategy strategy, std::size_t most) : strategy_(strategy), most_(most) {}

  // Whether it may be among the best; asks for no `point`.
  bool wants(const Candidate& candidate) const { return !full_ || is_better(candidate, kept_.front(), strategy_); }
  void add(const Candidate& candidate);
  std::vector<Candidate> sorted() const;  // best first

 private:
  void shrink();

  Strategy strategy_;
  std::size_t most_;
  std::vector<Candidate> kept_;  // up to twice as many
  bool full_ = false;            // then kept_.front() is a bound: only better ones can be among the best
};

}  // namespace orthant
