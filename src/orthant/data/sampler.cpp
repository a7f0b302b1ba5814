#include "orthant/data/sampler.h"

#include <fmt/format.h>

#include <algorithm>

#include "orthant/base/error.h"
#include "orthant/base/permutation.h"

namespace orthant {

Sampler::Sampler(std::int64_t size, std::int64_t global_batch, std::uint64_t seed)
    : size_(size), global_batch_(global_batch), seed_(seed) {
  if (size < 1) throw DataError("the data set is empty", {.remedy = "give it at least one sample"});
  if (global_batch < 1) {
    throw ConfigError(fmt::format("the global batch size is {}, but a step needs at least one sample", global_batch),
                      {.remedy = fmt::format("set train.global_batch_size from 1 to {}", size)});
  }
  if (global_batch > size) {
    throw ConfigError(fmt::format("the global batch size is {}, but the data set has {} samples", global_batch, size),
                      {.remedy = fmt::format("set train.global_batch_size to at most {}, or give more data", size)});
  }
}

StepRows Sampler::at(std::int64_t step) const {
  if (step < 0) throw InternalError(fmt::format("the samples of step {} were asked for", step));
  const std::int64_t epoch = step / steps_per_epoch();
  const std::int64_t first = step % steps_per_epoch() * global_batch_;
  const std::int64_t end = std::min(first + global_batch_, size_);
  const Permutation order(static_cast<std::uint64_t>(size_), seed_, static_cast<std::uint64_t>(epoch));
  StepRows rows{.epoch = epoch, .samples = {}, .last_of_epoch = end == size_};
  rows.samples.reserve(static_cast<std::size_t>(end - first));
  for (std::int64_t i = first; i < end; ++i) {
    rows.samples.push_back(static_cast<std::int64_t>(order(static_cast<std::uint64_t>(i))));
  }
  return rows;
}

}  // namespace orthant
