// Note [Common runs]: trailing dims along which both boxes are equal, and one more, form runs that are contiguous in
// both boxes. Over the rows of such runs the places in either box only grow, so the rows that the two ranges reach are
// found by bisection and everything else is never visited.
#include <fmt/format.h>

#include <algorithm>

#include "orthant/base/error.h"
#include "orthant/layout/pieces.h"

namespace orthant {
namespace {

// Places of a row's first element inside the two boxes.
struct Places {
  std::int64_t wanted;
  std::int64_t stored;
};

class CommonRows {
 public:
  CommonRows(const Piece& wanted, const Piece& stored) : wanted_(wanted), stored_(stored) {
    const std::size_t dims = wanted.offsets.size();
    begins_.resize(dims);
    lengths_.resize(dims);
    for (std::size_t d = 0; d < dims; ++d) {
      const Range met = common({wanted.offsets[d], wanted.offsets[d] + wanted.lengths[d]},
                               {stored.offsets[d], stored.offsets[d] + stored.lengths[d]});
      begins_[d] = met.begin;
      lengths_[d] = met.size();
    }
    outer_ = dims;
    while (outer_ > 0) {
      --outer_;
      run_ *= lengths_[outer_];
      if (lengths_[outer_] != wanted.lengths[outer_] || lengths_[outer_] != stored.lengths[outer_]) break;
    }
    for (std::size_t d = 0; d < outer_; ++d) rows_ *= lengths_[d];
    if (run_ == 0) rows_ = 0;
  }

  std::int64_t rows() const { return rows_; }
  std::int64_t run() const { return run_; }

  Places places(std::int64_t row) const {
    Places at{0, 0};
    std::int64_t wanted_step = 1;
    std::int64_t stored_step = 1;
    for (std::size_t d = begins_.size(); d-- > 0;) {
      std::int64_t position = begins_[d];
      if (d < outer_) {
        position += row % lengths_[d];
        row /= lengths_[d];
      }
      at.wanted += (position - wanted_.offsets[d]) * wanted_step;
      at.stored += (position - stored_.offsets[d]) * stored_step;
      wanted_step *= wanted_.lengths[d];
      stored_step *= stored_.lengths[d];
    }
    return at;
  }

  // The first row that reaches into both ranges or lies behind one of them.
  std::int64_t first_row(Range wanted, Range stored) const {
    std::int64_t low = 0;
    std::int64_t high = rows_;
    while (low < high) {
      const std::int64_t middle = low + (high - low) / 2;
      const Places at = places(middle);
      if (at.wanted + run_ <= wanted.begin || at.stored + run_ <= stored.begin) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low;
  }

 private:
  const Piece& wanted_;
  const Piece& stored_;
  std::vector<std::int64_t> begins_;
  std::vector<std::int64_t> lengths_;
  std::size_t outer_ = 0;  // dims before it number the rows
  std::int64_t run_ = 1;   // elements of a row
  std::int64_t rows_ = 1;
};

void add_run(std::vector<Overlap>& runs, const Overlap& next) {
  if (!runs.empty()) {
    Overlap& last = runs.back();
    if (last.stored_offset + last.length == next.stored_offset &&
        last.wanted_offset + last.length == next.wanted_offset) {
      last.length += next.length;
      return;
    }
  }
  runs.push_back(next);
}

}  // namespace

std::vector<Overlap> intersect(const Piece& wanted, const Piece& stored) {
  if (wanted.offsets.size() != stored.offsets.size()) {
    throw InternalError(fmt::format("a piece of {} with {} dims meets a piece of {} with {}", wanted.tensor,
                                    wanted.offsets.size(), stored.tensor, stored.offsets.size()));
  }
  const Range wanted_span = wanted.span();
  const Range stored_span = stored.span();
  const CommonRows rows(wanted, stored);
  std::vector<Overlap> runs;
  for (std::int64_t row = rows.first_row(wanted_span, stored_span); row < rows.rows(); ++row) {
    const Places at = rows.places(row);
    if (at.wanted >= wanted_span.end || at.stored >= stored_span.end) break;
    const std::int64_t begin =
        std::max({std::int64_t{0}, wanted_span.begin - at.wanted, stored_span.begin - at.stored});
    const std::int64_t end = std::min({rows.run(), wanted_span.end - at.wanted, stored_span.end - at.stored});
    if (begin >= end) continue;
    add_run(runs, {.stored_offset = at.stored + begin - stored_span.begin,
                   .wanted_offset = at.wanted + begin - wanted_span.begin,
                   .length = end - begin});
  }
  return runs;
}

}  // namespace orthant
