#include "orthant/ops/experts/token_exchange.h"

#include <ATen/ATen.h>

#include <numeric>
#include <vector>

namespace orthant::nn {
namespace {

using Counts = std::vector<std::int64_t>;

Counts numbers(const at::Tensor& counts) {
  const at::Tensor host = counts.cpu();
  return {host.const_data_ptr<std::int64_t>(), host.const_data_ptr<std::int64_t>() + host.numel()};
}

// Rows that this rank sends to each.
Counts sent_rows(const at::Tensor& counts, const ExpertAxis& axis) {
  const Counts all = numbers(counts);
  Counts rows;
  for (int r = 0; r < axis.degree(); ++r) {
    const Range own = axis.experts(static_cast<std::int64_t>(all.size()), r);
    rows.push_back(std::accumulate(all.begin() + own.begin, all.begin() + own.end, std::int64_t{0}));
  }
  return rows;
}

// Rows of this rank's experts that each sends, and where they go: rows arrive by sender, then expert, and lie by
// expert, then sender.
struct Arrivals {
  Counts rows;
  Counts order;  // per row as it lies: its place among those that arrive
};
Arrivals arrivals(const at::Tensor& held, const ExpertAxis& axis) {
  const Counts all = numbers(held);
  const auto senders = static_cast<std::size_t>(axis.degree());
  const std::size_t experts = all.size() / senders;
  Arrivals found;
  Counts first(all.size());
  std::exclusive_scan(all.begin(), all.end(), first.begin(), std::int64_t{0});
  for (std::size_t s = 0; s < senders; ++s) {
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(s * experts);
    found.rows.push_back(std::accumulate(begin, begin + static_cast<std::ptrdiff_t>(experts), std::int64_t{0}));
  }
  for (std::size_t e = 0; e < experts; ++e) {
    for (std::size_t s = 0; s < senders; ++s) {
      const std::size_t from = s * experts + e;
      for (std::int64_t i = 0; i < all[from]; ++i) found.order.push_back(first[from] + i);
    }
  }
  return found;
}

at::Tensor index(const Counts& order, const at::Tensor& like) {
  return at::tensor(order, at::TensorOptions().dtype(at::kLong)).to(like.device());
}

// Puts what has arrived in order.
class ArrivingRows : public Exchange {
 public:
  ArrivingRows(std::unique_ptr<Exchange> exchange, at::Tensor arrived, at::Tensor order, at::Tensor rows)
      : exchange_(std::move(exchange)),
        arrived_(std::move(arrived)),
        order_(std::move(order)),
        rows_(std::move(rows)) {}
  void wait() override {
    exchange_->wait();
    at::index_select_out(rows_, arrived_, 0, order_);
  }

 private:
  std::unique_ptr<Exchange> exchange_;
  at::Tensor arrived_;
  at::Tensor order_;
  at::Tensor rows_;
};

// Keeps what leaves until it has left.
class LeavingRows : public Exchange {
 public:
  LeavingRows(std::unique_ptr<Exchange> exchange, at::Tensor leaving)
      : exchange_(std::move(exchange)), leaving_(std::move(leaving)) {}
  void wait() override { exchange_->wait(); }

 private:
  std::unique_ptr<Exchange> exchange_;
  at::Tensor leaving_;
};

}  // namespace

at::Tensor held_counts(const at::Tensor& counts, ExpertAxis& axis) {
  const auto experts = counts.size(0);
  const auto degree = static_cast<std::size_t>(axis.degree());
  const Counts received(degree, axis.experts(experts).size());
  Counts sent;
  for (std::size_t r = 0; r < degree; ++r) sent.push_back(axis.experts(experts, static_cast<int>(r)).size());
  at::Tensor held = at::empty({static_cast<std::int64_t>(degree) * received.front()}, counts.options());
  axis.all_to_all(held, counts.contiguous(), received, sent)->wait();
  return held;
}

MovingRows to_experts(const at::Tensor& rows, const at::Tensor& counts, const at::Tensor& held, ExpertAxis& axis) {
  const Arrivals arriving = arrivals(held, axis);
  at::Tensor arrived = at::empty({static_cast<std::int64_t>(arriving.order.size()), rows.size(1)}, rows.options());
  at::Tensor sorted = at::empty_like(arrived);
  const Counts sent = sent_rows(counts, axis);
  // A device has rows of dropped slots behind the others.
  at::Tensor own = rows.narrow(0, 0, std::accumulate(sent.begin(), sent.end(), std::int64_t{0})).contiguous();
  auto exchange = axis.all_to_all(arrived, own, arriving.rows, sent);
  return {sorted, std::make_unique<ArrivingRows>(std::make_unique<LeavingRows>(std::move(exchange), std::move(own)),
                                                 std::move(arrived), index(arriving.order, rows), sorted)};
}

MovingRows from_experts(const at::Tensor& rows, const at::Tensor& counts, const at::Tensor& held, ExpertAxis& axis) {
  const Arrivals arriving = arrivals(held, axis);
  at::Tensor leaving = at::empty_like(rows);
  leaving.index_copy_(0, index(arriving.order, rows), rows);
  const Counts back = sent_rows(counts, axis);
  const auto total = std::accumulate(back.begin(), back.end(), std::int64_t{0});
  at::Tensor own = at::empty({total, rows.size(1)}, rows.options());
  auto exchange = axis.all_to_all(own, leaving, back, arriving.rows);
  return {std::move(own), std::make_unique<LeavingRows>(std::move(exchange), std::move(leaving))};
}

}  // namespace orthant::nn
