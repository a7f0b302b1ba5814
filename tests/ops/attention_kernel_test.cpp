// The kernels of attention for every instruction set of this CPU, and the plain formulas, against each other.
#include "ops/attention_case.h"
#include "orthant/ops/attention/attention_heads.h"
#include "orthant/ops/attention/cpu_kernels.h"

namespace orthant::nn {
namespace attention_kernel_test {

using Case = AttentionCase;
using Shape = AttentionShape;

TEST(AttentionHeads, PlainFormulasAgreeWithTheKernels) {
  at::NoGradGuard no_grad;
  for (const Shape& shape : kAttentionShapes) {
    SCOPED_TRACE(text(shape));
    Case given(shape, at::kDouble);
    const HeadsSetup setup = heads_setup(given.qkv, given.options, pass_at(3, 0, 2));
    const at::Tensor qkv = given.qkv.detach().clone(), rotated_qkv = qkv.clone();
    rotate_heads(rotated_qkv, given.options);
    const HeadsOutput fused = heads_forward(qkv, setup, true), plain = plain_heads_forward(rotated_qkv, setup);
    expect_close(qkv, rotated_qkv, 1e-14, 1e-14, "rotated qkv");
    expect_close(fused.out, plain.out, 1e-12, 1e-12, "out");
    expect_close(fused.lse, plain.lse, 1e-12, 1e-12, "lse");
    const at::Tensor d_out = random_tensor(fused.out.sizes(), 9);
    expect_close(heads_backward(qkv, fused, d_out, setup), plain_heads_backward(qkv, fused, d_out, setup), 1e-11, 1e-12,
                 "gradient");
  }
}

TEST(AttentionHeads, PlainFormulasKeepANarrowDtype) {
  at::NoGradGuard no_grad;
  Case wide({2, 19, 4, 2, 6, true, true, true, 0.25}, at::kDouble);
  const HeadsSetup setup = heads_setup(wide.qkv, wide.options, Pass());
  const at::Tensor qkv = wide.qkv.detach().clone(), d_out = random_tensor({2, 19, 24}, 9);
  const HeadsOutput expected = heads_forward(qkv, setup, false);
  for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
    SCOPED_TRACE(c10::toString(dtype));
    const HeadsOutput narrow = plain_heads_forward(qkv.to(dtype), setup);
    EXPECT_EQ(narrow.out.scalar_type(), dtype);
    EXPECT_EQ(narrow.lse.scalar_type(), at::kFloat);
    expect_close(narrow.out, expected.out, 0.05, 0.05, "out");
    const at::Tensor d_qkv = plain_heads_backward(qkv.to(dtype), narrow, d_out.to(dtype), setup);
    EXPECT_EQ(d_qkv.scalar_type(), dtype);
    expect_close(d_qkv, heads_backward(qkv, expected, d_out, setup), 0.1, 0.1, "gradient");
  }
}

TEST(AttentionHeads, PlainScoresOfFloat16DoNotOverflow) {
  at::NoGradGuard no_grad;
  Case given({1, 3, 1, 1, 64}, at::kDouble);
  const HeadsSetup setup = heads_setup(given.qkv, given.options, Pass());
  // A product of 64 x 40 x 40 = 102400 before it is scaled, and 12800 after.
  const HeadsOutput output = plain_heads_forward(at::full({1, 3, 3 * 64}, 40.0, at::kHalf), setup);
  EXPECT_TRUE(at::allclose(output.out.to(at::kFloat), at::full_like(output.out, 40.0).to(at::kFloat), 1e-2, 0))
      << output.out;
}

// The first group of heads of a case through one table of kernels, in float or double: in one call, or in blocks of
// `block` queries and block + 3 keys that join.
template <class T>
struct GroupRun {
  at::Tensor qkv, out, lse, d_out, d_qkv;

