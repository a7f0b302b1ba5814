// orthant bench kernels: the kernels of a CUDA device that memory bounds, each beside a plain copy in the same run.
#include <ATen/ATen.h>
#include <fmt/format.h>

#include <array>
#include <chrono>
#include <functional>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "orthant/base/error.h"
#include "orthant/base/human.h"
#include "orthant/base/json_text.h"
#include "orthant/base/quantile.h"
#include "orthant/base/text_table.h"
#include "orthant/cli/bench.h"
#include "orthant/cli/devices.h"
#include "orthant/cli/option_parser.h"
#include "orthant/cli/rank_clock.h"
#include "orthant/cuda/kernel.h"
#include "orthant/launch/cache_folder.h"
#include "orthant/ops/activation/activation.h"
#include "orthant/ops/attention/attention_blocks.h"
#include "orthant/ops/attention/attention_heads.h"
#include "orthant/ops/cross_entropy/cross_entropy.h"
#include "orthant/ops/dropout/dropout_device.h"
#include "orthant/ops/embedding/embedding_table.h"
#include "orthant/ops/experts/expert_products.h"
#include "orthant/ops/experts/expert_rows.h"
#include "orthant/ops/linear/columns.h"
#include "orthant/ops/linear/projection.h"
#include "orthant/ops/norm/norm_formulas.h"

namespace orthant::cli {
namespace {

struct Sizes {
  std::int64_t tokens = 16384;
  std::int64_t sequence = 4096;
  std::int64_t hidden = 2048;
  std::int64_t heads = 32;
  std::int64_t kv_heads = 8;
  std::int64_t inner = 8192;
  std::int64_t vocabulary = 128256;
  std::int64_t loss_rows = 4096;
};

struct Piece {
  std::string name;
  double bytes = 0;  // that it must read and write; 0: only its time is told
  std::function<void()> call;
  double flops = 0;  // of products; 0: it is not told
  std::vector<double> seconds = {};
};

// At the sizes of a decoder's step and of an encoder's, in bfloat16.
class Kernels {
 public:
  Kernels(const Sizes& sizes, at::Device device)
      : sizes_(sizes), options_(at::TensorOptions().dtype(at::kBFloat16).device(device)) {
    add_copy();
    add_norm();
    add_rotary();
    add_activation();
    add_embedding();
    add_loss();
    add_encoder();
    add_experts();
    for (const auto& [rows, sequence] :
         {std::pair(8, 128), std::pair(32, 128), std::pair(256, 128), std::pair(32, 512)})
      add_attention(rows, sequence);
    add_ring();
  }

  std::vector<Piece>& pieces() { return pieces_; }

 private:
  at::Tensor values(at::IntArrayRef shape) const { return at::randn(shape, options_); }
  void add(std::string name, double bytes, std::function<void()> call) {
    pieces_.push_back({std::move(name), bytes, std::move(call)});
  }
  static double bytes_of(std::initializer_list<at::Tensor> tensors) {
    double sum = 0;
    for (const auto& tensor : tensors) sum += static_cast<double>(tensor.nbytes());
    return sum;
  }

  void add_copy() {
    const auto from = values({std::int64_t{1} << 28});
    const auto to = at::empty_like(from);
    add("copy", bytes_of({from, to}), [from, to] { to.copy_(from); });
  }

  void add_norm() {
    const auto x = values({sizes_.tokens, sizes_.hidden}), weight = values({sizes_.hidden});
    const auto gy = values(x.sizes()), residual = values(x.sizes());
    const auto statistics = nn::device::rms_norm(x, weight, 1e-5).statistics;
    add("rms_norm forward", bytes_of({x, x}), [=] { nn::device::rms_norm(x, weight, 1e-5); });
    add("rms_norm backward, residual added", bytes_of({x, gy, residual, x}),
        [=] { nn::device::rms_norm_backward(gy, {x, statistics, weight}, {true, true}, residual); });
  }

