// Where samples come from. A data set answers for any sample at any time, in any order: rows() is a pure function of
// the indices, so batches do not depend on the mesh, on read-ahead, or on where a run was resumed. The loader owns
// order, replicas and padding; the data set owns content and weights.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "orthant/data/batch.h"

namespace orthant {

// Samples of the two splits of a generated data set are different draws of the same source.
enum class DataSplit { train, eval };
const char* to_string(DataSplit split);

// What rows add up to.
struct Totals {
  std::int64_t tokens = 0;
  double weight_sum = 0;
};

// All methods are Local, const and safe to call from several threads at once.
class Dataset {
 public:
  // A target of class c counts class_weights[c]; every target counts 1 when there are none.
  explicit Dataset(std::vector<double> class_weights = {}) : class_weights_(std::move(class_weights)) {}
  virtual ~Dataset() = default;
  Dataset(const Dataset&) = delete;
  Dataset& operator=(const Dataset&) = delete;

  virtual std::int64_t size() const = 0;

  // One row per index, in their order; an index may occur twice. Indices lie in [0, size()). The caller owns the
  // tensors and may write to them.
  virtual Fields rows(std::span<const std::int64_t> indices) const = 0;

  // The weights of targets >= 0, added in row order in double.
  virtual double weight_sum(const Fields& fields) const;

  // Positions that are not padding: the true elements of the fields named "mask" or "..._mask"; without such a field
  // the elements of "input_ids"; 0 without either.
  virtual std::int64_t tokens(const Fields& fields) const;

  // Both sums for rows(indices). The loader of every replica asks this for the whole global batch, so a data set that
  // is slow to read answers from what it knows without reading.
  virtual Totals totals(std::span<const std::int64_t> indices) const;

  // Makes the rows from `first_padding_row` on count nothing: their labels become kIgnoredLabel.
  virtual void make_padding(Fields& fields, std::int64_t first_padding_row) const;

  const std::vector<double>& class_weights() const { return class_weights_; }

 private:
  std::vector<double> class_weights_;
};

// Throws InternalError for an index outside [0, size): samplers never ask for one.
void check_indices(std::span<const std::int64_t> indices, std::int64_t size);

}  // namespace orthant
