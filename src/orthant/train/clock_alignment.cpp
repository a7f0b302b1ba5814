#include "orthant/train/clock_alignment.h"

#include <ATen/ATen.h>

#include <limits>

#include "orthant/trace/event.h"

namespace orthant {
namespace {

std::int64_t exchanged(comm::Group& world, int peer, bool sends_first, std::int64_t own) {
  const auto mine = at::tensor({own}, at::kLong);
  const auto theirs = at::empty({1}, at::kLong);
  if (sends_first) {
    auto sent = world.send(mine, peer);
    world.receive(theirs, peer).wait();
    sent.wait();
  } else {
    world.receive(theirs, peer).wait();
    mine[0] = trace::now_ns();
    world.send(mine, peer).wait();
  }
  return theirs.item<std::int64_t>();
}

// Rank 0's half, for one other rank: sends nothing of interest, learns the other clock.
ClockOffset measured(comm::Group& world, int peer, int rounds) {
  ClockOffset best{.offset_ns = 0, .error_ns = std::numeric_limits<std::int64_t>::max()};
  for (int i = 0; i < rounds; ++i) {
    const auto before = trace::now_ns();
    const auto other = exchanged(world, peer, /*sends_first=*/true, 0);
    const auto after = trace::now_ns();
    const auto error = (after - before) / 2;
    if (error < best.error_ns) best = {.offset_ns = before + error - other, .error_ns = error};
  }
  return best;
}

}  // namespace

ClockOffset align_clock(const ControlGroup& ranks, int rounds) {
  if (ranks.alone()) return {};
  auto world = ranks.world();
  ClockOffset own;
  for (int r = 1; r < ranks.size(); ++r) {
    if (ranks.is_first()) {
      const auto found = measured(world, r, rounds);
      world.send(at::tensor({found.offset_ns, found.error_ns}, at::kLong), r).wait();
    } else if (ranks.rank() == r) {
      for (int i = 0; i < rounds; ++i) exchanged(world, 0, /*sends_first=*/false, 0);
      const auto found = at::empty({2}, at::kLong);
      world.receive(found, 0).wait();
      own = {found[0].item<std::int64_t>(), found[1].item<std::int64_t>()};
    }
  }
  return own;
}

}  // namespace orthant
