// The merges of a BPE as files give them, pairs of tokens in order of rank, and the table that is made of them.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "orthant/text/bpe_merges.h"
#include "orthant/text/vocabulary.h"

namespace orthant {

using MergeList = std::vector<std::pair<std::string, std::string>>;

// DataError that begins with `source` for a merge of, or into, a token that is not in the vocabulary.
BpeMerges merges_of(const MergeList& merges, const Vocabulary& tokens, const std::string& source);

// For fingerprints: equal for equal lists.
std::string describe(const MergeList& merges);

}  // namespace orthant
