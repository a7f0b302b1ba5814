#include "orthant/launch/scripts.h"

#include <gtest/gtest.h>

#include "launch/launch_fixture.h"
#include "launch/message_of.h"
#include "orthant/base/error.h"
#include "orthant/launch/environment.h"
#include "orthant/launch/token.h"

namespace orthant::launch {
namespace scripts_test {

class Scripts : public LauncherTest {
 protected:
  Scripts() {
    script_.command = {"./train me", "--name=it's", "$HOME", "", "a\"b", "$(id)"};
    script_.num_nodes = 2;
    script_.ranks_per_node = 4;
    script_.gpus_per_node = 4;
    script_.gpu_type = "a100";
    script_.walltime = "02:30:00";
    script_.account = "UABC0001";
    script_.queue = "main";
  }

  void expect_parts(const std::string& text, const std::vector<std::string>& parts) {
    for (const auto& part : parts) EXPECT_NE(text.find(part), std::string::npos) << part << "\nin\n" << text;
  }

  int run(const std::vector<std::string>& argv, const Environment& extra = {}) {
    auto environment = process_environment();
    for (const auto& [name, value] : extra) environment[name] = value;
    return run_program(options_, argv, environment).exit_code;
  }

  std::string saved(const std::string& text) {
    std::ofstream(folder_ / "script") << text;
    return folder_ / "script";
  }

  // Puts a program into the folder that stands for another one.
  void stub(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name) << "#!/bin/bash\n" << text << "\n";
    std::filesystem::permissions(folder_ / name, std::filesystem::perms::owner_all);
  }

  std::string path() const { return folder_.string() + ":" + getenv("PATH"); }

