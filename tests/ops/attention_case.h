// What the heads of attention are given, and shapes that reach every part of it.
#pragma once

#include "ops/oracle.h"
#include "orthant/ops/attention/attention_heads.h"

namespace orthant::nn {

// The numbers of a pass that dropout depends on.
inline Pass pass_at(std::uint64_t seed, std::int64_t step, std::int64_t first_row) {
  Pass pass;
  pass.seed = seed;
  pass.step = step;
  pass.first_row = first_row;
  return pass;
}

inline constexpr double kMagnitude = 1.25;  // of the rotary tables

struct AttentionShape {
  std::int64_t rows = 2, sequence = 7, heads = 4, kv_heads = 2, head_size = 6;
  bool causal = true, rotary = true, masked = false;
  double dropout = 0;
  bool left = false;  // padding of masked rows comes first: under a causal mask its queries see nothing
  std::int64_t window = 0;
  bool packed = false;  // rows hold documents
};

inline std::vector<double> rotary_frequencies(std::int64_t head_size, double theta) {
  std::vector<double> inverse;
  for (std::int64_t i = 0; i < head_size; i += 2) {
    inverse.push_back(std::pow(theta, -static_cast<double>(i) / static_cast<double>(head_size)));
  }
  return inverse;
}

inline std::string text(const AttentionShape& s) {
  return (testing::Message() << s.rows << " rows of " << s.sequence << ", heads " << s.heads << "/" << s.kv_heads
                             << " of " << s.head_size << (s.causal ? " causal" : "") << (s.rotary ? " rotary" : "")
                             << (s.masked ? " masked" : "") << (s.left ? " on the left" : "") << " dropout "
                             << s.dropout << " window " << s.window << (s.packed ? " packed" : ""))
      .GetString();
}

// Row r loses its last r keys, or the first third and r more, and one in the middle.
inline at::Tensor key_mask_of(const AttentionShape& shape) {
  at::Tensor mask = at::ones({shape.rows, shape.sequence}, at::kBool);
  for (std::int64_t row = 0; row < shape.rows; ++row) {
    const std::int64_t lost = row + (shape.left ? shape.sequence / 3 : 0);
    mask[row].narrow(0, shape.left ? 0 : shape.sequence - lost, lost).fill_(false);
    if (shape.sequence > 4) mask[row][2].fill_(false);
  }
  return mask;
}

// Row r has documents of 1 + r tokens, 2, 4, 8 and so on.
inline at::Tensor document_starts_of(const AttentionShape& shape) {
  at::Tensor starts = at::zeros({shape.rows, shape.sequence}, at::kLong);
  for (std::int64_t row = 0; row < shape.rows; ++row) {
    std::int64_t length = 1;
    for (std::int64_t start = 1 + row; start < shape.sequence; start += length *= 2) {
      starts[row].narrow(0, start, shape.sequence - start).fill_(start);
    }
  }
  return starts;
}

struct AttentionCase {
  AttentionShape shape;
  at::Tensor qkv;
  AttentionOptions options;

  AttentionCase(const AttentionShape& given, at::ScalarType dtype) : shape(given) {
    const auto width = (shape.heads + 2 * shape.kv_heads) * shape.head_size;
    qkv = random_tensor({shape.rows, shape.sequence, width}, 1, dtype);
    options.heads = shape.heads;
    options.kv_heads = shape.kv_heads;
    options.head_size = shape.head_size;
    options.causal = shape.causal;
    options.window = shape.window;
    if (shape.rotary) {
      options.rotary =
          rotary_table(shape.sequence, rotary_frequencies(shape.head_size, 1e4), kMagnitude, at::dtype(dtype));
    }
    options.dropout = shape.dropout;
    options.site = "layers.3.attention.dropout";
    if (shape.masked) options.key_mask = key_mask_of(shape);
    if (shape.packed) options.document_starts = document_starts_of(shape);
  }
};

// Groups of heads, one token, head sizes and lengths that fill no vector, several blocks of queries, padding
// on either side, dropout, sliding windows: of one token, of one vector and more, beyond the sequence; packed
// documents.
inline const std::vector<AttentionShape> kAttentionShapes = {
    {},
    {2, 7, 4, 2, 6, false, true, true},
    {3, 9, 3, 3, 20, true, true, true},
    {1, 1, 2, 1, 8},
    {2, 33, 2, 2, 5, false, false, true},
    {1, 300, 2, 1, 16, true, true, true},
    {1, 270, 2, 2, 64, false, false, false},
    {2, 128, 2, 2, 64, true, true, false},
    {2, 19, 4, 2, 6, true, true, true, 0.25},
    {2, 40, 2, 2, 8, false, false, true, 0.1},
    {2, 21, 4, 2, 6, true, true, true, 0, true},
    {2, 21, 4, 2, 6, true, false, true, 0.25, true},
    {1, 300, 2, 1, 16, true, true, true, 0, true},
    {2, 21, 4, 2, 6, true, true, false, 0, false, 1},
    {2, 21, 4, 2, 6, true, true, true, 0.25, true, 5},
    {1, 300, 2, 1, 16, true, true, true, 0, false, 64},
    {2, 290, 2, 1, 8, true, false, true, 0.25, true, 17},
    {1, 530, 2, 2, 8, true, true, false, 0, false, 131},
    {2, 19, 2, 2, 8, true, true, false, 0, false, 19},
    {3, 21, 4, 2, 6, true, true, false, 0, false, 0, true},
    {2, 40, 2, 2, 8, false, false, true, 0.25, false, 0, true},
    {1, 300, 2, 1, 16, true, true, true, 0.25, true, 17, true}};

}  // namespace orthant::nn
