#include "orthant/comm/thread_ranks.h"

#include <cstdlib>
#include <thread>

#include "orthant/base/error.h"

namespace orthant::comm {
namespace {

bool is_comm_error(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const CommError&) {
    return true;
  } catch (...) {
    return false;
  }
}

}  // namespace

std::vector<std::exception_ptr> try_thread_ranks(int world_size,
                                                 const std::function<void(int rank, Store store)>& body) {
  // c10d's flight recorder is one per process and, in libtorch 2.11, not safe to use from several groups at once; it
  // reads this when the first group is made.
  setenv("TORCH_FR_BUFFER_SIZE", "0", /*overwrite=*/0);
  const auto store = make_process_store();
  std::vector<std::exception_ptr> errors(static_cast<size_t>(world_size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world_size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        body(rank, store);
      } catch (...) {
        errors[static_cast<size_t>(rank)] = std::current_exception();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  return errors;
}

void run_thread_ranks(int world_size, const std::function<void(int rank, Store store)>& body) {
  const auto errors = try_thread_ranks(world_size, body);
  std::exception_ptr first;
  for (const auto& error : errors) {
    if (error && !is_comm_error(error)) std::rethrow_exception(error);
    if (error && !first) first = error;
  }
  if (first) std::rethrow_exception(first);
}

}  // namespace orthant::comm
