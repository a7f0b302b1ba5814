#include "orthant/ops/dropout/site_draw.h"

#include <ATen/ATen.h>

namespace orthant {

std::int64_t first_of(const Dim& dim, const nn::TensorAxis* axis) {
  if (dim.cuts.empty() || axis == nullptr) return 0;
  const std::int64_t granule = dim.cuts.front().granule;
  return axis->part(dim.factor / granule).begin * granule;
}

SiteDraw::SiteDraw(const Binding& b, int like) {
  if (b.attributes().find("p") == nullptr || like < 0) return;
  p_ = b.attributes().number("p");
  if (p_ == 0) return;
  site_ = b.site();
  const ValuePlace& at = b.placement(like);
  of_tokens_ = at.dims.front().sym == Sym::tokens;
  per_token_ = of_tokens_ && !at.cuts_tokens();
  first_channel_ = first_of(at.dims.back(), b.tensor);
}

std::optional<nn::DropoutGrid> SiteDraw::grid(std::int64_t rows, std::int64_t channels, const nn::Pass& pass) const {
  if (!nn::drops(p_, pass)) return std::nullopt;
  auto grid = per_token_ ? nn::dropout_grid(pass, site_, p_, {pass.rows, pass.sequence, channels}, 0, first_channel_)
                         : nn::dropout_grid(pass, site_, p_, {rows, channels}, 0, first_channel_);
  if (of_tokens_) grid.token_rows = pass.token_rows;
  return grid;
}

}  // namespace orthant
