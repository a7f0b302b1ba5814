// Which samples a step trains on. An epoch visits every sample once, in an order drawn from (seed, epoch); its last
// batch may be smaller and never holds samples of the next epoch. Nothing is remembered: any step can be asked for, so
// a resumed run and every replica see the same order.
#pragma once

#include <cstdint>
#include <vector>

namespace orthant {

struct StepRows {
  std::int64_t epoch = 0;
  std::vector<std::int64_t> samples;  // the global batch, in order
  bool last_of_epoch = false;
};

// An immutable value. Local.
class Sampler {
 public:
  // DataError for an empty data set, ConfigError for a batch below 1 or larger than the data set.
  Sampler(std::int64_t size, std::int64_t global_batch, std::uint64_t seed);

  // Steps count from 0. Throws InternalError below 0.
  StepRows at(std::int64_t step) const;

  std::int64_t size() const { return size_; }
  std::int64_t global_batch() const { return global_batch_; }
  std::int64_t steps_per_epoch() const { return (size_ + global_batch_ - 1) / global_batch_; }

 private:
  std::int64_t size_;
  std::int64_t global_batch_;
  std::uint64_t seed_;
};

}  // namespace orthant