  GroupRun(const Case& given, const HeadsSetup& setup, kernels::Isa isa, at::ScalarType dtype, std::int64_t block)
      : given_(given), setup_(setup), table_(kernels::kernels_of<kernels::AttentionKernels<T>>(isa)) {
    const Shape& s = given.shape;
    const std::int64_t mine = s.heads / s.kv_heads * s.head_size, size = s.head_size;
    qkv = given.qkv.detach().to(dtype).clone();
    out = at::full({s.rows, s.sequence, s.heads * size}, 77.0, qkv.options());
    lse = at::full({s.rows, s.heads, s.sequence}, 77.0, qkv.options());
    d_out = random_tensor(out.sizes(), 9, dtype);
    d_qkv = at::full(qkv.sizes(), 77.0, qkv.options());
    if (block > 0) {
      out[0].narrow(1, 0, mine).zero_();
      lse[0].narrow(0, 0, mine / size).fill_(-std::numeric_limits<double>::infinity());
      for (const auto& [first, width] : std::vector<std::pair<std::int64_t, std::int64_t>>{
               {0, mine}, {s.heads * size, size}, {(s.heads + s.kv_heads) * size, size}}) {
        d_qkv[0].narrow(1, first, width).zero_();
      }
    }
    cos_ = s.rotary ? setup.options.rotary.cos.to(dtype) : at::Tensor();
    sin_ = s.rotary ? setup.options.rotary.sin.to(dtype) : at::Tensor();
    if (setup.drops) {
      dropout_ = {kernels::kernels_of<kernels::DropoutKernels<T>>(isa).factors, setup.dropout.draw, setup.element(0, 0),
                  kMaxPositions * kMaxChannels, kMaxChannels};
    }
    for_groups(block, [&](const auto& group) { table_.forward(group); });
    T *const q = qkv.mutable_data_ptr<T>(), *const dq = d_qkv.mutable_data_ptr<T>();
    for_groups(block, [&](const kernels::AttentionGroup<T>& group) {
      table_.backward(group,
                      {d_out.const_data_ptr<T>() + (group.out - out.const_data_ptr<T>()), nullptr, dq + (group.q - q),
                       dq + (group.k - q), dq + (group.v - q), group.q_stride, group.kv_stride});
    });
  }

 private:
  // body(group) of the whole row, or of each block.
  template <class Body>
  void for_groups(std::int64_t block, const Body& body) {
    const std::int64_t sequence = given_.shape.sequence;
    if (block == 0) return body(group_of(0, sequence, 0, sequence));
    for (std::int64_t query = 0; query < sequence; query += block) {
      for (std::int64_t key = 0; key < sequence; key += block + 3) {
        auto group = group_of(query, std::min(block, sequence - query), key, std::min(block + 3, sequence - key));
        group.joins = true;
        body(group);
      }
    }
  }

  kernels::AttentionGroup<T> group_of(std::int64_t query, std::int64_t queries, std::int64_t key, std::int64_t keys) {
    const Shape& s = given_.shape;
    // Filled with NaN: whatever is read before it is written shows.
    scratch_ = at::full({table_.scratch_elements(queries, keys, s.head_size)}, std::numeric_limits<double>::quiet_NaN(),
                        qkv.options());
    kernels::AttentionGroup<T> group;
    group.queries = queries;
    group.keys = keys;
    group.shift = query - key;
    group.heads = s.heads / s.kv_heads;
    group.head_size = s.head_size;
    group.causal = s.causal;
    group.window = setup_.options.window;
    group.scale = static_cast<T>(1 / std::sqrt(static_cast<double>(s.head_size)));
    if (s.rotary) {
      group.cos = cos_.const_data_ptr<T>();
      group.sin = sin_.const_data_ptr<T>();
    }
    if (s.masked) group.key_mask = setup_.options.key_mask.const_data_ptr<bool>() + key;
    group.dropout = dropout_;
    group.dropout.first += static_cast<std::uint64_t>(query) * kMaxChannels + static_cast<std::uint64_t>(key);
    group.q_stride = group.kv_stride = qkv.size(2);
    group.out_stride = out.size(2);
    group.lse_stride = s.sequence;
    group.q = qkv.mutable_data_ptr<T>() + query * group.q_stride;
    group.k = qkv.mutable_data_ptr<T>() + key * group.kv_stride + s.heads * s.head_size;
    group.v = group.k + s.kv_heads * s.head_size;
    group.out = out.mutable_data_ptr<T>() + query * group.out_stride;
    group.lse = lse.mutable_data_ptr<T>() + query;
    group.scratch = scratch_.mutable_data_ptr<T>();
    return group;
  }