  void add_rotary() {
    nn::HeadsSetup setup;
    auto& options = setup.options;
    options.heads = sizes_.heads;
    options.kv_heads = sizes_.kv_heads;
    options.head_size = sizes_.hidden / sizes_.heads;
    const auto angles = at::rand({sizes_.sequence, options.head_size / 2}, options_.dtype(at::kFloat));
    options.rotary = {angles.cos(), angles.sin()};
    const auto qkv = values(
        {sizes_.tokens / sizes_.sequence, sizes_.sequence, (options.heads + 2 * options.kv_heads) * options.head_size});
    const double turned = bytes_of({qkv}) * static_cast<double>(options.heads + options.kv_heads) /
                          static_cast<double>(options.heads + 2 * options.kv_heads);
    add("rotary forward, in place", 2 * turned, [=] { nn::device::rotate_heads(qkv, options); });
    const auto part = [&](std::int64_t heads) {
      return values({qkv.size(0), sizes_.sequence, heads, options.head_size}).transpose(1, 2);
    };
    const auto q = part(options.heads), k = part(options.kv_heads), v = part(options.kv_heads);
    add("rotary backward, joined", 2 * bytes_of({qkv}), [=] { nn::device::join_heads(q, k, v, options); });
  }

  void add_activation() {
    const auto x = values({sizes_.tokens, 2 * sizes_.inner}), d = values({sizes_.tokens, sizes_.inner});
    add("swiglu forward", bytes_of({x, d}), [=] { nn::device::activate(nn::ActivationKind::swiglu, x); });
    add("swiglu backward, activation again", bytes_of({x, d, x, d}),
        [=] { nn::device::activation_gradient(nn::ActivationKind::swiglu, x, d, true); });
  }

  void add_embedding() {
    const auto table = values({sizes_.vocabulary, sizes_.hidden}), gy = values({sizes_.tokens, sizes_.hidden});
    const auto ids = at::randint(0, sizes_.vocabulary, {sizes_.tokens}, options_.dtype(at::kLong));
    const auto gradient = at::zeros(table.sizes(), options_.dtype(at::kFloat));
    add("embedding forward", bytes_of({gy, gy}), [=] { nn::device::sum_table_rows({{ids, table}}, ids.numel()); });
    add("embedding backward, sorting included", 0, [=] { nn::device::add_table_rows({ids, gradient}, gy); });
    const auto padded = ids.clone();
    padded.narrow(0, 0, sizes_.tokens / 2).zero_();
    add("embedding backward, half of the tokens padding", 0,
        [=] { nn::device::add_table_rows({padded, gradient}, gy); });
  }

  void add_loss() {
    const auto logits = values({sizes_.loss_rows, sizes_.vocabulary});
    const auto targets = at::randint(0, sizes_.vocabulary, {sizes_.loss_rows}, options_.dtype(at::kLong));
    const auto weights = at::ones({sizes_.loss_rows}, options_.dtype(at::kFloat));
    const auto d_loss = at::full({}, 1e-4, options_.dtype(at::kFloat));
    const auto lse = nn::device::class_numbers(logits, targets, 0).lse;
    const auto out = at::empty_like(logits);
    add("cross entropy forward", bytes_of({logits}), [=] { nn::device::class_numbers(logits, targets, 0); });
    add("cross entropy backward", bytes_of({logits, logits}),
        [=] { nn::device::class_gradients(out, logits, targets, 0, lse, weights, d_loss); });
  }

