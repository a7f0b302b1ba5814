// Order statistics of measured times.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace orthant {

// A long series in little memory, for its quantiles: all of the first `most` samples, later every second, fourth, ...
// of all of them, so that those kept are spread evenly over the series. Takes its memory once.
class EvenSamples {
 public:
  // `most` is even.
  explicit EvenSamples(std::size_t most);

  void add(double sample);

  const std::vector<double>& kept() const { return kept_; }
  std::int64_t added() const { return added_; }

 private:
  std::size_t most_;
  std::vector<double> kept_;
  std::int64_t added_ = 0;
  std::int64_t stride_ = 1;  // of those added, every so many is kept
};

// The value below which a share `q` of the samples lies; 0.5 is their median, the upper of two. Sorts a copy.
// InternalError without samples.
double quantile(std::vector<double> samples, double q);

// Of the time that all these series took together, the part that they would not have taken had every sample been the
// median of its series; below 0 where they took less.
double share_beyond_medians(const std::vector<std::vector<double>>& series);

}  // namespace orthant
