// What estimate() puts together: the stages of a plan with their work, and per pp coordinate memory, traffic and the
// parameters that its update touches. Made by pricing our own runtime (price_runtime) or a stack's closed forms
// (price_formulas); the rest of a plan follows from it alike.
#pragma once

#include <vector>

#include "orthant/plan/estimate/collective_time.h"
#include "orthant/plan/estimate/plan.h"
#include "orthant/plan/estimate/unit_time.h"
#include "orthant/plan/estimate/unit_work.h"
#include "orthant/schedule/stage_edges.h"
#include "orthant/schedule/stages.h"

namespace orthant {

struct PricedStages {
  ModelWork work;
  StageMap map;
  StageTable table;
  StageEdges edges;
  std::vector<PpMemory> memory;    // per pp coordinate, without reserve
  std::vector<PpTraffic> traffic;  // bytes and calls; seconds of all but messages over pp
  std::vector<double> updated;     // per pp coordinate: parameters that its rank updates
};

// Of a resolved graph and its pipeline, or of a model's.
PricedStages price_runtime(const GraphSpec& resolved, const Pipeline& pipeline, const PlanSettings& settings,
                           const Hardware& hardware, ProgramCache* programs = nullptr);
PricedStages price_runtime(const ModelConfig& config, const PlanSettings& settings, const Hardware& hardware,
                           ProgramCache* programs = nullptr);

PricedStages price_formulas(const TransformerShape& shape, const Stack& stack, const PlanSettings& settings,
                            const Hardware& hardware);

// The plan of priced stages; `flops` of the model for one sequence, forward and backward.
Plan assemble(PricedStages stages, const PlanSettings& settings, const Hardware& hardware, const Stack& stack,
              double flops);

// Of the groups that exchange within units.
ExchangeSpans spans_of(const Mesh& mesh, int cards_per_node);

// The two pp coordinates that share a tied parameter, of all of them.
Span tied_span(const Span& stages);

// Seconds of `calls` equal exchanges of `bytes` in all.
double calls_seconds(ExchangeKind kind, double bytes, double calls, const Span& span, const Hardware& hardware);

}  // namespace orthant
