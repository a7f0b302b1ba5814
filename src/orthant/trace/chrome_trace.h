// Traces of ranks as one document that chrome://tracing and ui.perfetto.dev open: a process for each rank, a row for
// each of its threads, exchanges as spans beside them, an arrow from a send to where it is received and from the last
// member of a collective to where each other one waits, and the memory of tensors as a counter.
#pragma once

#include <string>
#include <vector>

#include "orthant/trace/rank_trace.h"

namespace orthant::trace {

std::string chrome_trace(const std::vector<RankTrace>& ranks);

}  // namespace orthant::trace
