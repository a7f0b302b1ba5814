#include <ATen/ATen.h>
#include <fmt/format.h>

#include <cmath>

#include "orthant/nn/binding.h"
#include "orthant/ops/exchange/token_values.h"

namespace orthant {
namespace {

// [sequence, width]: sines in even channels, cosines in odd ones, waves from 2 pi to 20000 pi positions long.
at::Tensor sine_positions(std::int64_t sequence, std::int64_t width, const at::TensorOptions& options) {
  const auto doubles = at::dtype(at::kDouble);
  const auto rates = at::arange(0, width, 2, doubles).mul_(-std::log(10000.0) / static_cast<double>(width)).exp_();
  const auto angles = at::outer(at::arange(sequence, doubles), rates);
  at::Tensor table = at::empty({sequence, width}, doubles);
  table.slice(1, 0, width, 2).copy_(angles.sin());
  // An odd width has a sine more than cosines.
  table.slice(1, 1, width, 2).copy_(angles.narrow(1, 0, width / 2).cos());
  return table.to(options);
}

Step bind_waves(const Binding& b) {
  return [scale = b.attributes().number("scale"), x = b.in(0), y = b.out(0), tables = &b.tables,
          cut = b.placement(b.in(0)).cuts_tokens()](Frame& frame) {
    const nn::Pass& pass = frame.pass;
    const std::int64_t width = frame[x].size(1);
    const auto all = tables->rows(fmt::format("sines {}", width), pass.whole_sequence(),
                                  [&](std::int64_t rows) { return sine_positions(rows, width, frame[x].options()); });
    const at::Tensor waves = nn::own_table_rows(all, pass);
    const at::Tensor scaled = frame[x] * scale;
    if (pass.token_rows != nullptr) {
      const Range own = cut ? pass.own_tokens() : Range{0, pass.num_tokens()};
      frame[y] = scaled + waves.index_select(0, pass.token_rows->position[0].slice(0, own.begin, own.end));
    } else if (cut) {
      const Range own = pass.own_tokens();
      const auto places = at::arange(own.begin, own.end, at::TensorOptions().dtype(at::kLong).device(waves.device()));
      frame[y] = scaled + waves.index_select(0, places.remainder(pass.sequence));
    } else {
      frame[y] = (scaled.view({pass.rows, pass.sequence, width}) + waves).view({-1, width});
    }
  };
}

Step bind_scale(const Binding& b) {
  return [scale = b.attributes().number("scale"), x = b.in(0), y = b.out(0)](Frame& frame) {
    frame[y] = frame[x] * scale;
  };
}

}  // namespace

std::vector<NamedBinder> waves_binders() {
  return {{"waves", bind_waves}, {"scale", bind_scale}};
}

}  // namespace orthant
