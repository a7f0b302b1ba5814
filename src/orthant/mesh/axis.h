// The six axes of parallelism and small sets of them. Everything that speaks of an axis, on the command line, in files
// and in code, uses these names; `ep` is a second view of the same ranks (see Note [Expert view] in mesh.h) and has no
// place in the product that makes the world.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <initializer_list>
#include <iterator>
#include <string>
#include <string_view>

namespace orthant {

enum class Axis { pp, dp, fsdp, cp, tp, ep };

// All axes in canonical order.
inline constexpr std::array<Axis, 6> kAxes = {Axis::pp, Axis::dp, Axis::fsdp, Axis::cp, Axis::tp, Axis::ep};

// "tp".
std::string_view axis_name(Axis axis);

// The axis of that name; a ConfigError that names the nearest one otherwise.
Axis parse_axis(std::string_view text);

// A set of axes. Iterates in canonical order.
class AxisSet {
 public:
  class Iterator {
   public:
    using iterator_category = std::forward_iterator_tag;
    using value_type = Axis;
    using difference_type = std::ptrdiff_t;
    using pointer = const Axis*;
    using reference = Axis;

    constexpr Iterator() = default;
    constexpr explicit Iterator(unsigned bits) : bits_(bits) {}
    constexpr Axis operator*() const { return static_cast<Axis>(std::countr_zero(bits_)); }
    constexpr Iterator& operator++() {
      bits_ &= bits_ - 1;
      return *this;
    }
    constexpr Iterator operator++(int) {
      Iterator before = *this;
      ++*this;
      return before;
    }
    friend constexpr bool operator==(Iterator, Iterator) = default;

   private:
    unsigned bits_ = 0;
  };

  constexpr AxisSet() = default;
  // Implicit: one axis is a set, as in groups(Axis::tp).
  constexpr AxisSet(Axis axis) : bits_(1U << static_cast<unsigned>(axis)) {}  // NOLINT(google-explicit-constructor)
  constexpr AxisSet(std::initializer_list<Axis> axes) {
    for (Axis axis : axes) bits_ |= AxisSet(axis).bits_;
  }

  // Axes joined by "+" in any order, as name() writes them; ConfigError on an unknown or repeated axis.
  static AxisSet parse(std::string_view text);

  constexpr bool contains(Axis axis) const { return (bits_ & AxisSet(axis).bits_) != 0; }
  constexpr bool contains(AxisSet other) const { return (bits_ & other.bits_) == other.bits_; }
  constexpr bool empty() const { return bits_ == 0; }
  constexpr int size() const { return std::popcount(bits_); }
  constexpr Iterator begin() const { return Iterator(bits_); }
  constexpr Iterator end() const { return Iterator(); }

  // "dp+fsdp" in canonical order; "none" when empty.
  std::string name() const;

  friend constexpr bool operator==(AxisSet, AxisSet) = default;
  friend constexpr AxisSet operator|(AxisSet a, AxisSet b) { return from_bits(a.bits_ | b.bits_); }
  friend constexpr AxisSet operator&(AxisSet a, AxisSet b) { return from_bits(a.bits_ & b.bits_); }
  friend constexpr AxisSet operator-(AxisSet a, AxisSet b) { return from_bits(a.bits_ & ~b.bits_); }

 private:
  static constexpr AxisSet from_bits(unsigned bits) {
    AxisSet set;
    set.bits_ = bits;
    return set;
  }

  unsigned bits_ = 0;
};

// The axes whose degrees multiply to the world size: all but ep.
inline constexpr AxisSet kMeshAxes = {Axis::pp, Axis::dp, Axis::fsdp, Axis::cp, Axis::tp};

}  // namespace orthant
