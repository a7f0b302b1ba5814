// A graph of recorded units and a module: transformer blocks, recorded once, which tp cuts and whose backward a
// schedule may split, and a loss in plain libtorch. Every mesh learns the same:
//
//   train_mixed
//   orthant launch --nproc 4 -- train_mixed pp=2,tp=2 zbh1 full
//
// Arguments: mesh, schedule, recompute (none or full).
#include <ATen/ATen.h>
#include <orthant/orthant.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

#include <iomanip>
#include <iostream>

namespace {

constexpr std::int64_t kWords = 50, kHidden = 32, kInner = 64, kRows = 8, kTokens = 6;
constexpr orthant::ops::Heads kHeads = {.heads = 4, .kv_heads = 2, .head_size = 8};

// A weight [out, in] that is drawn. `tp` cuts its outputs (dim 0), or its inputs (dim 1), in whole granules: heads.
orthant::ParameterSpec weight(const char* name, std::int64_t out, std::int64_t in, int tp, std::int64_t granule = 1,
                              const char* joined = "") {
  return {.name = name,
          .shape = {out, in},
          .init = {orthant::Init::Kind::normal, 0.2},
          .joined = joined,
          .tp = orthant::Split{.dim = tp, .granule = granule}};
}

orthant::ParameterSpec ones(const char* name) {
  return {.name = name, .shape = {kHidden}, .init = {orthant::Init::Kind::ones}};
}

orthant::Recorded embedding() {
  auto table = weight("table", kWords, kHidden, 0);
  table.table = true;
  return {.parameters = {table}, .record = [](orthant::Recorder& r) {
            const auto ids = r.field("ids", orthant::Sym::tokens, orthant::Number::index);
            return orthant::ops::embedding(r, {{.ids = ids, .table = "table", .entries = kWords}}, kHidden);
          }};
}

orthant::Recorded block() {
  namespace ops = orthant::ops;
  constexpr auto kHead = kHeads.head_size;
  return {.parameters = {weight("wq", kHeads.heads * kHead, kHidden, 0, kHead, "qkv"),
                         weight("wk", kHeads.kv_heads * kHead, kHidden, 0, kHead, "qkv"),
                         weight("wv", kHeads.kv_heads * kHead, kHidden, 0, kHead, "qkv"),
                         weight("wo", kHidden, kHeads.heads * kHead, 1, kHead), weight("up", kInner, kHidden, 0),
                         weight("down", kHidden, kInner, 1), ones("norm1"), ones("norm2")},
          .record = [](orthant::Recorder& r) {
            constexpr std::int64_t kQkv = (kHeads.heads + 2 * kHeads.kv_heads) * kHead;
            const auto x = r.tokens("x", kHidden);
            auto qkv =
                ops::linear(r, ops::rms_norm(r, x, "norm1", 1e-6), {.weight = "qkv", .out = kQkv, .joined = true});
            qkv = ops::rotary(r, qkv, kHeads, {.max_positions = kTokens});
            const auto attended = ops::attention(r, qkv, {}, kHeads, {.causal = true});
            const auto h = ops::add(r, ops::linear(r, attended, {.weight = "wo", .out = kHidden}), x);
            const auto wide = ops::linear(r, ops::rms_norm(r, h, "norm2", 1e-6), {.weight = "up", .out = kInner});
            const auto active = ops::activation(r, wide, "gelu", /*p=*/0.1, "dropout");
            return ops::add(r, ops::linear(r, active, {.weight = "down", .out = kHidden}), h);
          }};
}

struct ScoreImpl : torch::nn::Module {
  ScoreImpl() { to(at::kDouble); }
  at::Tensor forward(const at::Tensor& x, const at::Tensor& y) {
    return (linear(dropout(x.mean(1))) - y).square().sum();
  }
  torch::nn::Dropout dropout = register_module("dropout", torch::nn::Dropout(0.1));
  torch::nn::Linear linear = register_module("linear", torch::nn::Linear(kHidden, 1));
};
TORCH_MODULE(Score);

}  // namespace

int main(int argc, char** argv) {
  const auto job = orthant::join();
  const auto mesh = orthant::Mesh::parse(argc > 1 ? argv[1] : "dp=1");
  at::manual_seed(1);
  orthant::Graph graph;
  graph.add("embed", embedding(), {"ids"}, {"x0"});
  graph.add("block0", block(), {"x0"}, {"x1"}).add("block1", block(), {"x1"}, {"x2"});
  graph.add("score", Score(), {"x2", "y"}, {"loss"});  // a sum over rows
  orthant::TrainerOptions options;
  options.precision = {orthant::DType::float64, orthant::DType::float64, orthant::DType::float64};
  options.lr.peak = 1e-2;
  const int replicas = mesh.degree(orthant::Axis::dp) * mesh.degree(orthant::Axis::fsdp);
  options.microbatches =
      static_cast<int>(kRows) / 2 / replicas;  // of two rows on every mesh: modules draw per microbatch
  options.policy.zero = 3;
  if (mesh.degree(orthant::Axis::pp) > 1 && argc > 2) options.stages.schedule = argv[2];
  if (argc > 3) options.recompute = orthant::parse_recompute(argv[3]);
  options.communicator = orthant::connect_ranks(graph.spec(), mesh, job, options);
  orthant::Trainer trainer(graph, mesh, options);
  const auto ids = (at::arange(kRows * kTokens).reshape({kRows, kTokens}) * 7).remainder(kWords);
  const auto y = ids.sum(1, true).to(at::kDouble).sin();
  const auto batch = trainer.own_rows(orthant::batch_of({{"ids", ids}, {"y", y}}));
  double loss = 0;
  for (int i = 0; i < 20; ++i) loss = trainer.step(batch).get().loss;
  std::cout << std::setprecision(17) << "loss " << loss << std::endl;
}
