// Serves the live page of one run until somebody says stop.
#pragma once

#include <functional>

#include "orthant/http/access.h"
#include "orthant/launch/sockets.h"
#include "orthant/watch/run_watch.h"

namespace orthant::watch {

// `listener` is bound and listens. Blocks until `stops` says so, which is asked about every 100 ms, and two seconds
// longer at most.
void serve_run(RunWatch& watch, launch::Fd listener, const http::AccessRules& access,
               const std::function<bool()>& stops);

}  // namespace orthant::watch