  // An encoder's step: 256 rows of 128 tokens, with dropout.
  void add_encoder() {
    constexpr std::int64_t kTokens = 32768, kHidden = 768, kInner = 3072;
    nn::Pass pass;
    const auto grid = nn::dropout_grid(pass, "bench", 0.1, {256, 128, kHidden});
    const auto inner_grid = nn::dropout_grid(pass, "bench", 0.1, {256, 128, kInner});
    const auto x = values({kTokens, kHidden}), residual = values(x.sizes()), gy = values(x.sizes());
    const auto weight = values({kHidden}), bias = values({kHidden}), sum = at::empty_like(x);
    const auto statistics = nn::device::layer_norm(x, weight, bias, 1e-5).statistics;
    const nn::NormInput input{x, statistics, weight};
    add("layer_norm forward", bytes_of({x, x}), [=] { nn::device::layer_norm(x, weight, bias, 1e-5); });
    add("layer_norm backward, residual added", bytes_of({x, gy, residual, x}),
        [=] { nn::device::layer_norm_backward(gy, input, {true, true}, nullptr, residual); });
    add("dropout + residual + layer_norm forward", bytes_of({x, residual, sum, x}),
        [=] { nn::device::dropout_add_norm(sum, x, residual, &grid, weight, bias, 1e-5); });
    add("layer_norm + dropout backward", bytes_of({x, gy, x, x}),
        [=] { nn::device::layer_norm_backward(gy, input, {true, true}, &grid); });
    add("dropout", bytes_of({x, x}), [=] { nn::apply_dropout(grid, x); });
    add("dropout + residual", bytes_of({x, residual, x}), [=] { nn::device::dropout_add(&grid, x, residual); });
    const auto whole = options_.dtype(at::kLong);
    const auto ids = at::randint(0, 30522, {kTokens}, whole), positions = at::arange(128, whole);
    const auto words = values({30522, kHidden}), places = values({512, kHidden}), kinds = values({2, kHidden});
    const auto zeros = at::zeros({128}, whole);
    add("embedding forward, three tables", bytes_of({x, x}),
        [=] { nn::device::sum_table_rows({{ids, words}, {positions, places}, {zeros, kinds}}, kTokens); });
    const auto wide = values({kTokens, kInner}), d_wide = values(wide.sizes());
    add("gelu forward", bytes_of({wide, wide}), [=] { nn::device::activate(nn::ActivationKind::gelu, wide); });
    add("gelu + dropout forward", bytes_of({wide, wide}),
        [=] { nn::device::activate(nn::ActivationKind::gelu, wide, &inner_grid); });
    add("gelu_tanh forward", bytes_of({wide, wide}),
        [=] { nn::device::activate(nn::ActivationKind::gelu_tanh, wide); });
    for (const auto kind : {nn::ActivationKind::gelu, nn::ActivationKind::gelu_tanh}) {
      add(kind == nn::ActivationKind::gelu ? "gelu backward, activation again" : "gelu_tanh backward, activation again",
          bytes_of({wide, d_wide, wide, d_wide}), [=] { nn::device::activation_gradient(kind, wide, d_wide, true); });
    }
    for (const std::int64_t width : {kHidden, 3 * kHidden, kInner}) {
      const auto matrix = wide.view({-1}).narrow(0, 0, kTokens * width).view({kTokens, width});
      const auto sums = at::zeros({width}, options_.dtype(at::kFloat));
      add(fmt::format("column sums of {}", width), bytes_of({matrix}),
          [=] { nn::device::add_column_sums({sums, matrix, true}); });
    }
  }

