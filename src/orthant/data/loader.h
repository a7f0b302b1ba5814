// Batches for one replica, read ahead by a thread of its own. The loader owns the thread and the batches not yet taken;
// what a batch holds is a function of the step alone, never of timing or of how far ahead is read. Nothing here
// communicates: each replica adds up the global batch itself, in global row order, so all know the same totals.
// Which rows a replica gets says Note [Rows of a replica] in layout/rows.h.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <thread>

#include "orthant/data/batch.h"
#include "orthant/data/dataset.h"
#include "orthant/data/sampler.h"

namespace orthant {

struct LoaderOptions {
  std::int64_t replicas = 1;  // dp x fsdp
  std::int64_t replica = 0;
  std::int64_t start_step = 0;  // the first step that next() gives
  std::int64_t prefetch =
      2;  // batches read ahead, as plan/estimate/step_memory.cpp counts; 0 reads in next(), without a thread
  std::int64_t microbatches = 1;     // per replica and step
  std::int64_t microbatch_rows = 0;  // 0: as few as hold the replica's rows
};

// next() is called by one thread at a time.
class Loader {
 public:
  // ConfigError for options that no batch can fulfil; the sampler must be one of the data set's size.
  Loader(std::shared_ptr<const Dataset> dataset, Sampler sampler, LoaderOptions options = {});
  // Waits at most for the batch that is being read.
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  // The next step's batch; blocks until it is read. Epochs follow each other without end. What the data set throws
  // while reading a batch is thrown here when its turn comes, and again on every later call.
  Batch next();

  const Sampler& sampler() const { return sampler_; }

 private:
  Batch read(std::int64_t step) const;
  void read_ahead();

  std::shared_ptr<const Dataset> dataset_;
  Sampler sampler_;
  LoaderOptions options_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Batch> ready_;   // guarded by mutex_, as are the next two
  std::exception_ptr error_;  // of the first batch after `ready_`
  bool stopping_ = false;
  std::int64_t next_step_;  // to read; of the thread that reads
  std::thread reader_;
};

}  // namespace orthant
