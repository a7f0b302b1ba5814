#include "orthant/launch/detect.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>

#include "launch/message_of.h"
#include "orthant/base/error.h"

namespace orthant::launch {
namespace detect_test {

using ::testing::TempDir;

Environment torchrun(int rank = 5) {
  return {{"RANK", std::to_string(rank)},
          {"WORLD_SIZE", "8"},
          {"LOCAL_RANK", std::to_string(rank % 4)},
          {"LOCAL_WORLD_SIZE", "4"},
          {"GROUP_RANK", std::to_string(rank / 4)},
          {"GROUP_WORLD_SIZE", "2"},
          {"MASTER_ADDR", "node01"},
          {"MASTER_PORT", "29500"}};
}

Environment open_mpi(int rank = 1, int size = 4) {
  return {{"OMPI_COMM_WORLD_RANK", std::to_string(rank)},
          {"OMPI_COMM_WORLD_SIZE", std::to_string(size)},
          {"OMPI_COMM_WORLD_LOCAL_RANK", std::to_string(rank)},
          {"OMPI_COMM_WORLD_LOCAL_SIZE", std::to_string(size)},
          {"PMIX_NAMESPACE", "2024669185"}};
}

Environment slurm() {
  return {{"SLURM_JOB_ID", "4711"},
          {"SLURM_STEP_ID", "0"},
          {"SLURM_PROCID", "5"},
          {"SLURM_NTASKS", "7"},
          {"SLURM_LOCALID", "1"},
          {"SLURM_NODEID", "1"},
          {"SLURM_STEP_TASKS_PER_NODE", "4,3"},
          {"SLURM_STEP_NODELIST", "gpu[07-08]"}};
}

Environment merged(Environment a, const Environment& b) {
  a.insert(b.begin(), b.end());
  return a;
}

struct File {
  File(const std::string& name, const std::string& text) : path(TempDir() + name) { std::ofstream(path) << text; }
  ~File() { std::remove(path.c_str()); }
  std::string path;
};

TEST(Detect, FindsNothingWithoutALauncher) {
  EXPECT_FALSE(detect({{"PATH", "/bin"}, {"RANK", ""}}));
}

TEST(Detect, ReadsTorchrunWithRankZeroServing) {
  const auto job = detect(torchrun());
  ASSERT_TRUE(job);
  EXPECT_EQ(job->launcher, "torchrun");
  EXPECT_EQ(job->rank, 5);
  EXPECT_EQ(job->world_size, 8);
  EXPECT_EQ(job->local_rank, 1);
  EXPECT_EQ(job->local_world_size, 4);
  EXPECT_EQ(job->node_rank, 1);
  EXPECT_EQ(job->num_nodes, 2);
  EXPECT_EQ(job->rendezvous.host, "node01");
  EXPECT_EQ(job->rendezvous.port, 29500);
  EXPECT_FALSE(job->rendezvous.served_by_launcher);
  EXPECT_EQ(job->rendezvous.prefix, "");
  EXPECT_EQ(job->rendezvous.bind_address, "");
}

TEST(Detect, IsAClientOfTorchrunsAgentStore) {
  auto environment = torchrun(0);
  environment["TORCHELASTIC_USE_AGENT_STORE"] = "True";
  environment["TORCHELASTIC_RESTART_COUNT"] = "3";
  const auto job = detect(environment);
  EXPECT_TRUE(job->rendezvous.served_by_launcher);
  EXPECT_EQ(job->rendezvous.prefix, "/worker/attempt_3");
  EXPECT_EQ(job->restart_count, 3);
  EXPECT_EQ(detect(torchrun())->restart_count, 0);
  environment["TORCHELASTIC_USE_AGENT_STORE"] = "False";
  EXPECT_FALSE(detect(environment)->rendezvous.served_by_launcher);
}

TEST(Detect, TakesOneRankPerHostWhenOnlyRankAndWorldAreSet) {
  const auto job = detect({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "job-0"}, {"MASTER_PORT", "23456"}});
  EXPECT_EQ(job->local_world_size, 1);
  EXPECT_EQ(job->num_nodes, 2);
  const auto local =
      detect({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "localhost"}, {"MASTER_PORT", "23456"}});
  EXPECT_EQ(local->local_rank, 1);
  EXPECT_EQ(local->local_world_size, 2);
  EXPECT_EQ(local->rendezvous.bind_address, "127.0.0.1");
}

TEST(Detect, ReadsOpenMpiOnOneHostWithoutAPort) {
  const auto job = detect(open_mpi());
  EXPECT_EQ(job->launcher, "Open MPI");
  EXPECT_EQ(job->rank, 1);
  EXPECT_EQ(job->world_size, 4);
  EXPECT_EQ(job->local_rank, 1);
  EXPECT_EQ(job->rendezvous.bind_address, "127.0.0.1");
  EXPECT_NE(job->rendezvous.meeting_key.find("2024669185"), std::string::npos);
}

