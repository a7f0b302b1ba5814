#include "orthant/cli/link_bench.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "orthant/ops/linear/projection.h"
#include "orthant/plan/estimate/link_fit.h"

namespace orthant::cli {
namespace {

constexpr std::int64_t kKiB = 1024;
constexpr std::int64_t kMiB = 1024 * kKiB;
const std::vector<std::int64_t> kSizes = {4 * kKiB, 64 * kKiB, kMiB, 16 * kMiB};

// A sum of gradients, and products that take longer than it travels.
constexpr std::int64_t kBesideBytes = 16 * kMiB;
constexpr std::int64_t kBesideWidth = 512;
constexpr int kBesideProducts = 20;

}  // namespace

LinkBench::LinkBench(RankClock& clock, const comm::Communicator& communicator)
    : clock_(clock), communicator_(communicator), group_(clock.group()) {
  for (const auto bytes : kSizes) {
    for (const bool placed : {false, true}) add_collectives(bytes, placed);
    add_message(bytes);
  }
  add_beside();
}

// `placed`: where peers can read it, as gradients are; activations are not.
at::Tensor LinkBench::tensor(std::int64_t elements, bool placed) const {
  if (placed) return communicator_.allocate(elements, at::kFloat).zero_();
  return at::zeros({elements}, at::TensorOptions().dtype(at::kFloat).device(clock_.device()));
}

void LinkBench::add(double hops, double bytes, std::function<void()> call) {
  travels_.push_back({hops, bytes, clock_.add(std::move(call), RankClock::Kind::exchange)});
}

// Hops and bytes are those of rings, as exchange_seconds() counts them.
void LinkBench::add_collectives(std::int64_t bytes, bool placed) {
  const std::int64_t part_elements = bytes / 4 / group_.size();
  const auto whole = tensor(part_elements * group_.size(), placed);
  const auto other = tensor(part_elements * group_.size(), placed);
  const auto part = tensor(part_elements, placed);
  const double hops = group_.size() - 1;
  const double passed = hops * static_cast<double>(part.nbytes());
  add(2 * hops, 2 * passed, [=, group = group_]() mutable { group.all_reduce(whole).wait(); });
  add(hops, passed, [=, group = group_]() mutable { group.all_gather(other, part).wait(); });
  add(hops, passed, [=, group = group_]() mutable { group.reduce_scatter(part, whole).wait(); });
}

// Between neighbours, there and back; of an odd number of ranks the last one has none.
void LinkBench::add_message(std::int64_t bytes) {
  for (int own = 0; own + 1 < group_.size(); own += 2) group_.connect({{own, own + 1}, {own + 1, own}});
  const auto sent = tensor(bytes / 4, /*placed=*/false);
  const auto received = tensor(bytes / 4, /*placed=*/false);
  const int own = group_.index();
  const int peer = own % 2 == 0 ? own + 1 : own - 1;
  add(2, 2 * static_cast<double>(bytes), [=, group = group_]() mutable {
    if (peer >= group.size()) return;
    if (own < peer) group.send(sent, peer).wait();
    group.receive(received, peer).wait();
    if (own > peer) group.send(sent, peer).wait();
  });
}

void LinkBench::add_beside() {
  const auto x = at::randn({kBesideWidth, kBesideWidth}, at::TensorOptions().device(clock_.device()));
  const auto sum = tensor(kBesideBytes / 4, /*placed=*/true);
  const auto compute = [x] {
    const nn::BelowAutograd below;
    for (int i = 0; i < kBesideProducts; ++i) nn::project(x, x, {}, {});
  };
  computing_ = clock_.add(compute);
  const auto exchange = RankClock::Kind::exchange;
  travelling_ = clock_.add([=, group = group_]() mutable { group.all_reduce(sum).wait(); }, exchange);
  both_ = clock_.add(
      [=, group = group_]() mutable {
        auto work = group.all_reduce(sum);
        compute();
        work.wait();
      },
      exchange);
}

void LinkBench::fill_in(Hardware& hardware) const {
  std::vector<LinkSample> samples;
  for (const auto& travel : travels_) samples.push_back({travel.hops, travel.bytes, clock_.seconds(travel.piece)});
  hardware.local = fit_link(samples);
  hardware.local.name = communicator_.backend_name();
  const double lost = clock_.seconds(both_) - clock_.seconds(computing_);
  hardware.local.slows_compute = std::clamp(lost / clock_.seconds(travelling_), 0.0, 1.0);
  hardware.network = hardware.local;
}

}  // namespace orthant::cli
