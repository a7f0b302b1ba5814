// Order statistics of measured times.
#pragma once

#include <vector>

namespace orthant {

// The value below which a share `q` of the samples lies; 0.5 is their median, the upper of two. Sorts a copy.
// InternalError without samples.
double quantile(std::vector<double> samples, double q);

// Of the time that all these series took together, the part that they would not have taken had every sample been the
// median of its series; below 0 where they took less.
double share_beyond_medians(const std::vector<std::vector<double>>& series);

}  // namespace orthant
