// Attention that libraries of a CUDA device compute, against the plain formulas in float64: see device_case.h.
#include "ops/device_case.h"
#include "orthant/ops/attention/attention_heads.h"

namespace orthant::nn::device_heads_test {

using namespace device_case;

TEST(DeviceHeads, Attention) {
  Random random(6);
  for (int shape = 0; shape < std::min(kShapes, 60); ++shape) {
    const auto dtype = random.between(0, 1) == 0 ? at::kBFloat16 : at::kHalf;
    HeadsSetup setup;
    auto& options = setup.options;
    options.kv_heads = random.between(1, 3);
    options.heads = options.kv_heads * random.between(1, 4);
    options.head_size = 8 * random.between(1, 16);
    options.causal = random.between(0, 1) == 0;
    const auto rows = random.between(1, 3), sequence = random.between(1, shape % 6 == 0 ? 700 : 140);
    const auto what =
        fmt::format("attention {} x {}, {} heads, {} kv, size {}, causal {}, {}", rows, sequence, options.heads,
                    options.kv_heads, options.head_size, options.causal, c10::toString(dtype));
    if (options.head_size % 2 == 0) {
      const auto angles = at::rand({sequence, options.head_size / 2}, on_card(at::kFloat)) * 7;
      options.rotary = {angles.cos(), angles.sin()};
    }
    const auto qkv = values({rows, sequence, (options.heads + 2 * options.kv_heads) * options.head_size}, dtype);
    const auto d_out = values({rows, sequence, options.heads * options.head_size}, dtype);
    ASSERT_TRUE(device::serves_heads(qkv, setup)) << what;
    const auto run = [&] {
      const auto output = device::heads_forward(qkv, setup);
      return std::vector<at::Tensor>{output.out, output.lse, device::heads_backward(qkv, output, d_out, setup)};
    };
    setup.repeatable = true;
    const auto out = twice(run, what);
    setup.repeatable = false;
    const BelowAutograd below;
    const auto fastest = run();
    HeadsSetup exact = setup;
    exact.options.rotary = {wide(options.rotary.cos), wide(options.rotary.sin)};
    const auto expected = plain_heads_forward(wide(qkv), exact);
    const auto gradient = plain_heads_backward(wide(qkv), expected, wide(d_out), exact);
    expect_near(out[0], expected.out, 2 * bound(dtype), what);
    expect_near(out[1], expected.lse, 1e-3, what);
    expect_near(out[2], gradient, 4 * bound(dtype), what);
    expect_near(fastest[2], gradient, 4 * bound(dtype), what);
  }
}

}  // namespace orthant::nn::device_heads_test
