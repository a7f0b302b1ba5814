// Ranks as threads of one process, for tests on CPU: an eight-rank test costs a fraction of a second.
#pragma once

#include <exception>
#include <functional>
#include <vector>

#include "orthant/comm/store.h"

namespace orthant::comm {

// Runs body(rank, store) on `world_size` threads and waits for all. Returns what each rank threw (null: nothing).
std::vector<std::exception_ptr> try_thread_ranks(int world_size,
                                                 const std::function<void(int rank, Store store)>& body);

// The same, rethrowing the first failure that is not merely the echo of another rank's.
void run_thread_ranks(int world_size, const std::function<void(int rank, Store store)>& body);

}  // namespace orthant::comm
