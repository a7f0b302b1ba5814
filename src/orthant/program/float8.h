// Products of transformer layers in float8.
//
// Note [Float8 products]: a product y = x W^T reads operands of 8 bits: e4m3, 4 bits of exponent and 3 of mantissa.
// Every row of x (a token) and every row of W (an output) is multiplied by a power of two that brings its largest
// magnitude just below 448, e4m3's largest, and rounded; what the product adds up is multiplied back. Powers of two
// round nothing, and a number keeps the same mantissa whatever its row's largest is, unless it lies below 2^-14 of
// that. So where tp or the sequence cuts what is summed over, each rank takes the largest of its own part: ranks
// exchange no maxima, and only numbers below 2^-14 of a row's largest may round otherwise than on one rank, by less
// than 2^-18 of it. The gradient of x is such a product, too: of gy by tokens and of W^T by inputs, which is W rounded
// anew, in its other direction. Gradients take e4m3 as well: with a power of two for each token the exponents of e5m2
// are not needed, its third bit of mantissa is missed. Gradients of weights are products of numbers that were not
// rounded, added in float32.
//
// Pure.
#pragma once

#include <set>

#include "orthant/program/program.h"

namespace orthant {

// What both dims of a weight must be multiples of on every rank: cards multiply e4m3 in such pieces.
inline constexpr std::int64_t kFloat8Multiple = 16;

// The resolved graph with products of its transformer layers marked; a graph that is marked stays as it is. ConfigError
// that names the unit where there are none, where experts' products would be left out, or where a weight has a dim that
// is no multiple of 16 on some rank.
GraphSpec with_float8_products(const GraphSpec& resolved);

// Elements of the rows that a rank rounds: of tokens, gradients and weights.
std::set<std::int64_t> float8_widths(const GraphSpec& marked);

// Puts `round_float8` (in x; out the rounded x, scales of its rows) in front of marked products of all lists: a project
// then reads rounded x, what is added, scales; a product_back rounded gy, scales. What products of one list read alike
// is rounded once. Before frees are added.
void round_operands(Program& program);

}  // namespace orthant
