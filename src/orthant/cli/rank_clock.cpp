#include "orthant/cli/rank_clock.h"

#include <ATen/ops/full.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <chrono>

#include "orthant/base/quantile.h"

namespace orthant::cli {
namespace {

constexpr double kRoundSeconds = 0.01;  // that a round of a short call takes
constexpr double kMostCalls = 10000;

}  // namespace

void synchronize(const at::Device& device) {
  if (!device.is_cpu()) c10::impl::VirtualGuardImpl(device.type()).synchronizeDevice(device.index());
}

double RankClock::agreed(double value, comm::Reduction reduction) {
  const auto number = at::full({1}, value, at::TensorOptions().dtype(at::kDouble).device(device_));
  group_.all_reduce(number, reduction).wait();
  return number.item<double>();
}

std::size_t RankClock::add(std::function<void()> call, Kind kind) {
  pieces_.push_back({std::move(call), kind});
  return pieces_.size() - 1;
}

double RankClock::time(const Piece& piece) {
  synchronize(device_);
  group_.barrier().wait();
  const auto began = std::chrono::steady_clock::now();
  for (int i = 0; i < piece.calls; ++i) piece.call();
  synchronize(device_);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count() / piece.calls;
}

// On average over the ranks; `samples` are seconds of a call by piece and round.
double RankClock::own_interruptions(const std::vector<std::vector<double>>& samples) {
  std::vector<std::vector<double>> rounds;
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    if (pieces_[i].kind == Kind::exchange) continue;
    auto& seconds = rounds.emplace_back(samples[i]);
    for (double& one : seconds) one *= pieces_[i].calls;
  }
  return std::max(agreed(share_beyond_medians(rounds), comm::Reduction::sum) / group_.size(), 0.0);
}

void RankClock::run(int rounds, const std::function<void(int round)>& begins) {
  for (auto& piece : pieces_) {
    time(piece);  // the first call may prepare something
    const double seconds = agreed(time(piece), comm::Reduction::max);
    piece.calls = static_cast<int>(std::clamp(kRoundSeconds / seconds, 1.0, kMostCalls));
  }
  std::vector<std::vector<double>> samples(pieces_.size());
  for (int round = 1; round <= rounds; ++round) {
    begins(round);
    for (std::size_t i = 0; i < pieces_.size(); ++i) samples[i].push_back(time(pieces_[i]));
  }
  interrupted_ = own_interruptions(samples);
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    const double median = agreed(quantile(samples[i], 0.5), comm::Reduction::sum) / group_.size();
    pieces_[i].seconds = median / (1 - interrupted_);
  }
}

}  // namespace orthant::cli
