// Blocks of a row against one call over the row: any cuts of queries and keys, any order of blocks.
#include "orthant/ops/attention/attention_blocks.h"

#include <algorithm>
#include <random>

#include "base/error_text.h"
#include "ops/attention_case.h"
#include "orthant/nn/context_axis.h"

namespace orthant::nn {
namespace attention_blocks_test {

using Random = std::mt19937_64;

std::int64_t below(Random& random, std::int64_t end) {
  return std::uniform_int_distribution<std::int64_t>(0, end - 1)(random);
}

AttentionShape random_shape(Random& random) {
  AttentionShape shape;
  shape.rows = 1 + below(random, 3);
  shape.sequence = 1 + below(random, below(random, 8) == 0 ? 200 : 40);
  shape.kv_heads = 1 + below(random, 3);
  shape.heads = shape.kv_heads * (1 + below(random, 3));
  shape.head_size = 1 + below(random, 20);
  shape.causal = below(random, 3) > 0;
  shape.rotary = false;
  shape.masked = shape.sequence > 8 && below(random, 2) == 0;
  shape.left = shape.masked && below(random, 2) == 0;
  shape.dropout = below(random, 3) == 0 ? 0.25 : 0;
  shape.window = shape.causal && below(random, 2) == 0 ? 1 + below(random, shape.sequence) : 0;
  return shape;
}

// A range of a row's positions, which lies in a matrix from row `token` on.
struct Chunk {
  std::int64_t row, position, count, token;
};

// The tokens of all rows in random ranges, which lie in random order.
std::vector<Chunk> random_chunks(const AttentionShape& shape, Random& random) {
  std::vector<Chunk> chunks;
  for (std::int64_t row = 0; row < shape.rows; ++row) {
    for (std::int64_t position = 0; position < shape.sequence;) {
      const std::int64_t count = 1 + below(random, std::min<std::int64_t>(shape.sequence - position, 70));
      chunks.push_back({row, position, count, 0});
      position += count;
    }
  }
  std::shuffle(chunks.begin(), chunks.end(), random);
  std::int64_t token = 0;
  for (Chunk& chunk : chunks) {
    chunk.token = token;
    token += chunk.count;
  }
  return chunks;
}

// For each row of a matrix the token, counted in rows of a batch.
at::Tensor tokens_of(const std::vector<Chunk>& chunks, std::int64_t sequence) {
  std::vector<at::Tensor> parts;
  for (const Chunk& chunk : chunks) {
    const std::int64_t first = chunk.row * sequence + chunk.position;
    parts.push_back(at::arange(first, first + chunk.count, at::kLong));
  }
  return at::cat(parts);
}

std::vector<HeadsBlock> all_blocks(const std::vector<Chunk>& queries, const std::vector<Chunk>& keys) {
  std::vector<HeadsBlock> blocks;
  for (const Chunk& q : queries) {
    for (const Chunk& k : keys) {
      if (q.row == k.row) blocks.push_back({q.row, q.token, q.count, k.token, k.count, q.position, k.position});
    }
  }
  return blocks;
}

// Pairs that a block leaves, one by one.
std::int64_t counted_pairs(const HeadsBlock& block, const AttentionOptions& options) {
  std::int64_t pairs = 0;
  for (std::int64_t p = block.query_position; p < block.query_position + block.queries; ++p) {
    for (std::int64_t k = block.key_position; k < block.key_position + block.keys; ++k) {
      pairs += !options.causal || (k <= p && (options.window == 0 || k > p - options.window)) ? 1 : 0;
    }
  }
  return pairs;
}

// One case in one call, and in blocks of random cuts and order.
struct Trial {
  AttentionCase given;
  HeadsSetup setup;
  std::vector<Chunk> queries, keys;
  std::vector<HeadsBlock> blocks;
  HeadsMatrices heads;
  at::Tensor d_out;  // [tokens, heads * head_size] in the order of the batch

  Trial(const AttentionShape& shape, Random& random, const Pass& pass = pass_at(3, 1, 2))
      : given(shape, at::kDouble), setup(blocks_setup(shape.rows, shape.sequence, given.options, pass)) {
    queries = random_chunks(shape, random);
    keys = random_chunks(shape, random);
    blocks = all_blocks(queries, keys);
    std::shuffle(blocks.begin(), blocks.end(), random);
    // Queries are columns of one matrix, keys and values of another.
    const at::Tensor tokens = given.qkv.flatten(0, 1);
    heads = split_heads(tokens.index_select(0, tokens_of(keys, shape.sequence)), given.options);
    heads.q = split_heads(tokens.index_select(0, tokens_of(queries, shape.sequence)), given.options).q;
    d_out = random_tensor({shape.rows * shape.sequence, shape.heads * shape.head_size}, 9);
  }