  const Case& given_;
  const HeadsSetup& setup_;
  kernels::AttentionKernels<T> table_;
  kernels::AttentionDropout<T> dropout_;
  at::Tensor cos_, sin_, scratch_;
};

bool untouched(const at::Tensor& values) {
  return values.eq(77).all().item<bool>();
}

// Of the group's own columns; everything else must still be 77.
template <class T>
void expect_group(const Case& given, const HeadsSetup& setup, kernels::Isa isa, at::ScalarType dtype,
                  std::int64_t block) {
  SCOPED_TRACE(testing::Message() << "instruction set " << static_cast<int>(isa) << ": " << text(given.shape)
                                  << " in blocks of " << block);
  const Shape& s = given.shape;
  const GroupRun<T> run(given, setup, isa, dtype, block);
  const at::Tensor qkv = given.qkv.detach().to(at::kDouble).clone();
  rotate_heads(qkv, setup.options);
  const HeadsOutput expected = plain_heads_forward(qkv, setup);
  const at::Tensor d_qkv = plain_heads_backward(qkv, expected, run.d_out.to(at::kDouble), setup);
  const double bound = dtype == at::kFloat ? 2e-5 : 1e-11;
  const std::int64_t size = s.head_size, mine = s.heads / s.kv_heads * size;
  at::Tensor touched = at::zeros(qkv.sizes(), at::kBool);
  for (const auto& [first, width] : std::vector<std::pair<std::int64_t, std::int64_t>>{
           {0, mine}, {s.heads * size, size}, {(s.heads + s.kv_heads) * size, size}}) {
    expect_close(run.d_qkv[0].narrow(1, first, width), d_qkv[0].narrow(1, first, width), bound * 4, bound * 4, "d_qkv");
    touched[0].narrow(1, first, width).fill_(true);
  }
  EXPECT_TRUE(untouched(run.d_qkv.masked_select(touched.logical_not()))) << "wrote another's gradient";
  expect_close(run.out[0].narrow(1, 0, mine), expected.out[0].narrow(1, 0, mine), bound, bound, "out");
  // Blocks leave -infinity where a query sees no key.
  const at::Tensor lse = run.lse.masked_fill(run.lse.isneginf(), 0);
  expect_close(lse[0].narrow(0, 0, mine / size), expected.lse[0].narrow(0, 0, mine / size), bound, bound, "lse");
  EXPECT_TRUE(untouched(run.out[0].narrow(1, mine, s.heads * size - mine))) << "wrote another's output";
}

TEST(AttentionKernels, EveryInstructionSetComputesTheFormulasAndNothingBeside) {
  at::NoGradGuard no_grad;
  for (const kernels::Isa isa : {kernels::Isa::plain, kernels::Isa::avx2, kernels::Isa::avx512}) {
    if (!kernels::supported(isa)) continue;
    for (const Shape& shape : kAttentionShapes) {
      if (shape.packed) continue;  // its blocks are the caller's
      const Case given(shape, at::kDouble);
      const HeadsSetup setup = heads_setup(given.qkv, given.options, pass_at(3, 0, 2));
      for (const std::int64_t block : {0, 5, 64}) {
        if (block > 0 && shape.rotary) continue;  // blocks are of rotated queries and keys
        expect_group<float>(given, setup, isa, at::kFloat, block);
        expect_group<double>(given, setup, isa, at::kDouble, block);
      }
    }
  }
}

}  // namespace attention_kernel_test
}  // namespace orthant::nn
