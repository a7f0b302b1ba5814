// Sums left out on purpose: which ones, what a rank has instead, and that all others go on as they were.
#include "orthant/comm/faulty.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <array>

#include "comm/ranks.h"

namespace orthant::comm {
namespace faulty_test {

constexpr std::array<std::string_view, 3> kFirst = {"layers.0", "layers.0.a", "layers.0.b"};
constexpr std::array<std::string_view, 2> kSecond = {"layers.1", "layers.1.a"};

void with_fault(const Mesh& mesh, const LeftOutSums& which, const std::vector<GroupRequest>& groups,
                const test::Body& body) {
  for (const bool check : {false, true}) {
    auto options = test::quick(check, BackendKind::shm);
    options.wrap = leave_out_sums(mesh, which);
    test::on_ranks(mesh, options, groups, body);
  }
}

at::Tensor own(const Communicator& communicator, std::int64_t elements) {
  return at::full({elements}, communicator.rank() + 1.0, at::kDouble);
}

void expect_filled(const at::Tensor& tensor, double value, const char* what) {
  EXPECT_TRUE(tensor.eq(value).all().item<bool>()) << what << ": " << tensor << " is not all " << value;
}

TEST(FaultyTransport, LeavesOutTheSumsOfAUnitOrParameterAlone) {
  struct Row {
    const char* name;
    bool first, second;  // left out
  };
  for (const Row& row : {Row{"layers.0", true, false}, Row{"layers.0.b", true, false}, Row{"layers.1.a", false, true},
                         Row{"", true, true}, Row{"layers", false, false}}) {
    SCOPED_TRACE(row.name);
    with_fault(Mesh::parse("tp=3"), {.axis = Axis::tp, .name = row.name}, {{Axis::tp, Purpose::gradients}},
               [&](Communicator& communicator) {
                 const double mine = communicator.rank() + 1;
                 const auto first = own(communicator, 4), second = own(communicator, 2), third = own(communicator, 1);
                 auto group = communicator.group(Axis::tp, Purpose::gradients);
                 group.all_reduce({first, second, third}, Reduction::sum, {kFirst, kSecond, {}}).wait();
                 expect_filled(first, row.first ? mine : 6, "first");
                 expect_filled(second, row.second ? mine : 6, "second");
                 expect_filled(third, 6, "without a subject");
                 const auto alone = own(communicator, 3), largest = own(communicator, 3), plain = own(communicator, 3);
                 group.all_reduce(alone, Reduction::sum, kFirst).wait();
                 group.all_reduce(largest, Reduction::max, kFirst).wait();
                 group.all_reduce(plain).wait();
                 expect_filled(alone, row.first ? mine : 6, "alone");
                 expect_filled(largest, 3, "a maximum");
                 expect_filled(plain, 6, "plain");
               });
  }
}

TEST(FaultyTransport, LeavesEachRankItsOwnPartOfWhatWasToBeScattered) {
  with_fault(Mesh::parse("fsdp=3"), {.axis = Axis::fsdp, .name = "layers.0.a"}, {{Axis::fsdp, Purpose::gradients}},
             [&](Communicator& communicator) {
               auto group = communicator.group(Axis::fsdp, Purpose::gradients);
               const auto index = group.index();
               const auto numbers = [&](std::int64_t count) { return at::arange(count, at::kDouble).mul_(index + 1); };
               const std::vector<std::int64_t> counts = {1, 3, 2};
               const std::vector<std::int64_t> begins = {0, 1, 4};
               const auto part = counts[static_cast<std::size_t>(index)];
               const auto begin = begins[static_cast<std::size_t>(index)];
               const auto input = numbers(6);
               const auto output = at::zeros({part}, at::kDouble);
               group.reduce_scatter(output, input, counts, Reduction::sum, kFirst).wait();
               EXPECT_TRUE(at::equal(output, numbers(6).narrow(0, begin, part)));
               group.reduce_scatter(output, input, counts, Reduction::sum, kSecond).wait();
               EXPECT_TRUE(at::equal(output, at::arange(6, at::kDouble).mul_(6).narrow(0, begin, part)));
               // Two tensors, of which one is left out, in the memory of the inputs.
               const auto first = numbers(6), second = numbers(6);
               group
                   .reduce_scatter({first.narrow(0, 2 * index, 2), second.narrow(0, 2 * index, 2)}, {first, second},
                                   Reduction::sum, {kFirst, kSecond})
                   .wait();
               EXPECT_TRUE(at::equal(first, numbers(6)));
               EXPECT_TRUE(at::equal(second.narrow(0, 2 * index, 2),
                                     at::arange(6, at::kDouble).mul_(6).narrow(0, 2 * index, 2)));
             });
}

TEST(FaultyTransport, LeavesGroupsOverOtherAxesAsTheyAre) {
  const AxisSet both = {Axis::dp, Axis::fsdp};
  const std::vector<GroupRequest> groups = {{Axis::tp}, {Axis::dp}, {both}};
  with_fault(Mesh::parse("dp=2,fsdp=2,tp=2"), {.axis = Axis::dp}, groups, [&](Communicator& communicator) {
    const auto sum_over = [&](AxisSet axes) {
      const auto tensor = at::ones({2}, at::kDouble);
      communicator.group(axes).all_reduce(tensor, Reduction::sum, kFirst).wait();
      return tensor[1].item<double>();
    };
    EXPECT_EQ(sum_over(Axis::tp), 2);
    EXPECT_EQ(sum_over(Axis::dp), 1);
    EXPECT_EQ(sum_over(both), 1) << "its ranks differ in dp, too";
  });
}

}  // namespace faulty_test
}  // namespace orthant::comm
