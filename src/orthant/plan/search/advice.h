// What would help: requests near the one that was asked, priced by the same closed forms.
#pragma once

#include <vector>

#include "orthant/plan/search/engine.h"

namespace orthant {

// Changes that the search may not make by itself, the one that helps most first: a larger batch, a larger card, more
// cards, 16-bit gradients. `best` is the best candidate of `request`, by closed forms. Only what makes a difference.
std::vector<Advice> advice_for(const SearchRequest& request, const Candidate& best,
                               const std::shared_ptr<ModelBook>& shared);

// Where nothing fits: what would. The fewest cards by doubling, the smallest larger card, the longest sequence by
// halving, 16-bit gradients.
std::vector<Advice> advice_to_fit(const SearchRequest& request, const std::shared_ptr<ModelBook>& shared);

}  // namespace orthant
