// Calls while a step is recorded, without a card: a transport that writes down what it is asked for.
#include "orthant/comm/recorded_exchanges.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "orthant/base/error.h"

namespace orthant::comm {
namespace recorded_exchanges_test {

class WrittenPending : public Pending {
 public:
  explicit WrittenPending(std::vector<std::string>& log) : log_(log) {}
  void wait() override { log_.push_back("over"); }

 private:
  std::vector<std::string>& log_;
};

class WritingTransport : public Transport {
 public:
  explicit WritingTransport(std::vector<std::string>& log) : log_(log) {}
  std::unique_ptr<Pending> start(const Call& call) override {
    log_.push_back(name_of(call.op));
    return std::make_unique<WrittenPending>(log_);
  }
  void set_timeout(double) override {}

 private:
  std::vector<std::string>& log_;
};

class Recording : public testing::Test {
 protected:
  Call sum() { return {.op = Op::all_reduce, .outputs = {at::ones({4})}}; }
  Call gather() { return {.op = Op::all_gather, .inputs = {at::ones({2})}, .outputs = {at::ones({4})}}; }

  std::vector<std::string> log;
  std::shared_ptr<RecordedExchanges> exchanges = std::make_shared<RecordedExchanges>(at::kCPU);
  GroupState group{{.name = "dp", .ranks = {0, 1}},
                   make_recordable_transport(std::make_unique<WritingTransport>(log), exchanges),
                   std::nullopt,
                   5,
                   std::make_shared<NoticedFailure>()};
};

TEST_F(Recording, PutsExchangesInOneLine) {
  auto first = sum(), second = gather();
  exchanges->begin();
  const auto a = group.start(first), b = group.start(second);
  EXPECT_EQ(log, (std::vector<std::string>{"all_reduce", "over", "all_gather", "over"}));
  EXPECT_TRUE(a->done());
  a->wait();
  b->wait();
  exchanges->end(/*whole=*/true);
  const auto c = group.start(first);
  EXPECT_EQ(log.size(), 5U);  // as ever: it is waited for when somebody asks
  c->wait();
  EXPECT_EQ(log.size(), 6U);
}

TEST_F(Recording, RefusesMessagesBetweenTwoRanks) {
  Call send{.op = Op::send, .inputs = {at::ones({2})}, .peer = 1};
  exchanges->begin();
  try {
    group.start(send);
    FAIL() << "not refused";
  } catch (const ConfigError& error) {
    EXPECT_NE(error.message().find("while a step is recorded as a CUDA graph: messages between two ranks"),
              std::string::npos)
        << error.message();
    EXPECT_EQ(error.remedy(), "use train.cuda_graph=off");
  }
  EXPECT_TRUE(log.empty());
}

TEST_F(Recording, RefusesTensorsThatAGraphDoesNotKnow) {
  RecordedExchanges of_a_card{at::Device(at::kMeta)};
  WritingTransport inner(log);
  EXPECT_THROW(of_a_card.start(inner, sum()), ConfigError);
  EXPECT_TRUE(log.empty());
}

TEST_F(Recording, CountsEachPlay) {
  auto before_all = sum();
  group.start(before_all)->wait();
  const auto before = group.counts();
  auto first = sum(), second = gather();
  exchanges->begin();
  group.start(first)->wait();
  group.start(second)->wait();
  exchanges->end(true);
  const auto after = group.counts();
  group.count_again(before, after);
  group.count_again(before, after);
  EXPECT_EQ(group.counters().of(Op::all_reduce).calls, 4);
  EXPECT_EQ(group.counters().of(Op::all_reduce).bytes, 64);
  EXPECT_EQ(group.counters().of(Op::all_gather).calls, 3);
  auto next = sum();
  group.start(next)->wait();
  EXPECT_EQ(next.sequence, 7U);
  group.count_as(before);
  EXPECT_EQ(group.counters().total().calls, 1);
}

}  // namespace recorded_exchanges_test
}  // namespace orthant::comm