  // 8 experts with equal loads: their products, ours beside the library's grouped ones, and what lies between.
  void add_experts() {
    using nn::device::GroupedBy;
    constexpr std::int64_t kExperts = 8, kRows = 32768, kIn = 2048, kOut = 4096, kPerToken = 2;
    const auto whole = options_.dtype(at::kLong);
    const nn::HeldRows held{at::full({kExperts}, kRows / kExperts, whole)};
    const auto weight = values({kExperts * kOut, kIn}), x = values({kRows, kIn}), gy = values({kRows, kOut});
    const auto gradient = std::make_shared<nn::Parameter>();
    gradient->gradient = at::zeros(weight.sizes(), options_.dtype(at::kFloat));
    const auto add_products = [&](const char* what, std::function<void()> call) {
      add(fmt::format("8 experts x 4,096 rows, 2048 x 4096: {}", what), 0, std::move(call));
      pieces_.back().flops = 2.0 * kRows * kIn * kOut;
    };
    const auto add_ways = [&](GroupedBy by, const std::string& who) {
      add_products(("forward, " + who).c_str(), [=] { nn::device::expert_products(x, held, weight, by); });
      add_products(("input gradient, " + who).c_str(), [=] { nn::device::expert_products_back(gy, held, weight, by); });
    };
    add_ways(GroupedBy::library, "library");
    add_ways(GroupedBy::kernel, "ours");
    for (const bool fresh : {true, false}) {
      add_products(fresh ? "weight gradient, written" : "weight gradient, added", [=] {
        gradient->fresh = fresh;
        nn::device::add_expert_gradients(*gradient, gy, x, held);
      });
    }
    const auto slots = at::randperm(kRows, whole), places = slots.argsort().view({-1, kPerToken});
    const auto tokens = values({kRows / kPerToken, kIn}), weights = at::rand({kRows, 1}, options_.dtype(at::kFloat));
    const auto gates = values({kRows, 2 * kOut});
    add("rows of experts laid", bytes_of({x, x}), [=] { nn::device::rows_of_tokens(tokens, slots, kPerToken); });
    add("rows of experts added up", bytes_of({x, tokens}), [=] { nn::device::sums_of_rows(x, places); });
    add("activation of experts forward", bytes_of({gates, gy}), [=] { nn::device::expert_activation(gates, weights); });
    add("activation of experts backward, activation again", bytes_of({gates, gy, gates, gy}),
        [=] { nn::device::expert_activation_gradient(gy, gates, weights, true, gy); });
  }

  // With dropout, over 12 heads of 64 channels, beside cuDNN's own dropout.
  void add_attention(std::int64_t rows, std::int64_t sequence) {
    constexpr std::int64_t kHeads = 12, kSize = 64;
    constexpr double kRate = 0.1;
    nn::AttentionOptions heads;
    heads.heads = heads.kv_heads = kHeads;
    heads.head_size = kSize;
    heads.dropout = kRate;
    heads.site = "bench";
    nn::Pass pass;
    pass.training = true;
    const auto qkv = values({rows, sequence, 3 * kHeads * kSize}), d_out = values({rows, sequence, kHeads * kSize});
    const auto setup = nn::heads_setup(qkv, heads, pass);
    const auto output = nn::device::kernel_heads_forward(qkv, setup);
    const auto what = fmt::format("attention + dropout of {} x {}", rows, sequence);
    add(what + " forward", 0, [=] { nn::device::kernel_heads_forward(qkv, setup); });
    add(what + " backward", 0, [=] { nn::device::kernel_heads_backward(qkv, output, d_out, setup); });
    const auto parts = qkv.view({rows, sequence, 3, kHeads, kSize}).permute({2, 0, 3, 1, 4}).unbind(0);
    const auto d_heads = d_out.view({rows, sequence, kHeads, kSize}).transpose(1, 2);
    const auto forward = [=] {
      return at::_scaled_dot_product_cudnn_attention(parts[0], parts[1], parts[2], std::nullopt,
                                                     /*compute_log_sumexp=*/true, kRate, /*is_causal=*/false,
                                                     /*return_debug_mask=*/false);
    };
    const auto found = forward();
    add(what + " forward, cuDNN's own", 0, [=] { forward(); });
    add(what + " backward, cuDNN's own", 0, [=] {
      const at::Tensor none;
      at::_scaled_dot_product_cudnn_attention_backward(d_heads, parts[0], parts[1], parts[2], std::get<0>(found),
                                                       std::get<1>(found), std::get<6>(found), std::get<7>(found), none,
                                                       none, none, sequence, sequence, kRate, /*is_causal=*/false);
    });
  }