  ScriptOptions script_;
};

const char* kPrintArguments = "printf '<%s>' \"$@\"";
const char* kArguments = "--<./train me><--name=it's><$HOME><><a\"b><$(id)>";

TEST_F(Scripts, QuoteWordsForTheShell) {
  EXPECT_EQ(shell_quote("plain-1.2_x/y=z"), "plain-1.2_x/y=z");
  EXPECT_EQ(shell_quote(""), "''");
  EXPECT_EQ(shell_quote("it's"), "'it'\\''s'");
}

TEST_F(Scripts, ForSlurmRunOneLauncherPerNode) {
  const auto text = job_script("slurm", script_);
  expect_parts(text, {"#SBATCH --nodes=2\n", "#SBATCH --ntasks-per-node=1\n", "#SBATCH --gpus-per-node=a100:4\n",
                      "#SBATCH --time=02:30:00\n", "#SBATCH --account=UABC0001\n", "#SBATCH --partition=main\n",
                      "ulimit -l unlimited"});
  stub("scontrol", "echo gpu01; echo gpu02");
  stub("srun", "while [[ $1 == --* ]]; do shift; done; SLURM_NODEID=1 exec \"$@\"");
  stub("orthant", kPrintArguments);
  EXPECT_EQ(run({"bash", saved(text)}, {{"PATH", path()}, {"SLURM_JOB_NODELIST", "gpu[01-02]"}}), 0) << err_.text();
  EXPECT_EQ(out_.text(), "<launch><--nproc><4><--nnodes><2><--node_rank><1><--rendezvous><gpu01:29400><" +
                             std::string(kArguments).replace(0, 2, "-->"));
}

TEST_F(Scripts, ForSlurmPutAJobThatSavedBackIntoTheQueueUnlessItIsCancelled) {
  struct Case {
    const char* exit_code;
    const char* state;
    bool requeued;
  };
  stub("scontrol", "if [[ $1 == requeue ]]; then echo \"$@\"; else echo gpu01; fi");
  for (const auto& [exit_code, state, requeued] : {Case{"75", "RUNNING", true}, Case{"75", "COMPLETING", false},
                                                   Case{"0", "RUNNING", false}, Case{"3", "RUNNING", false}}) {
    stub("srun", std::string("exit ") + exit_code);
    stub("squeue", std::string("echo ") + state);
    const Environment environment{{"PATH", path()}, {"SLURM_JOB_NODELIST", "gpu01"}, {"SLURM_JOB_ID", "17"}};
    const auto before = out_.text();
    EXPECT_EQ(run({"bash", saved(job_script("slurm", script_))}, environment), std::stoi(exit_code)) << err_.text();
    EXPECT_EQ(out_.text(), before + (requeued ? "requeue 17\n" : "")) << exit_code << state;
  }
}

TEST_F(Scripts, ForPbsSelectNodesWithTheirGpus) {
  const auto text = job_script("pbs", script_);
  expect_parts(text, {"#PBS -l select=2:ncpus=64:mpiprocs=4:ngpus=4\n", "#PBS -l walltime=02:30:00\n",
                      "#PBS -A UABC0001\n", "#PBS -q main\n", "#PBS -l gpu_type=a100\n", "ulimit -l unlimited"});
  stub("mpiexec", "echo \"hosts $6\"; shift 6; PALS_NODEID=1 exec \"$@\"");
  stub("orthant", kPrintArguments);
  std::ofstream(folder_ / "nodes") << "dec1\ndec1\ndec2\ndec2\n";
  EXPECT_EQ(run({"bash", saved(text)},
                {{"PATH", path()}, {"PBS_NODEFILE", folder_ / "nodes"}, {"PBS_O_WORKDIR", folder_.string()}}),
            0)
      << err_.text();
  EXPECT_EQ(out_.text(),
            "hosts dec1,dec2\n<launch><--nproc><4><--nnodes><2><--node_rank><1><--rendezvous><dec1:29400><" +
                std::string(kArguments).replace(0, 2, "-->"));
}

TEST_F(Scripts, MakeATokenForEveryRunThatOnlyTheEnvironmentHolds) {
  script_.makes_token = true;
  // Every argument that anybody of the job was started with, and the token as the launcher finds it.
  const std::string record = "printf '%s ' \"$0\" \"$@\" >> " + (folder_ / "arguments").string() + "\n";
  stub("scontrol", "echo gpu01; echo gpu02");
  stub("srun", record + "while [[ $1 == --* ]]; do shift; done; SLURM_NODEID=1 exec \"$@\"");
  stub("mpiexec", record + "shift 6; PALS_NODEID=1 exec \"$@\"");
  stub("orthant", record + "printf '%s\\n' \"$ORTHANT_TOKEN\" >> " + (folder_ / "tokens").string());
  std::ofstream(folder_ / "nodes") << "dec1\ndec2\n";
  const Environment environment{{"PATH", path()},
                                {"SLURM_JOB_NODELIST", "gpu[01-02]"},
                                {"PBS_NODEFILE", folder_ / "nodes"},
                                {"PBS_O_WORKDIR", folder_.string()}};
  std::string texts;
  for (const char* kind : {"slurm", "slurm", "pbs", "pbs"}) {
    texts += job_script(kind, script_);
    EXPECT_EQ(run({"bash", saved(job_script(kind, script_))}, environment), 0) << err_.text();
  }
  std::set<std::string> tokens;
  std::ifstream lines(folder_ / "tokens");
  for (std::string line; std::getline(lines, line);) tokens.insert(line);
  EXPECT_EQ(tokens.size(), 4U) << "a token served twice";
  const auto seen = texts + read_file(folder_ / "arguments") + out_.text() + err_.text();
  for (const auto& token : tokens) {
    EXPECT_NO_THROW(Token::parse(token, "the script"));
    EXPECT_EQ(seen.find(token), std::string::npos);
  }
}

TEST_F(Scripts, ForKubernetesTakeTheTokenFromASecret) {
  script_.queue = "research";
  EXPECT_EQ(job_script("k8s", script_).find("TOKEN"), std::string::npos);
  script_.makes_token = true;
  const auto text = job_script("k8s", script_);
  expect_parts(
      text, {"kubectl create secret generic orthant-token --namespace research --from-file=token=/dev/stdin\n",
             "          env:\n            - name: ORTHANT_TOKEN\n              valueFrom:\n"
             "                secretKeyRef:\n                  name: orthant-token\n                  key: token\n"});
  if (run({"python3", "-c", "import yaml"}) != 0) return;
  const auto check = R"(
import sys, yaml
service, job = yaml.safe_load_all(open(sys.argv[1]))
container = job["spec"]["template"]["spec"]["containers"][0]
assert container["env"] == [{"name": "ORTHANT_TOKEN", "valueFrom": {"secretKeyRef": {"name": "orthant-token", "key": "token"}}}]
)";
  EXPECT_EQ(run({"python3", "-c", check, saved(text)}), 0) << err_.text();
}

