#include "orthant/base/quantile.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

#include "orthant/base/error.h"

namespace orthant {

EvenSamples::EvenSamples(std::size_t most) : most_(most) {
  if (most == 0 || most % 2 != 0) throw InternalError("room for an odd number of samples");
  kept_.reserve(most);
}

void EvenSamples::add(double sample) {
  if (added_++ % stride_ != 0) return;
  if (kept_.size() == most_) {
    for (std::size_t i = 0; i < most_ / 2; ++i) kept_[i] = kept_[2 * i];
    kept_.resize(most_ / 2);
    stride_ *= 2;  // of which this sample is a multiple: most_ is even
  }
  kept_.push_back(sample);
}

double quantile(std::vector<double> samples, double q) {
  if (samples.empty()) throw InternalError("quantile of no samples");
  std::sort(samples.begin(), samples.end());
  const auto last = static_cast<double>(samples.size() - 1);
  return samples[static_cast<std::size_t>(q * last + 0.5)];
}

double share_beyond_medians(const std::vector<std::vector<double>>& series) {
  double taken = 0, medians = 0;
  for (const auto& samples : series) {
    taken += std::accumulate(samples.begin(), samples.end(), 0.0);
    medians += quantile(samples, 0.5) * static_cast<double>(samples.size());
  }
  return 1 - medians / taken;
}

}  // namespace orthant