  // A long row under a causal mask: by one call, and by the blocks of all ranks of a ring, which have the same pairs.
  void add_ring() {
    constexpr std::int64_t kTokens = 32768, kRanks = 4, kChunk = kTokens / (2 * kRanks);
    nn::AttentionOptions options;
    options.heads = sizes_.heads;
    options.kv_heads = sizes_.kv_heads;
    options.head_size = sizes_.hidden / sizes_.heads;
    options.causal = true;
    nn::Pass pass;
    pass.repeatable = false;
    const auto qkv = values({1, kTokens, (options.heads + 2 * options.kv_heads) * options.head_size});
    const auto d_out = values({1, kTokens, sizes_.hidden});
    const auto setup = nn::heads_setup(qkv, options, pass);
    const auto whole = nn::device::heads_forward(qkv, setup);
    const auto what = fmt::format("attention of {} tokens", kTokens);
    add(what + " forward, one call", 0, [=] { nn::device::heads_forward(qkv, setup); });
    add(what + " backward, one call", 0, [=] { nn::device::heads_backward(qkv, whole, d_out, setup); });
    const auto blocks_setup = nn::blocks_setup(1, kTokens, options, pass);
    const auto of_rank = [=](const at::Tensor& tokens, std::int64_t rank) {
      const auto chunk = [&](std::int64_t number) { return tokens.narrow(0, number * kChunk, kChunk); };
      return at::cat({chunk(rank), chunk(2 * kRanks - 1 - rank)});
    };
    // What a rank's queries see of a holder's keys, each of two chunks.
    const auto blocks_of = [=](std::int64_t rank, std::int64_t holder) {
      const std::array<std::int64_t, 2> own = {rank, 2 * kRanks - 1 - rank}, held = {holder, 2 * kRanks - 1 - holder};
      std::vector<nn::HeadsBlock> blocks;
      for (std::size_t q = 0; q < 2; ++q) {
        for (std::size_t k = 0; k < 2; ++k) {
          if (held[k] > own[q]) continue;
          blocks.push_back({0, static_cast<std::int64_t>(q) * kChunk, kChunk, static_cast<std::int64_t>(k) * kChunk,
                            kChunk, own[q] * kChunk, held[k] * kChunk});
        }
      }
      return blocks;
    };
    std::vector<nn::HeadsMatrices> heads;
    std::vector<at::Tensor> d_outs;
    for (std::int64_t rank = 0; rank < kRanks; ++rank) {
      heads.push_back(nn::split_heads(of_rank(qkv[0], rank), options));
      d_outs.push_back(of_rank(d_out[0], rank));
    }
    const auto keys_of = [heads](std::size_t rank, std::size_t holder) {
      return nn::HeadsMatrices{heads[rank].q, heads[holder].k, heads[holder].v};
    };
    const auto forward = [=] {
      std::vector<nn::HeadsSums> all;
      for (std::size_t rank = 0; rank < kRanks; ++rank) {
        const auto sums = nn::empty_sums(heads[rank].q, options);
        for (std::size_t step = 0; step < kRanks; ++step) {
          const std::size_t holder = (rank + kRanks - step) % kRanks;
          nn::blocks_forward(keys_of(rank, holder),
                             blocks_of(static_cast<std::int64_t>(rank), static_cast<std::int64_t>(holder)),
                             blocks_setup, sums);
        }
        all.push_back({sums.out.to(heads[rank].q.scalar_type()), sums.lse});
      }
      return all;
    };
    const auto sums = forward();
    const auto ring = fmt::format(", blocks of a ring of {} ranks", kRanks);
    add(what + " forward" + ring, 0, [=] { forward(); });
    const auto floats = options_.dtype(at::kFloat);
    add(what + " backward" + ring, 0, [=] {
      for (std::size_t rank = 0; rank < kRanks; ++rank) {
        const nn::AttendedQueries queries = {sums[rank].out, sums[rank].lse,
                                             nn::blocks_delta(sums[rank].out, d_outs[rank], options.heads),
                                             d_outs[rank]};
        const auto d_q = at::zeros(heads[rank].q.sizes(), floats);
        for (std::size_t step = 0; step < kRanks; ++step) {
          const std::size_t holder = (rank + kRanks - step) % kRanks;
          const auto d_keys = at::zeros({2, heads[holder].k.size(0), heads[holder].k.size(1)}, floats);
          nn::blocks_backward(keys_of(rank, holder),
                              blocks_of(static_cast<std::int64_t>(rank), static_cast<std::int64_t>(holder)),
                              blocks_setup, queries, {d_q, d_keys[0], d_keys[1]});
          d_keys.to(heads[rank].q.scalar_type());
        }
        d_q.to(heads[rank].q.scalar_type());
      }
    });
  }

