// Order statistics of measured times.
#pragma once

#include <vector>

namespace orthant {

// The value below which a share `q` of the samples lies; 0.5 is their median, the upper of two. Sorts a copy.
// InternalError without samples.
double quantile(std::vector<double> samples, double q);

}  // namespace orthant
