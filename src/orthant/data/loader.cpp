#include "orthant/data/loader.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "orthant/base/error.h"
#include "orthant/layout/rows.h"

namespace orthant {
namespace {

RowShare row_share(const LoaderOptions& options) {
  return {.replicas = options.replicas,
          .replica = options.replica,
          .microbatches = options.microbatches,
          .microbatch_rows = options.microbatch_rows};
}

void check_options(const LoaderOptions& options, const Sampler& sampler) {
  if (options.start_step < 0) throw InternalError(fmt::format("a loader from step {} on", options.start_step));
  if (options.microbatches < 1) {
    throw ConfigError(fmt::format("microbatches is {}, but a step needs at least one", options.microbatches),
                      {.remedy = "set parallel.microbatches to 1 or more"});
  }
  if (options.prefetch < 0 || options.microbatch_rows < 0) {
    throw ConfigError(fmt::format("prefetch is {} and microbatch_rows is {}, but neither may be below 0",
                                  options.prefetch, options.microbatch_rows),
                      {.remedy = "set 0 for no reading ahead, and 0 for as few rows as needed"});
  }
  replica_rows(sampler.global_batch(), row_share(options));  // throws when the largest batch does not fit
}

void check_rows(const Fields& fields, std::int64_t rows) {
  for (const auto& [name, value] : fields) {
    if (value.dim() > 0 && value.size(0) == rows) continue;
    throw InternalError(fmt::format("the data set gave field {} with {} rows when asked for {}", name,
                                    value.dim() > 0 ? value.size(0) : 0, rows));
  }
}

}  // namespace

Loader::Loader(std::shared_ptr<const Dataset> dataset, Sampler sampler, LoaderOptions options)
    : dataset_(std::move(dataset)), sampler_(sampler), options_(options), next_step_(options.start_step) {
  check_options(options_, sampler_);
  if (sampler_.size() != dataset_->size()) {
    throw InternalError(fmt::format("a sampler of {} samples for a data set of {}", sampler_.size(), dataset_->size()));
  }
  if (options_.prefetch > 0) reader_ = std::thread([this] { read_ahead(); });
}

Loader::~Loader() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (reader_.joinable()) reader_.join();
}

Batch Loader::next() {
  if (options_.prefetch == 0) {
    Batch batch = read(next_step_);
    ++next_step_;
    return batch;
  }
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !ready_.empty() || error_ != nullptr; });
  if (ready_.empty()) std::rethrow_exception(error_);
  Batch batch = std::move(ready_.front());
  ready_.pop_front();
  lock.unlock();
  changed_.notify_all();
  return batch;
}

void Loader::read_ahead() {
  const auto room = static_cast<std::size_t>(options_.prefetch);
  for (;; ++next_step_) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return stopping_ || ready_.size() < room; });
    if (stopping_) return;
    lock.unlock();
    Batch batch;
    std::exception_ptr error;
    try {
      batch = read(next_step_);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    if (error != nullptr) {
      error_ = error;
    } else {
      ready_.push_back(std::move(batch));
    }
    lock.unlock();
    changed_.notify_all();
    if (error != nullptr) return;
  }
}

Batch Loader::read(std::int64_t step) const {
  const StepRows global = sampler_.at(step);
  const auto samples = static_cast<std::int64_t>(global.samples.size());
  const ReplicaRows rows = replica_rows(samples, row_share(options_));

  std::vector<std::int64_t> indices(global.samples.begin() + rows.real.begin, global.samples.begin() + rows.real.end);
  const auto real = indices;
  indices.resize(static_cast<std::size_t>(rows.padded_rows),
                 global.samples[static_cast<std::size_t>(rows.padding_row)]);

  Batch batch{.fields = dataset_->rows(indices),
              .rows = rows.real.size(),
              .first_row = rows.real.begin,
              .step = step,
              .epoch = global.epoch,
              .last_of_epoch = global.last_of_epoch,
              .samples = samples,
              .ids = real};
  check_rows(batch.fields, rows.padded_rows);
  if (batch.rows < rows.padded_rows) dataset_->make_padding(batch.fields, batch.rows);

  Totals totals;
  if (options_.replicas == 1 && batch.rows == rows.padded_rows) {
    totals = {.tokens = dataset_->tokens(batch.fields), .weight_sum = dataset_->weight_sum(batch.fields)};
  } else {
    totals = dataset_->totals(global.samples);
  }
  batch.tokens = totals.tokens;
  batch.weight_sum = totals.weight_sum;
  return batch;
}

}  // namespace orthant