  Sizes sizes_;
  at::TensorOptions options_;
  std::vector<Piece> pieces_;
};

double time_calls(const std::function<void()>& call, int calls, at::Device device) {
  synchronize(device);
  const auto began = std::chrono::steady_clock::now();
  for (int i = 0; i < calls; ++i) call();
  synchronize(device);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count() / calls;
}

void print(const std::vector<Piece>& pieces, bool json) {
  const auto seconds = [](const Piece& piece) { return quantile(piece.seconds, 0.5); };
  const double copied = pieces.front().bytes / seconds(pieces.front());
  auto rows = nlohmann::ordered_json::array();
  std::vector<TableLine> lines = {{"kernel", "bytes", "time", "rate", "share of copy"}};
  for (const auto& piece : pieces) {
    const double rate = piece.bytes / seconds(piece);
    const bool told = piece.bytes > 0;
    rows.push_back({{"kernel", piece.name}, {"median_seconds", seconds(piece)}});
    if (told) rows.back().update({{"bytes", piece.bytes}, {"share_of_copy", rate / copied}});
    const double tflops = piece.flops / seconds(piece) / 1e12;
    if (piece.flops > 0) rows.back()["tflops"] = tflops;
    lines.push_back({piece.name, told ? format_bytes(static_cast<std::int64_t>(piece.bytes)) : "",
                     format_seconds(seconds(piece)),
                     told              ? fmt::format("{:.2f} TB/s", rate / 1e12)
                     : piece.flops > 0 ? fmt::format("{:.0f} TFLOP/s", tflops)
                                       : "",
                     told ? fmt::format("{:.0f}%", 100 * rate / copied) : ""});
  }
  if (json) {
    std::cout << json_text(nlohmann::ordered_json{{"rows", rows}}) << std::endl;
  } else {
    std::cout << text_table(lines) << std::flush;
  }
}

}  // namespace

int run_bench_kernels(const Arguments& arguments, Context& context) {
  OptionParser app(
      "Kernels of a CUDA device beside a plain copy, at the sizes of a decoder's and an encoder's step, in bfloat16.",
      "orthant bench kernels");
  int rounds = 9;
  bool json = false;
  Sizes sizes;
  app.add_option("--rounds", rounds, "rounds through all of them; medians are told (default 9)")
      .check(NumberRange(1, 1000));
  app.add_option("--tokens", sizes.tokens, "tokens of a step (default 16384)").check(NumberRange(4096, 1 << 20));
  app.add_flag("--json", json, "one JSON document on stdout");
  if (!parse(app, arguments, context, "orthant bench kernels --rounds 9")) return 0;
  launch::Job alone;
  const at::Device device = choose_device("cuda", count_gpus(context.environment), alone);
  if (sizes.tokens % sizes.sequence != 0) {
    throw ConfigError(fmt::format("--tokens {} is no multiple of the sequence length {}", sizes.tokens, sizes.sequence),
                      {.remedy = fmt::format("set --tokens {}", sizes.sequence * (sizes.tokens / sizes.sequence + 1))});
  }
  std::string said;
  auto& library = cuda::KernelLibrary::of_process();
  library.configure({launch::cache_folder(context.environment), [&](const std::string& text) { said = text; }});
  at::empty({1}, at::TensorOptions().device(device));  // makes the context that kernels are loaded into
  if (!library.available()) throw ConfigError(said, {.remedy = "use a CUDA wheel of torch 2.11 and a newer card"});
  const nn::BelowAutograd below;
  Kernels kernels(sizes, device);
  constexpr int kCalls = 20;
  for (auto& piece : kernels.pieces()) time_calls(piece.call, 3, device);
  for (int round = 0; round < rounds; ++round) {
    for (auto& piece : kernels.pieces()) piece.seconds.push_back(time_calls(piece.call, kCalls, device));
  }
  print(kernels.pieces(), json);
  return 0;
}

}  // namespace orthant::cli
