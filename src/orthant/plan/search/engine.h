// The enumeration: every choice that `train` accepts, priced by closed forms. Nothing here is simulated:
// search() prices the best candidates exactly.
//
// Note [What the search counts]: a configuration is one choice of all that search_space.h lists and of a recompute
// mode. `evaluated` counts the configurations whose memory and time were both priced, whether they fit or not.
// `rejected` counts the configurations that do not fit: priced ones, and ones that a lower bound rules out before
// pricing. The bound is the state alone, sharded as far as possible, or that state and the activations of a schedule
// and recompute mode; it rules out larger micro batches, too. A mesh that breaks a rule (heads, layers, batch) counts
// as one configuration, whatever could be set on it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "orthant/plan/search/candidates.h"
#include "orthant/plan/search/data.h"
#include "orthant/plan/search/points.h"
#include "orthant/plan/search/prices.h"

namespace orthant {

// Why most configurations are rejected.
inline constexpr std::string_view kDoesNotFit = "does not fit: activations";

// What of the space is looked at; for questions near a plan that is known.
struct SearchScope {
  std::vector<int> tp = {};  // degrees; empty: all
  std::vector<int> pp = {};  // likewise, as the next two
  std::vector<int> cp = {};
  std::vector<int> ep = {};
  bool sample = true;  // of points, for a picture
};

struct SearchFindings {
  std::vector<Candidate> best = {};     // those that fit, or nearly do, best first
  std::optional<Candidate> plain = {};  // the best of data parallelism alone: dp without shards
  std::map<std::string, std::int64_t> rejected = {};
  std::int64_t evaluated = 0;
  std::int64_t meshes = 0;  // that break no rule
  std::vector<PricedPoint> points = {};
};

class SearchEngine {
 public:
  // The request has been checked; it outlives the engine. `shared` as for PriceBook.
  explicit SearchEngine(const SearchRequest& request, std::shared_ptr<ModelBook> shared = nullptr);

  SearchFindings run(const SearchScope& scope = {});

  PriceBook& prices() { return prices_; }

 private:
  struct AssignedSchedule {
    ScheduleChoice choice;
    std::vector<int> pp_coordinates;  // per stage: its pp coordinate
  };
  // A mesh without its data axes, and what can be chosen on it.
  struct Frame {
    int tp = 1;
    int pp = 1;
    int cp = 1;
    ExpertChoice experts = {};
    int replicas = 1;
    int most_shards = 1;    // of a parameter
    double parameters = 0;  // of the model, on a rank before replicas share them
    std::vector<AssignedSchedule> schedules = {};
    std::vector<SpannedData> data = {};  // for several microbatches
    std::int64_t one_microbatch = 0;     // how many of `data` are for one
    Span tp_span = {};
    Span pp_span = {};

    bool is_plain() const { return tp == 1 && pp == 1 && cp == 1 && experts.ep == 1; }
    std::int64_t num_data(std::int64_t microbatches) const {
      return microbatches > 1 ? std::ssize(data) : one_microbatch;
    }
  };
  // Of a configuration in the loops.
  struct Place {
    const Frame& frame;
    const UnitChoice& units;
    std::int64_t micro_batch = 1;
    std::int64_t microbatches = 1;
    ScheduleChoice schedule = {};
    PlanRecompute recompute = PlanRecompute::none;
  };

  // All meshes without cp and ep come first.
  void run_degrees(int cp);
  void run_stages(int tp, int cp);
  void run_frame(const Frame& frame);
  // That differ in the way over cp. Ones that another outdoes are not priced.
  void run_choices(const Frame& frame, const std::vector<UnitChoice>& choices);
  // Both: whether something was within the card by the bound from below. If not, larger micro batches are not either.
  bool run_micro_batch(const Frame& frame, const UnitChoice& choice, std::int64_t micro_batch);
  bool run_schedule(Place& place, const PriceBook::Sized& units, const AssignedSchedule& schedule);
  void run_data(const Place& place, const PipelinePrice& pipeline, const SpannedData& data);
  void note(const Place& place, const SpannedData& data, Candidate& candidate);

  Frame frame_of(int tp, int pp, int cp, const ExpertChoice& experts);
  ParameterShares shares_of(const Mesh& mesh, const DataChoice& choice);
  SpannedData spanned(const Frame& frame, const DataChoice& choice);
  // Of the groups over some axes: the same for all meshes of so many cards on which they span as many ranks, the
  // innermost of them this far apart.
  Span span(const Mesh& mesh, AxisSet axes, int stride);
  PricedPoint point_of(const Place& place, const DataChoice& data) const;
  void reject(const std::string& reason, std::int64_t count = 1) { findings_.rejected[reason] += count; }

  const SearchRequest& request_;
  Stack stack_;
  PriceBook prices_;
  DataPricer data_;
  double card_bytes_;
  double kept_bytes_;  // beyond them by what the closed forms of memory may err: estimates say whether it fits
  double tokens_;      // of a step, per card
  std::map<std::pair<int, int>, Span> spans_;  // by degree and stride
  SearchScope scope_;
  SearchFindings findings_;
  BestCandidates best_;
  PointSample sample_;
  std::int64_t order_ = 0;
};

}  // namespace orthant
