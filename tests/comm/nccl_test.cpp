// Every operation through NCCL itself with one rank: a group of one would not use it.
#include "orthant/comm/nccl.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "comm/ranks.h"

namespace orthant::comm {
namespace nccl_test {

using test::like;

class Nccl : public testing::Test {
 protected:
  void run(Call call) {
    call.sequence = sequence_++;
    validate(call, 1, 0);
    transport_->start(call)->wait();
  }

  std::unique_ptr<Transport> transport_ =
      make_nccl_transport(std::make_shared<CallWatch>(std::make_shared<NoticedFailure>(), nullptr),
                          make_process_store(), {.name = "alone", .ranks = {0}}, test::kDevice, 60);
  uint64_t sequence_ = 0;
};

TEST_F(Nccl, CarriesEveryCollectiveInEveryDtype) {
  for (const auto dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf, at::kLong, at::kInt, at::kByte}) {
    const auto input = at::arange(8, like(at::kLong)).to(dtype);
    const auto check = [&](Call call) {
      auto output = call.outputs.front();
      run(std::move(call));
      EXPECT_TRUE(at::equal(output, input)) << dtype;
    };
    check({.op = Op::all_reduce, .outputs = {input.clone()}});
    check({.op = Op::all_reduce, .reduction = Reduction::max, .outputs = {input.clone()}});
    check({.op = Op::broadcast, .outputs = {input.clone()}, .peer = 0});
    check({.op = Op::all_gather, .inputs = {input}, .outputs = {at::zeros_like(input)}});
    check({.op = Op::all_gather, .inputs = {input}, .outputs = {at::zeros_like(input)}, .output_counts = {8}});
    check({.op = Op::reduce_scatter, .inputs = {input}, .outputs = {at::zeros_like(input)}});
    check({.op = Op::reduce_scatter, .inputs = {input}, .outputs = {at::zeros_like(input)}, .input_counts = {8}});
    check({.op = Op::all_to_all, .inputs = {input}, .outputs = {at::zeros_like(input)}});
    check({.op = Op::all_to_all,
           .inputs = {input},
           .outputs = {at::zeros_like(input)},
           .input_counts = {8},
           .output_counts = {8}});
  }
  run({.op = Op::barrier});
}

TEST_F(Nccl, CarriesListsAsOneCall) {
  std::vector<at::Tensor> inputs{at::ones({4}, like(at::kFloat)), at::ones({6}, like(at::kFloat))};
  std::vector<at::Tensor> outputs{at::zeros({4}, like(at::kFloat)), at::zeros({6}, like(at::kFloat))};
  run({.op = Op::all_gather, .inputs = inputs, .outputs = outputs});
  run({.op = Op::reduce_scatter, .inputs = inputs, .outputs = outputs});
  run({.op = Op::all_reduce, .outputs = outputs});
  for (size_t i = 0; i < inputs.size(); ++i) EXPECT_TRUE(at::equal(inputs[i], outputs[i]));
}

}  // namespace nccl_test
}  // namespace orthant::comm
