// run_program: any program with torchrun's variables.
#include <fcntl.h>
#include <sys/socket.h>

#include <algorithm>

#include "launch/launch_fixture.h"
#include "launch/message_of.h"
#include "orthant/base/error.h"
#include "orthant/launch/detect.h"
#include "orthant/launch/environment.h"

namespace orthant::launch {
namespace program_test {

class Program : public LauncherTest {
 protected:
  Outcome shell(const std::string& script, const ProgramJob& job = {}, const ProgramHooks& hooks = {}) {
    return run_program(options_, {"sh", "-c", script}, environment_, job, hooks);
  }
  Environment environment_ = process_environment();
};

TEST_F(Program, SeesTorchrunsVariables) {
  options_.num_ranks = 2;
  environment_["RANK"] = "stale";
  environment_.erase("OMP_NUM_THREADS");
  ProgramJob job;
  job.rank_offset = 4;
  job.world_size = 6;
  job.node_rank = 1;
  job.num_nodes = 2;
  job.master_address = "10.1.2.3";
  job.master_port = 1234;
  job.restart_count = 1;
  job.max_restarts = 3;
  job.run_id = "job7";
  const auto outcome = shell(
      "echo $RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $GROUP_RANK $GROUP_WORLD_SIZE $ROLE_RANK $ROLE_WORLD_SIZE "
      "$ROLE_NAME $MASTER_ADDR $MASTER_PORT $TORCHELASTIC_USE_AGENT_STORE $TORCHELASTIC_RESTART_COUNT "
      "$TORCHELASTIC_MAX_RESTARTS $TORCHELASTIC_RUN_ID $OMP_NUM_THREADS",
      job);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.report;
  EXPECT_NE(err_.text().find("[rank 5] 5 1 6 2 1 2 5 6 default 10.1.2.3 1234 True 1 3 job7 1\n"), std::string::npos)
      << err_.text();
}

TEST_F(Program, IsDetectedByItsOwnRanks) {
  ProgramJob job;
  job.master_port = 4000;
  const auto seen = detect(rank_environment({}, job, 4, 3));
  EXPECT_EQ(seen->rank, 3);
  EXPECT_EQ(seen->world_size, 4);
  EXPECT_TRUE(seen->rendezvous.served_by_launcher);
  EXPECT_EQ(seen->rendezvous.prefix, "/worker/attempt_0");
  EXPECT_EQ(seen->rendezvous.bind_address, "127.0.0.1");
}

TEST_F(Program, TellsItsRanksTheNameOfTheirJobAndOfNoOther) {
  environment_[kJobVariable] = "0f";
  EXPECT_EQ(shell("test -z \"$ORTHANT_JOB\"", {}).exit_code, 0);
  ProgramJob job;
  job.job_name = "3a";
  EXPECT_EQ(shell("test \"$ORTHANT_JOB\" = 3a", job).exit_code, 0);
}

TEST_F(Program, KeepsTheThreadCountTheUserSet) {
  environment_["OMP_NUM_THREADS"] = "6";
  shell("echo $OMP_NUM_THREADS");
  EXPECT_EQ(out_.text(), "6\n");
}

TEST_F(Program, FindsTheStoreListeningBeforeItIsServed) {
  options_.num_ranks = 2;
  bool served = false;
  bool dropped = false;
  ProgramHooks hooks;
  hooks.after_spawn = [&](int listen_fd, const std::string& host, int port) -> std::shared_ptr<void> {
    served = true;
    EXPECT_EQ(host, "127.0.0.1");
    EXPECT_EQ(bound_endpoint(listen_fd).port, port);
    int listening = 0;
    socklen_t length = sizeof listening;
    getsockopt(listen_fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &length);
    EXPECT_EQ(listening, 1);
    return {new Fd(listen_fd), [&](void* fd) {
              delete static_cast<Fd*>(fd);
              dropped = true;
            }};
  };
  // bash can open TCP connections; an accept is not needed for them to succeed.
  const auto outcome =
      run_program(options_, {"bash", "-c", "exec 3<>/dev/tcp/$MASTER_ADDR/$MASTER_PORT"}, environment_, {}, hooks);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.report;
  EXPECT_TRUE(served);
  EXPECT_TRUE(dropped);
}

TEST_F(Program, ThatDoesNotExistIsAConfigError) {
  options_.num_ranks = 3;
  const auto message = message_of<ConfigError>([&] { run_program(options_, {"no-such-program-here"}, environment_); });
  EXPECT_NE(message.find("cannot run 'no-such-program-here': No such file or directory"), std::string::npos) << message;
  EXPECT_THROW(run_program(options_, {"/etc/passwd"}, environment_), ConfigError);
  EXPECT_THROW(run_program(options_, {}, environment_), ConfigError);
}

TEST_F(Program, FailsWithItsOwnExitCode) {
  options_.num_ranks = 3;
  const auto outcome = shell("if [ $RANK = 1 ]; then echo broken >&2; exit 41; fi; sleep 100");
  EXPECT_EQ(outcome.exit_code, 41);
  EXPECT_EQ(outcome.failed_rank, 1);
  EXPECT_EQ(outcome.report, "rank 1: exit code 41\nlast lines of rank 1:\n  | broken");
}

TEST_F(Program, LosesItsBackgroundProcessesWithIt) {
  const auto outcome = shell("sleep 1000 & echo $!; exit 7");
  EXPECT_EQ(outcome.exit_code, 7);
  EXPECT_TRUE(process_ends(std::stoi(out_.text())));
}

TEST_F(Program, GetsForwardedSignalsThroughAWrapper) {
  const auto outcome = shell("kill -TERM $PPID; sleep 1000; true");
  EXPECT_EQ(outcome.exit_code, 128 + SIGTERM) << outcome.report;
  // The wrapper outlives the signal, and the program behind it answers.
  shell(
      "trap : TERM; LAUNCHER=$PPID sh -c 'trap \"echo told; exit\" TERM; kill -TERM $LAUNCHER; "
      "while :; do sleep 0.01; done' & wait; wait");
  EXPECT_EQ(out_.text(), "told\n");
}

TEST_F(Program, InheritsNoDescriptorOfTheLauncherButTheTwoToSpeakThrough) {
  options_.num_ranks = 2;
  options_.log_dir = folder_;
  int inherited = 4;
  for (const auto& name : open_descriptors()) {
    inherited += std::stoi(name) > 2 && (fcntl(std::stoi(name), F_GETFD) & FD_CLOEXEC) == 0;
  }
  const auto outcome = run_program(
      options_,
      {"sh", "-c",
       "ls /proc/self/fd; readlink /proc/self/fd/${ORTHANT_ACTIVITY%:*} /proc/self/fd/${ORTHANT_STORE%%:*} >&2"},
      environment_);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.report;
  const auto listed = out_.text();
  EXPECT_EQ(std::count(listed.begin(), listed.end(), '\n'), inherited + 2) << listed;  // ls holds the folder open
  EXPECT_NE(err_.text().find("memfd:orthant-activity"), std::string::npos) << err_.text();
  EXPECT_NE(err_.text().find("] socket:["), std::string::npos) << err_.text();
}

}  // namespace program_test
}  // namespace orthant::launch
