// The forward pass over tp ranks.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <mutex>

#include "base/error_text.h"
#include "checkpoint/model_on_disk.h"
#include "orthant/comm/thread_ranks.h"
#include "orthant/train/inference.h"

namespace orthant {
namespace inference_ranks_test {

InferenceOptions on_mesh(const std::string& mesh, DType dtype = DType::float64) {
  InferenceOptions options;
  options.dtype = dtype;
  options.mesh = Mesh::parse(mesh);
  return options;
}

Fields padded_rows() {
  at::manual_seed(5);
  auto mask = at::ones({3, 11}, at::kLong);
  mask[1].narrow(0, 6, 5).zero_();
  return {{"input_ids", at::randint(0, 59, {3, 11}, at::kLong)}, {"attention_mask", mask}};
}

class InferenceRanks : public testing::TestWithParam<const char*> {};

TEST_P(InferenceRanks, ComputeWhatOneRankComputes) {
  const ModelOnDisk disk(GetParam());
  disk.write();
  const auto inputs = padded_rows();
  for (const auto& [dtype, bound] : {std::pair(DType::float64, 1e-12), std::pair(DType::float32, 1e-5)}) {
    Inference one(find_stored_model(disk.folder), on_mesh("tp=1", dtype));
    const auto expected = one.forward(inputs);
    EXPECT_EQ(one.bytes_read(), inference_shares(find_stored_model(disk.folder), on_mesh("tp=1"))[0].read_bytes);
    for (const int degree : {2, 4}) {
      const auto options = on_mesh("tp=" + std::to_string(degree), dtype);
      const auto shares = inference_shares(find_stored_model(disk.folder), options);
      std::mutex mutex;
      comm::run_thread_ranks(degree, [&](int rank, const comm::Store& board) {
        auto mine = options;
        comm::CommOptions quick;
        quick.backend = comm::BackendKind::gloo;
        quick.timeout_seconds = 20;
        mine.communicator =
            std::make_shared<comm::Communicator>(mine.mesh, rank, board, quick, inference_groups(mine.mesh));
        Inference inference(find_stored_model(disk.folder), mine);
        const auto found = inference.forward(inputs);
        const std::lock_guard lock(mutex);
        EXPECT_EQ(inference.outputs(), one.outputs());
        for (const auto& [name, values] : expected) {
          EXPECT_EQ(found.at(name).sizes(), values.sizes());
          EXPECT_LT((found.at(name) - values).abs().max().item<double>(), bound) << name << " tp " << degree;
        }
        const auto& share = shares[static_cast<std::size_t>(rank)];
        EXPECT_EQ(inference.bytes_read(), share.read_bytes);
        EXPECT_EQ(inference.parameters().bytes(), share.held_bytes);
        EXPECT_LT(static_cast<double>(inference.bytes_read()), 1.5 / degree * static_cast<double>(one.bytes_read()));
      });
    }
  }
}

std::string model_name(const testing::TestParamInfo<const char*>& info) {
  return std::string(model_kind(parse_hugging_face_config(info.param, "config.json")));
}

INSTANTIATE_TEST_SUITE_P(Models, InferenceRanks, testing::Values(kUnevenLlama, kUnevenGpt2, kUnevenBert), model_name);

TEST(InferenceMesh, IsOfTpAlone) {
  EXPECT_EQ(
      error_text<ConfigError>([] { check_inference_mesh(Mesh::parse("dp=2,tp=2")); }),
      "mesh dp=2,tp=2: a forward pass computes its rows once, in one stage: it uses tp and cp, and has no dp axis\n"
      "  fix: use --mesh tp=4, or start one rank");
  EXPECT_NO_THROW(check_inference_mesh(Mesh::parse("tp=3")));
}

TEST(InferenceMesh, HasAsManyRanksAsTheHeadsAllow) {
  const ModelOnDisk disk(kUnevenGpt2);
  const auto text = error_text<ConfigError>([&] { inference_graph(disk.config, on_mesh("tp=3")); });
  EXPECT_NE(text.find("cannot be shared by tp=3"), std::string::npos) << text;
  EXPECT_NE(text.find("fix: set tp to 1, 2 or 4"), std::string::npos) << text;
}

TEST(InferenceMesh, AllThrowWhatOneOfThemFinds) {
  ModelOnDisk disk(kTiedLlama);
  disk.write_unequal_head();
  const auto errors = comm::try_thread_ranks(2, [&](int rank, const comm::Store& board) {
    auto options = on_mesh("tp=2");
    comm::CommOptions quick;
    quick.backend = comm::BackendKind::gloo;
    quick.timeout_seconds = 20;
    options.communicator =
        std::make_shared<comm::Communicator>(options.mesh, rank, board, quick, inference_groups(options.mesh));
    Inference(find_stored_model(disk.folder), options);
  });
  for (const auto& error : errors) {
    ASSERT_NE(error, nullptr);
    const auto text = error_text<DataError>([&] { std::rethrow_exception(error); });
    EXPECT_NE(text.find("lm_head.weight differs from model.embed_tokens.weight"), std::string::npos) << text;
  }
}

}  // namespace inference_ranks_test
}  // namespace orthant
