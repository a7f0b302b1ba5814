#include "orthant/launch/meeting.h"

#include <sys/socket.h>

#include <iostream>

#include "launch/launch_fixture.h"
#include "launch/message_of.h"
#include "orthant/base/error.h"
#include "orthant/launch/store_join.h"
#include "orthant/launch/store_server.h"

namespace orthant::launch {
namespace meeting_test {

using Meeting = LauncherTest;

// A job as detect() leaves it on one host without a port.
Job unmet(int rank, int world_size, const std::string& what) {
  Job job;
  job.rank = job.local_rank = rank;
  job.world_size = job.local_world_size = world_size;
  job.rendezvous.meeting_key = "test-" + std::to_string(getppid()) + "-" + what;
  return job;
}

TEST_F(Meeting, BringsEveryRankIntoTheStoreThatRankZeroServesWithoutAnyPort) {
  options_.num_ranks = 6;
  const auto outcome = run_forked(options_, [&](const Job& own) {
    Job job = unmet(own.rank, 6, "ranks");
    if (job.rank == 0) usleep(20'000);  // the others must be able to come first
    meet(job, 20);
    if ((job.rank == 0) != (job.rendezvous.listen_fd >= 0)) return 1;
    const auto store = join_orthant_store(job, 20);
    if ((job.rank == 0) != (store->server != nullptr)) return 2;
    if (job.rank == 0 && num_tcp_listeners() != 0) return 3;
    store->client->set("here/" + std::to_string(job.rank), "");
    std::vector<std::string> all;
    for (int rank = 0; rank < 6; ++rank) all.push_back("here/" + std::to_string(rank));
    if (!store->client->wait(all, 20)) return 4;
    if (job.rank != 0) return store->client->set("left/" + std::to_string(job.rank), ""), 0;
    for (auto& key : all) key.replace(0, 4, "left");
    all.erase(all.begin());
    return store->client->wait(all, 20) ? 0 : 5;
  });
  EXPECT_EQ(outcome.exit_code, 0) << outcome.report;
}

TEST_F(Meeting, LetsEachRankInOnceAndNobodyWhenAllHaveCome) {
  Job first = unmet(0, 3, "once");
  meet(first, 5);
  const auto store = join_orthant_store(first, 5);
  Job second = unmet(1, 3, "once");
  meet(second, 5);
  const auto joined = join_orthant_store(second, 5);
  Job again = unmet(1, 3, "once");
  meet(again, 5);
  EXPECT_THROW(enter_meeting_over(Fd(std::exchange(again.rendezvous.store_fd, -1)), again, 5), CommError);
  Job third = unmet(2, 3, "once");
  meet(third, 5);
  const auto last = join_orthant_store(third, 5);
  last->client->set("k", "v");
  EXPECT_EQ(joined->client->get({"k"}, 5)->front(), "v");
  const auto message = message_of<CommError>([&] {
    Job late = unmet(2, 3, "once");
    meet(late, 0.02);
  });
  EXPECT_NE(message.find("rank 2 waited 0.02 s for rank 0"), std::string::npos) << message;
  for (Job* job : {&second, &third}) close(job->rendezvous.store_fd);
}

TEST_F(Meeting, TellsARankThatIsNotExpectedWhy) {
  Job first = unmet(0, 3, "why");
  meet(first, 5);
  const auto store = join_orthant_store(first, 5);
  const auto refusal_of = [](Job job) {
    meet(job, 5);
    const Fd connection(job.rendezvous.store_fd);
    const auto begin = Clock::now();
    const auto message = message_of<ConfigError>([&] { join_orthant_store(job, 20); });
    EXPECT_LT(Clock::now() - begin, seconds(15));
    return message;
  };
  auto message = refusal_of(unmet(1, 4, "why"));
  EXPECT_NE(message.find("rank 1 is of a world of 4 ranks, rank 0 of one of 3"), std::string::npos) << message;
  EXPECT_NE(message.find("give every rank the same world size"), std::string::npos) << message;
  Job second = unmet(1, 3, "why");
  meet(second, 5);
  const Fd connection(second.rendezvous.store_fd);
  const auto joined = join_orthant_store(second, 5);
  Job twice = unmet(1, 3, "why");
  meet(twice, 5);
  const Fd other(twice.rendezvous.store_fd);
  message = message_of<ConfigError>([&] { enter_meeting(twice, 20); });
  EXPECT_NE(message.find("a rank 1 has come before"), std::string::npos) << message;
}

TEST_F(Meeting, GivesUpOnARankZeroThatLetsNobodyIn) {
  Job first = unmet(0, 2, "deaf");
  meet(first, 5);
  const Fd listener(first.rendezvous.listen_fd);
  Job second = unmet(1, 2, "deaf");
  meet(second, 5);
  const Fd connection(second.rendezvous.store_fd);
  const auto message = message_of<CommError>([&] { join_orthant_store(second, 0.05); });
  EXPECT_NE(message.find("rank 1 waited 0.05 s for rank 0 on this host to let it in"), std::string::npos) << message;
}

TEST_F(Meeting, WaitsForRanksThatConnectLongBeforeTheySpeakHoweverManyTheyAre) {
  constexpr int kRanks = 100;  // more than strangers of whom a proof is awaited
  Job first = unmet(0, kRanks, "many");
  meet(first, 5);
  std::vector<std::string> said;
  StoreServer server([&](const std::string& text) { said.push_back(text); }, {.num_strangers = 2});
  serve_meeting(server, first);
  EXPECT_THROW(serve_meeting(server, unmet(0, 2, "again")), CommError) << "a descriptor that is no listener";
  server.start();
  std::vector<Fd> connections;
  for (int rank = 1; rank < kRanks; ++rank) {
    Job job = unmet(rank, kRanks, "many");
    meet(job, 5);
    connections.emplace_back(job.rendezvous.store_fd);
  }
  for (int rank = 1; rank < kRanks; ++rank) {
    auto& connection = connections[static_cast<std::size_t>(rank) - 1];
    connection = enter_meeting_over(std::move(connection), unmet(rank, kRanks, "many"), 20);
  }
  EXPECT_TRUE(said.empty()) << said.front();
}

TEST_F(Meeting, OpensNothingForAWorldOfOne) {
  Job job = unmet(0, 1, "alone");
  meet(job, 1);
  EXPECT_EQ(job.rendezvous.listen_fd, -1);
}

TEST_F(Meeting, SaysWhichRankWaitedForRankZeroHowLong) {
  Job job = unmet(2, 3, "nobody");
  const auto message = message_of<CommError>([&] { meet(job, 0.05); });
  EXPECT_NE(message.find("rank 2 waited 0.05 s for rank 0"), std::string::npos) << message;
}

TEST_F(Meeting, RefusesASecondRankZero) {
  Job first = unmet(0, 2, "twice");
  meet(first, 5);
  Job second = unmet(0, 2, "twice");
  const auto message = message_of<ConfigError>([&] { meet(second, 5); });
  EXPECT_NE(message.find("another rank 0 of this job"), std::string::npos) << message;
  close(first.rendezvous.listen_fd);
}

TEST_F(Meeting, BindsAFixedPortOnRankZeroAndNamesItWhenTaken) {
  Fd taken = bind_tcp({"127.0.0.1", 0});
  Job job;
  job.world_size = 2;  // on two hosts
  job.rendezvous.port = bound_endpoint(taken.get()).port;
  start_listening(taken.get());
  const auto message = message_of<ConfigError>([&] { meet(job, 1, {.none = true}); });
  EXPECT_NE(message.find(std::to_string(job.rendezvous.port)), std::string::npos) << message;
  taken.reset();
  meet(job, 1, {.none = true});
  EXPECT_EQ(bound_endpoint(job.rendezvous.listen_fd).port, job.rendezvous.port);
  close(job.rendezvous.listen_fd);
}

TEST_F(Meeting, OpensNothingWhenTheLauncherServes) {
  Job job;
  job.world_size = job.local_world_size = 2;
  job.rendezvous.port = 1;
  job.rendezvous.served_by_launcher = true;
  meet(job, 1);
  EXPECT_EQ(job.rendezvous.listen_fd, -1);
}

TEST_F(Meeting, ListensOnLoopbackWhereRanksMeetThereAndOutsideElsewhere) {
  Job job;
  job.rank = 1;
  job.world_size = 2;
  job.rendezvous.host = "127.0.0.1";
  job.rendezvous.bind_address = "";
  meet(job, 1, {.none = true});
  EXPECT_EQ(job.rendezvous.bind_address, "127.0.0.1");
  job.rendezvous.host = "192.0.2.1";
  job.rendezvous.bind_address = "";
  try {
    meet(job, 1, {.none = true});
    EXPECT_FALSE(is_loopback(job.rendezvous.bind_address));
  } catch (const ConfigError& error) {  // a machine without any route
    EXPECT_NE(std::string(error.what()).find("--bind"), std::string::npos);
  }
}

TEST_F(Meeting, OnSeveralHostsNeedsAToken) {
  Job job;
  job.rank = 1;
  job.world_size = 2;
  job.rendezvous.host = "10.213.77.9";
  const auto message = message_of<ConfigError>([&] { meet(job, 1); });
  EXPECT_NE(message.find("2 ranks on several hosts without a job token"), std::string::npos) << message;
  EXPECT_NE(message.find("ORTHANT_TOKEN"), std::string::npos) << message;
  job.rendezvous.served_by_launcher = true;  // torchrun's store is torchrun's
  EXPECT_NO_THROW(meet(job, 1));
}

TEST_F(Meeting, KnowsTheLauncherThroughWrapperProcesses) {
  // The ranks' common launcher is this process; one rank has a wrapper with the rank variable in between.
  options_.num_ranks = 2;
  const auto outcome =
      run_program(options_, {"sh", "-c", "echo $PPID; sh -c 'echo $PPID; true'; true"}, {{"PATH", "/bin:/usr/bin"}});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(launcher_process_id("PATH_THAT_NOBODY_HAS"), launcher_process_id(""));
  EXPECT_TRUE(launcher_process_id("").starts_with(std::to_string(getppid()) + "."));
  EXPECT_GE(launcher_age_seconds(""), 0);
  EXPECT_LT(launcher_age_seconds(""), 1e9);
}

}  // namespace meeting_test
}  // namespace orthant::launch
