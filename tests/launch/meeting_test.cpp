#include "orthant/launch/meeting.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <iostream>

#include "launch/launch_fixture.h"
#include "launch/message_of.h"
#include "launch/shared_memory.h"
#include "orthant/base/error.h"

namespace orthant::launch {
namespace {

using Meeting = LauncherTest;

// A job as detect() leaves it on one host without a port.
Job unmet(int rank, int world_size, const std::string& what) {
  Job job;
  job.rank = job.local_rank = rank;
  job.world_size = job.local_world_size = world_size;
  job.rendezvous.meeting_key = "test-" + std::to_string(getppid()) + "-" + what;
  return job;
}

struct Ports {
  volatile int port[8];
  volatile int failed;
};

TEST_F(Meeting, TellsEveryRankThePortThatRankZeroBound) {
  options_.num_ranks = 6;
  SharedMemory<Ports> shared;
  const auto outcome = run_forked(options_, [&](const Job& own) {
    Job job = unmet(own.rank, 6, "ports");
    if (job.rank == 0) usleep(20'000);  // the others must be able to come first
    meet(job, 20);
    shared->port[job.rank] = job.rendezvous.port;
    if ((job.rank == 0) != (job.rendezvous.listen_fd >= 0)) return 1;
    return job.rank != 0 || bound_endpoint(job.rendezvous.listen_fd).host == "127.0.0.1" ? 0 : 2;
  });
  EXPECT_EQ(outcome.exit_code, 0) << outcome.report;
  EXPECT_GT(shared->port[0], 0);
  for (int rank = 1; rank < 6; ++rank) EXPECT_EQ(shared->port[rank], shared->port[0]);
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

TEST_F(Meeting, NamesTheRanksThatNeverCame) {
  Job job = unmet(0, 3, "lonely");
  const auto message = message_of<CommError>([&] { meet(job, 0.05); });
  EXPECT_NE(message.find("rank 0 waited 0.05 s for ranks 1, 2"), std::string::npos) << message;
}

TEST_F(Meeting, RefusesASecondRankZero) {
  options_.num_ranks = 2;
  SharedMemory<Ports> shared;
  const auto outcome = run_forked(options_, [&](const Job&) {
    Job job = unmet(0, 2, "twice");
    try {
      meet(job, 5);
    } catch (const ConfigError& error) {
      std::cerr << error.what() << "\n";
      shared->failed = 1;
      Job other = unmet(1, 2, "twice");  // lets the first go on
      meet(other, 5);
    }
    return 0;
  });
  EXPECT_EQ(outcome.exit_code, 0) << outcome.report;
  EXPECT_EQ(shared->failed, 1);
  EXPECT_NE(err_.text().find("another rank 0 of this job"), std::string::npos);
}

TEST_F(Meeting, BindsAFixedPortOnRankZeroAndNamesItWhenTaken) {
  Fd taken = bind_tcp({"127.0.0.1", 0});
  Job job;
  job.world_size = job.local_world_size = 2;
  job.rendezvous.port = bound_endpoint(taken.get()).port;
  start_listening(taken.get());
  const auto message = message_of<ConfigError>([&] { meet(job, 1); });
  EXPECT_NE(message.find(std::to_string(job.rendezvous.port)), std::string::npos) << message;
  taken.reset();
  meet(job, 1);
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

TEST_F(Meeting, FindsTheAddressToListenOn) {
  Job job;
  job.rank = 1;
  job.world_size = 2;
  job.rendezvous.host = "127.0.0.1";
  job.rendezvous.bind_address = "";
  try {
    meet(job, 1);
    EXPECT_FALSE(is_loopback(job.rendezvous.bind_address));
  } catch (const ConfigError& error) {  // a machine without any route
    EXPECT_NE(std::string(error.what()).find("--bind"), std::string::npos);
  }
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

}  // namespace
}  // namespace orthant::launch