TEST_F(Scripts, PassTheShellsOwnCheck) {
  for (const char* kind : {"slurm", "pbs"})
    EXPECT_EQ(run({"bash", "-n", saved(job_script(kind, script_))}), 0) << err_.text();
}

TEST_F(Scripts, ForKubernetesAreAnIndexedJobWithAHeadlessService) {
  script_.queue = "research";
  const auto text = job_script("k8s", script_);
  expect_parts(text,
               {"kind: Service\n", "clusterIP: None\n", "kind: Job\n", "completionMode: Indexed\n", "completions: 2\n",
                "parallelism: 2\n", "subdomain: orthant\n", "nvidia.com/gpu: 4\n", "activeDeadlineSeconds: 9000\n",
                "namespace: \"research\"\n", "--rendezvous orthant-0.orthant:29400"});
  if (run({"python3", "-c", "import yaml"}) != 0)
    return;  // the parts above are all that can be checked without a parser
  // Prints the container's command as Kubernetes would run it: $$ stands for $.
  const auto check = R"(
import sys, yaml
service, job = yaml.safe_load_all(open(sys.argv[1]))
assert service["spec"]["selector"]["job-name"] == job["metadata"]["name"]
container = job["spec"]["template"]["spec"]["containers"][0]
assert container["resources"]["limits"] == {"cpu": 4, "nvidia.com/gpu": 4}
print(container["command"][2].replace("$$", "$"))
)";
  ASSERT_EQ(run({"python3", "-c", check, saved(text)}), 0) << err_.text();
  const auto command = out_.text();
  stub("orthant", kPrintArguments);
  ftruncate(out_.fd(), 0);
  lseek(out_.fd(), 0, SEEK_SET);
  ASSERT_EQ(run({"sh", "-c", command}, {{"PATH", path()}, {"JOB_COMPLETION_INDEX", "1"}}), 0) << err_.text();
  EXPECT_TRUE(out_.text().ends_with("<" + std::string(kArguments).replace(0, 2, "-->"))) << out_.text();
}

TEST_F(Scripts, LeaveOutWhatIsNotGiven) {
  script_.gpus_per_node = 0;
  script_.account = script_.queue = "";
  EXPECT_EQ(job_script("slurm", script_).find("--account"), std::string::npos);
  EXPECT_EQ(job_script("slurm", script_).find("gpus"), std::string::npos);
  EXPECT_EQ(job_script("pbs", script_).find("ngpus"), std::string::npos);
  EXPECT_EQ(job_script("k8s", script_).find("nvidia"), std::string::npos);
}

TEST_F(Scripts, RefuseWhatWouldMakeABrokenScript) {
  EXPECT_NE(message_of<ConfigError>([&] { job_script("slrum", script_); }).find("did you mean slurm?"),
            std::string::npos);
  EXPECT_NE(message_of<ConfigError>([&] { job_script("kubernetes", script_); }).find("did you mean k8s?"),
            std::string::npos);
  auto options = script_;
  options.account = "x\n#SBATCH --uid=0";
  EXPECT_THROW(job_script("slurm", options), ConfigError);
  options = script_;
  options.job_name = "My_Job";
  EXPECT_NO_THROW(job_script("slurm", options));
  EXPECT_THROW(job_script("k8s", options), ConfigError);
  options = script_;
  options.command.clear();
  EXPECT_THROW(job_script("pbs", options), ConfigError);
  options = script_;
  options.num_nodes = 0;
  EXPECT_THROW(job_script("pbs", options), ConfigError);
  options = script_;
  options.walltime = "two hours";
  EXPECT_THROW(job_script("k8s", options), ConfigError);
}

}  // namespace scripts_test
}  // namespace orthant::launch
