// Variables that detect() must not accept, and what it says about them.
#include <gtest/gtest.h>

#include "launch/message_of.h"
#include "orthant/base/error.h"
#include "orthant/launch/detect.h"

namespace orthant::launch {
namespace detect_refuses_test {

struct BadVariables {
  const char* name;
  Environment environment;
  const char* text;
};

class DetectRefuses : public ::testing::TestWithParam<BadVariables> {};

TEST_P(DetectRefuses, ByNamingVariableAndValue) {
  const auto message = message_of<ConfigError>([&] { detect(GetParam().environment); });
  EXPECT_NE(message.find(GetParam().text), std::string::npos) << message;
}

INSTANTIATE_TEST_SUITE_P(
    All, DetectRefuses,
    ::testing::Values(
        BadVariables{"RankAlone", {{"RANK", "1"}}, "RANK=1 is set but WORLD_SIZE is not"},
        BadVariables{"WorldAlone", {{"WORLD_SIZE", "4"}}, "WORLD_SIZE=4 is set but RANK is not"},
        BadVariables{"Word", {{"RANK", "one"}, {"WORLD_SIZE", "4"}}, "RANK='one' is not a whole number"},
        BadVariables{"Negative", {{"RANK", "-1"}, {"WORLD_SIZE", "4"}}, "RANK='-1'"},
        BadVariables{"Huge", {{"RANK", "0"}, {"WORLD_SIZE", "99999999999"}}, "WORLD_SIZE='99999999999'"},
        BadVariables{"TooLarge", {{"RANK", "4"}, {"WORLD_SIZE", "4"}}, "RANK=4 is not below WORLD_SIZE=4"},
        BadVariables{"LocalTooLarge",
                     {{"RANK", "0"}, {"WORLD_SIZE", "4"}, {"LOCAL_RANK", "2"}, {"LOCAL_WORLD_SIZE", "2"}},
                     "LOCAL_RANK=2 is not below LOCAL_WORLD_SIZE=2"},
        BadVariables{"LocalAlone",
                     {{"RANK", "0"}, {"WORLD_SIZE", "4"}, {"LOCAL_RANK", "2"}},
                     "LOCAL_RANK=2 is set but LOCAL_WORLD_SIZE is not"},
        BadVariables{"NoMaster", {{"RANK", "0"}, {"WORLD_SIZE", "4"}}, "torchrun starts 4 ranks on 4 hosts"},
        BadVariables{"HalfMaster",
                     {{"RANK", "0"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "n1"}},
                     "MASTER_ADDR=n1 is set but MASTER_PORT is not"},
        BadVariables{"BadPort",
                     {{"RANK", "0"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "n1"}, {"MASTER_PORT", "70000"}},
                     "MASTER_PORT=70000"},
        BadVariables{
            "PmiWithoutLocal", {{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}}, "MPICH says PMI_RANK=0 PMI_SIZE=2 but not"},
        BadVariables{"PalsWithoutWorld", {{"PALS_RANKID", "0"}}, "PALS_RANKID=0 is set but PMI_SIZE is not"},
        BadVariables{"SlurmNodeList",
                     {{"SLURM_JOB_ID", "1"},
                      {"SLURM_STEP_ID", "0"},
                      {"SLURM_PROCID", "0"},
                      {"SLURM_NTASKS", "4"},
                      {"SLURM_LOCALID", "0"},
                      {"SLURM_STEP_NODELIST", "a[1-"}},
                     "SLURM_STEP_NODELIST='a[1-'"},
        BadVariables{"SlurmTasks",
                     {{"SLURM_JOB_ID", "1"},
                      {"SLURM_STEP_ID", "0"},
                      {"SLURM_PROCID", "0"},
                      {"SLURM_NTASKS", "4"},
                      {"SLURM_LOCALID", "0"},
                      {"SLURM_STEP_TASKS_PER_NODE", "2(y2)"}},
                     "SLURM_STEP_TASKS_PER_NODE='2(y2)'"},
        BadVariables{"LsfHostFile",
                     {{"JSM_NAMESPACE_RANK", "0"}, {"JSM_NAMESPACE_SIZE", "4"}, {"LSB_DJOB_HOSTFILE", "/no/such/file"}},
                     "LSB_DJOB_HOSTFILE='/no/such/file' cannot be read"}),
    [](const auto& info) { return info.param.name; });

}  // namespace detect_refuses_test
}  // namespace orthant::launch
