#include "orthant/launch/member_connection.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <thread>

#include "orthant/base/error.h"

namespace orthant::launch {
namespace {

constexpr auto kKnockPause = std::chrono::milliseconds(50);

}  // namespace

Fd connect_as_member(const Endpoint& endpoint, const Membership& membership, Purpose purpose, const std::string& who,
                     double timeout_seconds, const Say& say) {
  const auto deadline = Clock::now() + seconds(timeout_seconds);
  std::set<std::string> told;
  int num_silent = 0;
  for (std::string problem;;) {
    Fd fd;
    try {
      fd = connect_tcp(endpoint, left_until(deadline));
    } catch (const CommError&) {
      if (problem.empty()) throw;
    }
    if (!fd || left_until(deadline) <= 0) {
      throw CommError(
          fmt::format("nobody at {} proved to be {} of this job within {:.6g} s: {}", endpoint_text(endpoint), who,
                      timeout_seconds, problem.empty() ? "no time was left" : problem),
          {.remedy = "give every host the same token, and see who else listens there"});
    }
    const auto found = prove_membership(fd.get(), membership, purpose, deadline);
    if (!found) return fd;
    problem = *found;
    // One that listens and is not yet ready to serve looks like this once.
    if (problem == kNoChallenge && ++num_silent < 2) continue;
    if (say && told.insert(problem).second) {
      say(fmt::format("whoever answers at {} did not prove to be {} of this job: {}; trying again",
                      endpoint_text(endpoint), who, problem));
    }
    std::this_thread::sleep_for(kKnockPause);
  }
}

}  // namespace orthant::launch
