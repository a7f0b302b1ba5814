// The optimizer's copy of flat parameters: one tensor, or two halves whose upper one is the copy that products use.
//
// Note [Split master]: `precision.master` bf16_remainder keeps a float32 as the bfloat16 that products read and 16 more
// bits, which is lossless: with bits b the upper half is (b + 0x8000) >> 16 and the remainder is the lower half of b as
// an int16, so that b is (upper << 16) + remainder. The upper half is thus b rounded to the nearest bfloat16, and what
// lies halfway away from zero; by the usual rule, halfway to even, an even upper half with remainder 0x8000 would stand
// for two numbers. So that both kinds of master train to the same bits, this rounding makes every bfloat16 copy of a
// float32 master (round_into). It overflows to infinity where the usual rule does (the remainder still leads back), and
// a NaN becomes the NaN 0x7fc0 with remainder 0.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <utility>

#include "orthant/layout/data_policy.h"
#include "orthant/parallel/data/precision.h"

namespace orthant {

class MasterValues {
 public:
  MasterValues() = default;
  explicit MasterValues(at::Tensor whole) : whole_(std::move(whole)) {}
  // bfloat16 and int16, of one length on one device.
  MasterValues(at::Tensor upper, at::Tensor remainder);

  bool is_split() const { return upper_.defined(); }
  std::int64_t size() const { return is_split() ? upper_.numel() : whole_.numel(); }
  at::ScalarType scalar_type() const { return is_split() ? at::kFloat : whole_.scalar_type(); }
  at::Device device() const { return is_split() ? upper_.device() : whole_.device(); }
  bool is_cpu() const { return device().is_cpu(); }
  // InternalError where they are not stored so.
  const at::Tensor& whole() const;
  const at::Tensor& upper() const;
  const at::Tensor& remainder() const;

  // What has the values' exponents: the values, or their upper halves, which overflow a little earlier.
  const at::Tensor& exponents() const { return is_split() ? upper_ : whole_; }

  MasterValues narrow(std::int64_t first, std::int64_t count) const;

  // Of all: what is stored, where it is stored whole; else a new tensor. For large ones see in_pieces().
  at::Tensor values() const;
  void set_values(const at::Tensor& values) const;
  // Gives `act` the values as a tensor to change, and keeps what it makes of them.
  void change(const std::function<void(const at::Tensor& values)>& act) const;

  // Calls `act` with parts in order, so that values() of a part is small where it is a new tensor. One call where the
  // values are stored whole.
  void in_pieces(const std::function<void(std::int64_t first, const MasterValues& part)>& act) const;

 private:
  at::Tensor whole_;
  at::Tensor upper_;
  at::Tensor remainder_;
};

// ConfigError where the optimizer's copy cannot be stored as asked for.
void check_master(const Precision& precision, const DataPolicy& policy);

// The copy of `source`, the optimizer's, that products use. A bfloat16 one of float32 values is rounded as Note [Split
// master] says, others as ATen does. The same shape; the devices may differ, then a device may still have to copy when
// this returns.
void round_into(const at::Tensor& target, const at::Tensor& source);

}  // namespace orthant