TEST(Detect, AsksForARendezvousWhenMpiSpansHosts) {
  auto environment = open_mpi();
  environment["OMPI_COMM_WORLD_LOCAL_SIZE"] = "2";
  const auto message = message_of<ConfigError>([&] { detect(environment); });
  EXPECT_NE(message.find("Open MPI starts 4 ranks on 2 hosts"), std::string::npos) << message;
  EXPECT_NE(message.find("set MASTER_ADDR and MASTER_PORT"), std::string::npos) << message;
  EXPECT_NE(message.find("--rendezvous HOST:PORT"), std::string::npos) << message;
  DetectOptions options;
  options.rendezvous = "n1:1234";
  EXPECT_EQ(detect(environment, options)->rendezvous.host, "n1");
  environment["MASTER_ADDR"] = "n2";
  environment["MASTER_PORT"] = "4321";
  EXPECT_EQ(detect(environment)->rendezvous.port, 4321);
}

TEST(Detect, ReadsMpich) {
  const auto job = detect(
      {{"PMI_RANK", "3"}, {"PMI_SIZE", "4"}, {"MPI_LOCALRANKID", "3"}, {"MPI_LOCALNRANKS", "4"}, {"PMI_FD", "5"}});
  EXPECT_EQ(job->launcher, "MPICH");
  EXPECT_EQ(job->rank, 3);
  EXPECT_EQ(job->local_world_size, 4);
  EXPECT_NE(job->rendezvous.meeting_key, "");
}

TEST(Detect, ReadsPalsAsOneLauncherAlthoughItSetsPmiToo) {
  const File nodes("pals_nodes", "dec0001\ndec0001\ndec0002\ndec0002\n");
  const auto job = detect({{"PALS_RANKID", "3"},
                           {"PALS_LOCAL_RANKID", "1"},
                           {"PALS_LOCAL_SIZE", "2"},
                           {"PALS_NODEID", "1"},
                           {"PMI_RANK", "3"},
                           {"PMI_SIZE", "4"},
                           {"PBS_JOBID", "9.pbs"},
                           {"PBS_NODEFILE", nodes.path}});
  EXPECT_EQ(job->launcher, "PALS");
  EXPECT_EQ(job->rank, 3);
  EXPECT_EQ(job->world_size, 4);
  EXPECT_EQ(job->node_rank, 1);
  EXPECT_EQ(job->num_nodes, 2);
  EXPECT_EQ(job->rendezvous.host, "dec0001");
  EXPECT_GE(job->rendezvous.port, 20000);
  EXPECT_LE(job->rendezvous.port, 29999);
}

TEST(Detect, ReadsSlurmWithUnevenNodes) {
  const auto job = detect(slurm());
  EXPECT_EQ(job->launcher, "Slurm");
  EXPECT_EQ(job->rank, 5);
  EXPECT_EQ(job->world_size, 7);
  EXPECT_EQ(job->local_rank, 1);
  EXPECT_EQ(job->local_world_size, 3);
  EXPECT_EQ(job->node_rank, 1);
  EXPECT_EQ(job->num_nodes, 2);
  EXPECT_EQ(job->rendezvous.host, "gpu07");
  const int port = job->rendezvous.port;
  EXPECT_GE(port, 20000);
  EXPECT_LE(port, 29999);
  auto other_rank = slurm();
  other_rank["SLURM_PROCID"] = "0";
  other_rank["SLURM_LOCALID"] = "0";
  other_rank["SLURM_NODEID"] = "0";
  EXPECT_EQ(detect(other_rank)->rendezvous.port, port);
  EXPECT_EQ(detect(other_rank)->local_world_size, 4);
}

TEST(Detect, ReadsSlurmByTasksPerNodeAndJobNodeList) {
  auto environment = slurm();
  environment.erase("SLURM_STEP_TASKS_PER_NODE");
  environment.erase("SLURM_STEP_NODELIST");
  environment["SLURM_NTASKS"] = "8";
  environment["SLURM_NTASKS_PER_NODE"] = "4";
  environment["SLURM_JOB_NODELIST"] = "a[1-2]";
  EXPECT_EQ(detect(environment)->local_world_size, 4);
  EXPECT_EQ(detect(environment)->rendezvous.host, "a1");
}

TEST(Detect, TakesABatchScriptsSlurmVariablesForAnAllocation) {
  auto environment = slurm();
  environment.erase("SLURM_STEP_ID");
  EXPECT_FALSE(detect(environment));
  EXPECT_EQ(detect(merged(environment, open_mpi()))->launcher, "Open MPI");
  environment["SLURM_STEPID"] = "4294967290";  // salloc's interactive step
  EXPECT_FALSE(detect(environment));
  environment["SLURM_STEPID"] = "2";
  EXPECT_TRUE(detect(environment));
}

