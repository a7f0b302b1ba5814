// Rules that a request must keep before anything is searched.
#pragma once

#include "orthant/plan/search/model.h"
#include "orthant/plan/search/search.h"

namespace orthant {

// ConfigError for sizes below 1, more cards than a mesh may have, a sequence that the model cannot read, dtypes that
// `train` refuses.
void check_request(const SearchRequest& request);

// ConfigError: no mesh of so many cards divides the batch among its replicas. Names the nearest batches that one does.
[[noreturn]] void refuse_batch(const SearchRequest& request, const SearchModel& model);

}  // namespace orthant
