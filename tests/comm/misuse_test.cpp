// Calls a group refuses before anything travels, each with a text that says what to do.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "comm/ranks.h"
#include "orthant/base/error.h"

namespace orthant::comm {
namespace misuse_test {

std::string refusal(const std::function<void(Group&)>& misuse) {
  CommOptions options;
  options.backend = BackendKind::fake;
  Communicator communicator(Mesh::parse("dp=4"), 1, std::nullopt, options);
  auto group = communicator.world();
  try {
    misuse(group);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

void expect_has(const std::string& text, const std::vector<std::string>& parts) {
  for (const auto& part : parts) EXPECT_NE(text.find(part), std::string::npos) << part << " not in: " << text;
}

TEST(GroupMisuse, NonContiguousTensor) {
  expect_has(refusal([](Group& group) { group.all_reduce(at::ones({4, 4}).t()).wait(); }),
             {"all_reduce", "not contiguous", "tensor.contiguous()", "misuse_test.cpp"});
}

TEST(GroupMisuse, DtypeThatCannotTravel) {
  expect_has(refusal([](Group& group) { group.all_reduce(at::ones({4}, at::kBool)).wait(); }), {"bool", "uint8"});
}

TEST(GroupMisuse, PartsThatDoNotDivide) {
  expect_has(refusal([](Group& group) { group.all_gather(at::ones({10}), at::ones({2})).wait(); }),
             {"10 elements", "4 ranks", "number of elements per rank"});
  expect_has(refusal([](Group& group) { group.reduce_scatter(at::ones({2}), at::ones({12})).wait(); }),
             {"use a part of 3 elements"});
}

TEST(GroupMisuse, SubjectsThatDoNotFit) {
  expect_has(refusal([](Group& group) {
               group.all_reduce({at::ones({1}), at::ones({1})}, Reduction::sum, {Subject()}).wait();
             }),
             {"1 subjects for 2 tensors", "one for each tensor"});
}

TEST(GroupMisuse, CountsThatDoNotFit) {
  expect_has(refusal([](Group& group) { group.all_gather(at::ones({10}), at::ones({2}), {1, 2, 3}).wait(); }),
             {"counts [1, 2, 3]", "4 ranks", "one count per rank"});
  expect_has(refusal([](Group& group) { group.all_gather(at::ones({10}), at::ones({2}), {12, -2, 0, 0}).wait(); }),
             {"negative"});
}

TEST(GroupMisuse, PeerOutsideTheGroupAndTagOutOfRange) {
  expect_has(refusal([](Group& group) { group.send(at::ones({1}), 4).wait(); }), {"peer 4", "group of 4"});
  expect_has(refusal([](Group& group) { group.send(at::ones({1}), 0, -1).wait(); }), {"tag -1"});
}

TEST(GroupMisuse, WorkThatNobodyWaitedForIsReportedByTheNextCall) {
  expect_has(refusal([](Group& group) {
               {
                 auto forgotten = group.all_reduce(at::ones({3}));
               }
               group.barrier().wait();
             }),
             {"all_reduce #0", "without wait()", "misuse_test.cpp"});
}

TEST(GroupMisuse, WorkThatNobodyWaitedForIsReportedByClose) {
  CommOptions options;
  options.backend = BackendKind::fake;
  Communicator communicator(Mesh::parse("dp=4"), 1, std::nullopt, options);
  {
    auto forgotten = communicator.world().barrier();
  }
  EXPECT_THROW(communicator.close(), ConfigError);
}

TEST(GroupMisuse, WorkThatIsStillOpenIsReportedByClose) {
  CommOptions options;
  options.backend = BackendKind::fake;
  Communicator communicator(Mesh::parse("dp=4"), 1, std::nullopt, options);
  auto open = communicator.world().barrier();
  EXPECT_THROW(communicator.close(), ConfigError);
  open.wait();
  communicator.close();
}

TEST(GroupMisuse, CallAfterClose) {
  CommOptions options;
  options.backend = BackendKind::fake;
  Communicator communicator(Mesh::parse("dp=4"), 1, std::nullopt, options);
  auto group = communicator.world();
  communicator.close();
  EXPECT_THROW(group.barrier().wait(), ConfigError);
  EXPECT_THROW(communicator.world().barrier().wait(), ConfigError);
  EXPECT_THROW(Group().barrier().wait(), ConfigError);
}

TEST(GroupMisuse, CountsThatDoNotFitTheOwnTensor) {
  expect_has(refusal([](Group& group) { group.all_gather(at::ones({10}), at::ones({1}), {4, 3, 2, 1}).wait(); }),
             {"a part of 1 elements", "use a part of 3 elements"});
  expect_has(refusal([](Group& group) { group.reduce_scatter(at::ones({4}), at::ones({10}), {4, 3, 2, 1}).wait(); }),
             {"a part of 4 elements", "use a part of 3 elements"});
}

TEST(GroupMisuse, UndefinedTensorAndMessageToOneself) {
  expect_has(refusal([](Group& group) { group.all_reduce(at::Tensor()).wait(); }), {"undefined", "misuse_test.cpp"});
  expect_has(refusal([](Group& group) { group.send(at::ones({1}), 1).wait(); }), {"oneself"});
}

TEST(GroupMisuse, SubgroupsWithATakenNameOrOverlappingMembers) {
  CommOptions options;
  options.backend = BackendKind::fake;
  const auto make = [&](const SubgroupRequest& request) {
    Communicator communicator(Mesh::parse("dp=4"), 1, std::nullopt, options, {}, {request});
  };
  EXPECT_THROW(make({"tp", {{0, 1}}}), ConfigError);
  EXPECT_THROW(make({"tied", {{0, 1}, {1, 2}}}), ConfigError);
  EXPECT_THROW(make({"tied", {{0, 9}}}), ConfigError);
  EXPECT_NO_THROW(make({"tied", {{0, 1}, {2, 3}}}));
}

TEST(Group, CommunicationIsNoPartOfAnyGraph) {
  CommOptions options;
  options.backend = BackendKind::fake;
  Communicator communicator(Mesh::parse("dp=2"), 1, std::nullopt, options);
  const auto parameter = at::ones({2}).requires_grad_();
  const auto gathered = at::zeros({4});
  communicator.world().all_gather(gathered, parameter).wait();
  EXPECT_FALSE(gathered.requires_grad());
  communicator.world().reduce_scatter(parameter, gathered).wait();  // into a leaf
}

TEST(GroupMisuse, GroupThatWasNotAskedFor) {
  CommOptions options;
  options.backend = BackendKind::fake;
  Communicator communicator(Mesh::parse("dp=4"), 1, std::nullopt, options);
  EXPECT_THROW(communicator.group(Axis::tp), ConfigError);
}

TEST(Backend, UnknownNameIsRefusedWithTheNearest) {
  try {
    parse_backend("glo");
    FAIL();
  } catch (const ConfigError& error) {
    expect_has(error.what(), {"'glo'", "--backend gloo"});
  }
}

}  // namespace misuse_test
}  // namespace orthant::comm
