#include "orthant/ops/rotary/rotary_tables.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "orthant/ops/exchange/token_values.h"

namespace orthant {

RotaryTables::RotaryTables(const Binding& b)
    : tables_(&b.tables),
      theta_(b.attributes().number("theta")),
      head_size_(b.attributes().integer("head_size")),
      max_positions_(b.attributes().integer("max_positions")),
      scaling_(rope_scaling_of(b.attributes().numbers("scaling"))) {}

const nn::RotaryTable& RotaryTables::get(const nn::Pass& pass, const at::TensorOptions& options) {
  whole(pass, options);
  return own_;
}

const nn::RotaryTable& RotaryTables::whole(const nn::Pass& pass, const at::TensorOptions& options) {
  const std::int64_t sequence = pass.most_positions();
  if (sequence_ == sequence) return whole_;
  sequence_ = sequence;
  // Dynamic frequencies are those of one length; all others serve every length.
  const bool dynamic = scaling_.kind == RopeScaling::Kind::dynamic;
  const auto name = fmt::format("rotary {} {} {}", head_size_, theta_, dynamic ? sequence : 0);
  const auto table = [&](const char* part, at::Tensor nn::RotaryTable::* member) {
    return tables_->rows(fmt::format("{} {}", name, part), sequence,
                         [&](std::int64_t positions) { return make(positions, options).*member; });
  };
  whole_ = {table("cos", &nn::RotaryTable::cos), table("sin", &nn::RotaryTable::sin)};
  // All layers share them.
  const auto own = [&](const char* part, const at::Tensor& all) {
    return tables_->of_length(fmt::format("{} own {}", name, part), sequence,
                              [&] { return nn::own_table_rows(all, pass); });
  };
  own_ = pass.context == nullptr ? whole_ : nn::RotaryTable{own("cos", whole_.cos), own("sin", whole_.sin)};
  return whole_;
}

nn::RotaryTable RotaryTables::make(std::int64_t positions, const at::TensorOptions& options) const {
  const auto frequencies = rope_frequencies(scaling_, theta_, head_size_, max_positions_, sequence_);
  return nn::rotary_table(positions, inverse_frequencies(frequencies.inverse, options), frequencies.magnitude, options);
}

// Pretrained weights have seen angles in float32, powers and products rounded as torch rounds them: at position 1000 an
// exact angle differs by 1e-4. So they are computed alike, except in float64.
at::Tensor RotaryTables::inverse_frequencies(const std::vector<double>& exact, const at::TensorOptions& options) const {
  const auto doubles = at::tensor(exact, at::dtype(at::kDouble));
  if (options.dtype() == at::kDouble) return doubles;
  const auto powers = [&](at::ScalarType type) {
    const auto exponents = at::arange(0, head_size_, 2, at::dtype(type)) / head_size_;
    return at::pow(theta_, exponents).reciprocal();
  };
  return powers(at::kFloat) * (doubles / powers(at::kDouble)).to(at::kFloat);  // the quotient is the scaling
}

}  // namespace orthant
