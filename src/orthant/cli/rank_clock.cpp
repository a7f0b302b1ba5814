#include "orthant/cli/rank_clock.h"

#include <ATen/ops/full.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <chrono>
#include <numeric>

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

std::size_t RankClock::add(std::function<void()> call) {
  pieces_.push_back({std::move(call)});
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

// Of the time that all rounds took, the part that they would not have taken with medians alone.
double RankClock::share_beyond_medians(const std::vector<std::vector<double>>& samples) const {
  double taken = 0, medians = 0;
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    taken += pieces_[i].calls * std::accumulate(samples[i].begin(), samples[i].end(), 0.0);
    medians += pieces_[i].calls * quantile(samples[i], 0.5) * kRounds;
  }
  return std::max(1 - medians / taken, 0.0);
}

void RankClock::run(const std::function<void(int round)>& begins) {
  for (auto& piece : pieces_) {
    time(piece);  // the first call may prepare something
    const double seconds = agreed(time(piece), comm::Reduction::max);
    piece.calls = static_cast<int>(std::clamp(kRoundSeconds / seconds, 1.0, kMostCalls));
  }
  std::vector<std::vector<double>> samples(pieces_.size());
  for (int round = 1; round <= kRounds; ++round) {
    begins(round);
    for (std::size_t i = 0; i < pieces_.size(); ++i) samples[i].push_back(time(pieces_[i]));
  }
  const auto average = [this](double value) { return agreed(value, comm::Reduction::sum) / group_.size(); };
  interrupted_ = average(share_beyond_medians(samples));
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    pieces_[i].seconds = average(quantile(samples[i], 0.5)) / (1 - interrupted_);
  }
}

}  // namespace orthant::cli
