// Which heads of a joined projection a rank has, where ranks of cp attend to all tokens with a part of the heads each.
// Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "orthant/base/ranges.h"
#include "orthant/ops/functions.h"

namespace orthant {

struct HeadsPart {
  Range heads = {};                         // of queries, by the balanced rule
  std::vector<std::int64_t> kv_heads = {};  // in their order here; one for each query head where groups are not whole

  HeadsPart(const ops::Heads& all, int degree, int coordinate) : heads(balanced_range(all.heads, degree, coordinate)) {
    if (heads.empty()) return;
    const std::int64_t group = all.heads / all.kv_heads;
    const std::int64_t first = heads.begin / group, last = (heads.end - 1) / group;
    const bool whole = (heads.begin % group == 0 && heads.end % group == 0) || first == last;
    for (std::int64_t kv = first; whole && kv <= last; ++kv) kv_heads.push_back(kv);
    for (std::int64_t head = heads.begin; !whole && head < heads.end; ++head) kv_heads.push_back(head / group);
  }

  std::int64_t num_kv_heads() const { return static_cast<std::int64_t>(kv_heads.size()); }
  // Of the joined projection, in heads.
  std::int64_t joined() const { return heads.size() + 2 * num_kv_heads(); }
};

}  // namespace orthant
