#include "orthant/base/quantile.h"

#include <algorithm>
#include <cstddef>

#include "orthant/base/error.h"

namespace orthant {

double quantile(std::vector<double> samples, double q) {
  if (samples.empty()) throw InternalError("quantile of no samples");
  std::sort(samples.begin(), samples.end());
  const auto last = static_cast<double>(samples.size() - 1);
  return samples[static_cast<std::size_t>(q * last + 0.5)];
}

}  // namespace orthant