  at::Tensor in_blocks(const at::Tensor& values, const std::vector<Chunk>& chunks) const {
    return values.index_select(0, tokens_of(chunks, given.shape.sequence));
  }

  HeadsMatrices no_gradients() const {
    return {at::zeros(heads.q.sizes(), at::kDouble), at::zeros(heads.k.sizes(), at::kDouble),
            at::zeros(heads.v.sizes(), at::kDouble)};
  }

  AttendedQueries attended(const HeadsSums& sums) const {
    const at::Tensor gradient = in_blocks(d_out, queries);
    return {sums.out, sums.lse, blocks_delta(sums.out, gradient, setup.options.heads), gradient};
  }

  void expect_whole(const HeadsSums& sums, const HeadsMatrices& gradients) const {
    const HeadsSetup whole = heads_setup(given.qkv, given.options, pass_at(3, 1, 2));
    const HeadsOutput output = heads_forward(given.qkv, whole, false);
    expect_close(sums.out, in_blocks(output.out.flatten(0, 1), queries), 1e-12, 1e-12, "out");
    const at::Tensor lse = output.lse.permute({0, 2, 1}).flatten(0, 1);
    expect_close(sums.lse.masked_fill(sums.lse.isneginf(), 0).t(), in_blocks(lse, queries), 1e-12, 1e-12, "lse");
    const at::Tensor d_qkv = heads_backward(given.qkv, output, d_out.view(output.out.sizes()), whole).flatten(0, 1);
    const HeadsMatrices expected = split_heads(d_qkv, given.options);
    expect_close(gradients.q, in_blocks(expected.q, queries), 1e-12, 1e-12, "gradient of q");
    expect_close(gradients.k, in_blocks(expected.k, keys), 1e-12, 1e-12, "gradient of k");
    expect_close(gradients.v, in_blocks(expected.v, keys), 1e-12, 1e-12, "gradient of v");
  }
};

TEST(AttentionBlocks, AnyCutsInAnyOrderGiveWhatOneCallGives) {
  at::NoGradGuard no_grad;
  Random random(32);
  std::int64_t skipped = 0;
  for (int i = 0; i < 200; ++i) {
    const AttentionShape shape = random_shape(random);
    SCOPED_TRACE(testing::Message() << "case " << i << ": " << text(shape));
    const Trial trial(shape, random);
    const auto computed = std::count_if(trial.blocks.begin(), trial.blocks.end(), [&](const HeadsBlock& block) {
      return counted_pairs(block, trial.setup.options) > 0;
    });
    skipped += static_cast<std::int64_t>(trial.blocks.size()) - computed;
    // In two calls, as blocks arrive.
    const auto middle = trial.blocks.begin() + below(random, static_cast<std::int64_t>(trial.blocks.size()) + 1);
    const std::vector<HeadsBlock> first(trial.blocks.begin(), middle), second(middle, trial.blocks.end());
    const HeadsSums sums = empty_sums(trial.heads.q, trial.given.options);
    EXPECT_EQ(
        blocks_forward(trial.heads, first, trial.setup, sums) + blocks_forward(trial.heads, second, trial.setup, sums),
        computed);
    const HeadsMatrices gradients = trial.no_gradients();
    const AttendedQueries queries = trial.attended(sums);
    EXPECT_EQ(blocks_backward(trial.heads, second, trial.setup, queries, gradients) +
                  blocks_backward(trial.heads, first, trial.setup, queries, gradients),
              computed);
    trial.expect_whole(sums, gradients);
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(skipped, 1000);
}

// Of a rank that exchanges nothing here.
class ContextAlone : public ContextAxis {
 public:
  using ContextAxis::ContextAxis;
  std::unique_ptr<Exchange> send(const at::Tensor&, int) override { return {}; }
  std::unique_ptr<Exchange> receive(const at::Tensor&, int) override { return {}; }
  std::unique_ptr<Exchange> sum(const at::Tensor&, Subject) override { return {}; }
  std::unique_ptr<Exchange> gather(const at::Tensor&, const at::Tensor&, const std::vector<std::int64_t>&) override {
    return {};
  }
  std::unique_ptr<Exchange> scatter(const at::Tensor&, const at::Tensor&, const std::vector<std::int64_t>&,
                                    Subject) override {
    return {};
  }
  std::unique_ptr<Exchange> all_to_all(const at::Tensor&, const at::Tensor&, const std::vector<std::int64_t>&,
                                       const std::vector<std::int64_t>&) override {
    return {};
  }
};

// The formulas that serve where no kernel does, on one rank and on one that has some chunks of every row.
TEST(AttentionBlocks, PlainFormulasGiveWhatOneCallGives) {
  at::NoGradGuard no_grad;
  Random random(33);
  ContextAlone context({.degree = 2, .way = ContextWay::ring, .zigzag = true}, 0);
  for (int i = 0; i < 30; ++i) {
    const AttentionShape shape = random_shape(random);
    SCOPED_TRACE(testing::Message() << "case " << i << ": " << text(shape));
    Pass pass = pass_at(3, 1, 2);
    if (i % 2 > 0) {
      pass.context = &context;
      pass.positions = context.positions(shape.sequence);
    }
    const Trial trial(shape, random, pass);
    const HeadsSums sums = empty_sums(trial.heads.q, trial.given.options);
    plain_blocks_forward(trial.heads, trial.blocks, trial.setup, sums);
    const HeadsMatrices gradients = trial.no_gradients();
    plain_blocks_backward(trial.heads, trial.blocks, trial.setup, trial.attended(sums), gradients);
    trial.expect_whole(sums, gradients);
    if (testing::Test::HasFailure()) return;
  }
}

TEST(AttentionBlocks, CountPairsInClosedForm) {
  Random random(34);
  for (int i = 0; i < 500; ++i) {
    const HeadsBlock block = {
        0, 0, 1 + below(random, 9), 0, 1 + below(random, 9), below(random, 20), below(random, 20)};
    AttentionOptions options;
    options.causal = i % 5 > 0;
    options.window = options.causal ? below(random, 12) : 0;
    EXPECT_EQ(seen_pairs(block, options), counted_pairs(block, options))
        << block.queries << " queries at " << block.query_position << ", " << block.keys << " keys at "
        << block.key_position << ", window " << options.window;
  }
}

TEST(AttentionBlocks, ZigzagChunksGiveEveryRankTheSameBlocks) {
  AttentionOptions options;
  options.causal = true;
  for (const std::int64_t ranks : {2, 3, 4, 8}) {
    const std::int64_t chunks = 2 * ranks, size = 5;
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      std::int64_t blocks = 0, pairs = 0;
      for (const std::int64_t query : {rank, chunks - 1 - rank}) {
        for (std::int64_t key = 0; key < chunks; ++key) {
          const std::int64_t seen = seen_pairs({0, 0, size, 0, size, query * size, key * size}, options);
          blocks += seen > 0 ? 1 : 0;
          pairs += seen;
        }
      }
      EXPECT_EQ(blocks, chunks + 1);
      EXPECT_EQ(pairs, chunks * size * (chunks * size + 1) / 2 / ranks);
    }
  }
}

TEST(AttentionBlocks, NarrowInputsAreWidened) {
  at::NoGradGuard no_grad;
  Random random(35);
  const Trial trial({2, 21, 4, 2, 6, true, false, true}, random);
  const HeadsMatrices narrow = {trial.heads.q.to(at::kBFloat16), trial.heads.k.to(at::kBFloat16),
                                trial.heads.v.to(at::kBFloat16)};
  const HeadsMatrices wide = {narrow.q.to(at::kFloat), narrow.k.to(at::kFloat), narrow.v.to(at::kFloat)};
  const HeadsSums sums = empty_sums(narrow.q, trial.given.options), expected = empty_sums(wide.q, trial.given.options);
  ASSERT_EQ(sums.out.scalar_type(), at::kFloat);
  blocks_forward(narrow, trial.blocks, trial.setup, sums);
  blocks_forward(wide, trial.blocks, trial.setup, expected);
  expect_same_bits(sums.out, expected.out, "out");
  expect_same_bits(sums.lse, expected.lse, "lse");
}

TEST(AttentionBlocks, RefuseTokensBeyondTheirMatrices) {
  Random random(36);
  const Trial trial({1, 5, 2, 1, 4, true, false}, random);
  const HeadsSums sums = empty_sums(trial.heads.q, trial.given.options);
  const std::string message =
      error_text<InternalError>([&] { blocks_forward(trial.heads, {{0, 0, 5, 2, 4, 0, 0}}, trial.setup, sums); });
  EXPECT_NE(message.find("queries [0, 5) and keys [2, 6) of 5 and 5 tokens"), std::string::npos) << message;
}

}  // namespace attention_blocks_test
}  // namespace orthant::nn
