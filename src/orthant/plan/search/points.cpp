#include "orthant/plan/search/points.h"

#include <algorithm>

namespace orthant {
namespace {

constexpr std::size_t kMostSampled = 2500;

PointSample::Price price_of(const PricedPoint& point) {
  return {point.tp, point.pp, point.memory_bytes, point.tokens_per_second_per_gpu, point.fits};
}

}  // namespace

bool PointSample::is_beyond_front(const Price& price) const {
  if (!price.fits) return false;
  const auto above = front_.upper_bound(price.memory_bytes);
  return above == front_.begin() || std::prev(above)->second.second.tokens_per_second_per_gpu < price.tokens_per_second;
}

bool PointSample::is_best_of_pair(const Price& price) const {
  const auto found = pairs_.find({price.tp, price.pp});
  if (found == pairs_.end()) return true;
  const Price other = price_of(found->second.second);
  if (price.fits != other.fits) return price.fits;
  return price.fits ? price.tokens_per_second > other.tokens_per_second : price.memory_bytes < other.memory_bytes;
}

bool PointSample::wants(std::int64_t order, const Price& price) const {
  return order % stride_ == 0 || is_beyond_front(price) || is_best_of_pair(price);
}

void PointSample::add(std::int64_t order, const PricedPoint& point) {
  const float speed = point.tokens_per_second_per_gpu;
  const Price price = price_of(point);
  if (is_best_of_pair(price)) pairs_.insert_or_assign(std::pair(point.tp, point.pp), std::pair(order, point));
  if (is_beyond_front(price)) {
    const auto [place, made] = front_.insert_or_assign(point.memory_bytes, std::pair(order, point));
    for (auto next = std::next(place);
         next != front_.end() && next->second.second.tokens_per_second_per_gpu <= speed;) {
      next = front_.erase(next);
    }
  }
  if (order % stride_ != 0) return;
  sample_.emplace_back(order, point);
  if (sample_.size() < kMostSampled) return;
  stride_ *= 2;
  std::erase_if(sample_, [this](const auto& sampled) { return sampled.first % stride_ != 0; });
}

std::vector<PricedPoint> PointSample::points() const {
  std::map<std::int64_t, const PricedPoint*> ordered;
  for (const auto& [order, point] : sample_) ordered[order] = &point;
  for (const auto& [memory, point] : front_) ordered[point.first] = &point.second;
  for (const auto& [pair, point] : pairs_) ordered[point.first] = &point.second;
  std::vector<PricedPoint> points;
  for (const auto& [order, point] : ordered) points.push_back(*point);
  return points;
}

}  // namespace orthant