TEST(Detect, StartsItsOwnRanksInsideASlurmStepOfOneTask) {
  Environment environment{{"SLURM_JOB_ID", "1"}, {"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "0"},
                          {"SLURM_NTASKS", "1"}, {"SLURM_LOCALID", "0"}, {"SLURM_NODEID", "0"}};
  EXPECT_FALSE(detect(environment));
  DetectOptions options;
  options.launcher = "slurm";
  EXPECT_EQ(detect(environment, options)->world_size, 1);
}

TEST(Detect, ReadsLsfAndSkipsItsLaunchNode) {
  const File hosts("lsf_hosts", "batch3\na01\na01\nb02\nb02\n");
  Environment environment{{"JSM_NAMESPACE_RANK", "2"},
                          {"JSM_NAMESPACE_SIZE", "4"},
                          {"JSM_NAMESPACE_LOCAL_RANK", "0"},
                          {"LSB_JOBID", "77"},
                          {"LSB_DJOB_HOSTFILE", hosts.path}};
  auto job = detect(environment);
  EXPECT_EQ(job->launcher, "LSF");
  EXPECT_EQ(job->local_world_size, 2);
  EXPECT_EQ(job->node_rank, 1);
  EXPECT_EQ(job->rendezvous.host, "a01");
  environment.erase("LSB_DJOB_HOSTFILE");
  environment["LSB_HOSTS"] = "c1 c1 c2 c2";
  EXPECT_EQ(detect(environment)->rendezvous.host, "c1");
}

TEST(Detect, ObeysFlagsBeforeEverything) {
  DetectOptions options;
  options.rank = 1;
  options.world_size = 2;
  options.rendezvous = "127.0.0.1:4000";
  options.bind = "10.0.0.9";
  const auto job = detect(merged(torchrun(), open_mpi(0, 3)), options);
  EXPECT_EQ(job->launcher, "flags");
  EXPECT_EQ(job->rank, 1);
  EXPECT_EQ(job->local_rank, 1);
  EXPECT_EQ(job->local_world_size, 2);
  EXPECT_EQ(job->rendezvous.port, 4000);
  EXPECT_EQ(job->rendezvous.bind_address, "10.0.0.9");
  options.rank = 2;
  EXPECT_THROW(detect({}, options), ConfigError);
  options.rank.reset();
  EXPECT_NE(message_of<ConfigError>([&] { detect({}, options); }).find("without the rank"), std::string::npos);
  options.rank = 0;
  options.rendezvous = "";
  EXPECT_NE(message_of<ConfigError>([&] { detect({}, options); }).find("--rendezvous"), std::string::npos);
  options.rendezvous = "localhost:0";
  EXPECT_NE(message_of<ConfigError>([&] { detect({}, options); }).find("port 0"), std::string::npos);
}

TEST(Detect, AcceptsTwoLaunchersThatAgree) {
  Environment environment = merged(slurm(), {{"PMI_RANK", "5"}, {"PMI_SIZE", "7"}});
  EXPECT_EQ(detect(environment)->launcher, "Slurm");
}

TEST(Detect, AcceptsOneAgentPerNodeUnderAnotherLauncher) {
  auto environment = merged(torchrun(), open_mpi(1, 2));
  EXPECT_EQ(detect(environment)->launcher, "torchrun");
  environment = merged(torchrun(), open_mpi(0, 2));
  EXPECT_THROW(detect(environment), ConfigError);
  environment["TORCHELASTIC_RUN_ID"] = "none";  // agents that number themselves
  EXPECT_EQ(detect(environment)->rank, 5);
}

TEST(Detect, AcceptsMpiDaemonsThatSlurmStarted) {
  auto environment = slurm();
  environment["SLURM_PROCID"] = "1";
  environment["SLURM_NTASKS"] = "2";
  environment["SLURM_LOCALID"] = "0";
  environment["SLURM_STEP_TASKS_PER_NODE"] = "1(x2)";
  environment = merged(environment, open_mpi(5, 8));
  environment["MASTER_ADDR"] = "gpu07";
  environment["MASTER_PORT"] = "1";
  EXPECT_EQ(detect(environment)->launcher, "Open MPI");
}

TEST(Detect, NamesBothLaunchersThatContradictEachOther) {
  const auto environment = merged(torchrun(), open_mpi(0, 3));
  const auto message = message_of<ConfigError>([&] { detect(environment); });
  for (const char* part :
       {"torchrun says RANK=5 WORLD_SIZE=8", "Open MPI says OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=3",
        "unset the variables of one", "--launcher"}) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  }
  DetectOptions options;
  options.launcher = "Open-MPI";
  EXPECT_EQ(detect(merged(open_mpi(0, 3), torchrun()), options)->world_size, 3);
  options.launcher = "none";
  EXPECT_FALSE(detect(environment, options));
}

TEST(Detect, SuggestsTheLauncherThatWasMeant) {
  DetectOptions options;
  options.launcher = "slrum";
  EXPECT_NE(message_of<ConfigError>([&] { detect({}, options); }).find("did you mean slurm?"), std::string::npos);
  options.launcher = "slurm";
  EXPECT_NE(message_of<ConfigError>([&] { detect({}, options); }).find("none of its variables"), std::string::npos);
}

}  // namespace detect_test
}  // namespace orthant::launch
