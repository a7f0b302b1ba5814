#include "orthant/schedule/stage_table.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "mesh/thrown_error.h"
#include "orthant/schedule/generators.h"
#include "orthant/schedule/named_schedules.h"
#include "schedule/csv_table.h"

namespace orthant {
namespace stage_table_test {

using test::thrown_text;

TEST(StageAction, TextIsStageKindMicrobatch) {
  EXPECT_EQ(to_string(StageAction{2, StageKind::BW, 5}), "2BW5");
  for (const StageKind kind : {StageKind::F, StageKind::B, StageKind::W, StageKind::BW}) {
    for (const int number : {0, 7, 10, 1000000}) {
      const StageAction action{number, kind, 1000000 - number};
      EXPECT_EQ(parse_action(to_string(action)), action);
    }
  }
}

TEST(StageAction, OtherTextIsNone) {
  for (const char* text : {"", "F", "0F", "F0", "0", "00", "0f0", "0FW0", "0WB0", "0BWB0", "0F0F0", "-1F0", "0F-1",
                           "0F 0", "+0F0", "0F0 ", "1000001F0", "0F99999999999999999999",
                           "0\xc3\xa9"
                           "0"}) {
    EXPECT_EQ(parse_action(text), std::nullopt) << text;
  }
}

TEST(StageTable, TextRoundTrips) {
  for (int stages = 1; stages <= 4; ++stages) {
    for (int microbatches = 1; microbatches <= 5; ++microbatches) {
      for (const StageTable& table :
           {gpipe(stages, microbatches), one_forward_one_backward(stages, microbatches),
            forward_only(stages, microbatches), on_one_pp_coordinate(gpipe(stages, microbatches))}) {
        EXPECT_EQ(parse_table(to_text(table), "text"), table) << to_text(table);
      }
    }
  }
  const StageTable split{2, 1, {{}, {{0, StageKind::F, 0}, {1, StageKind::F, 0}, {1, StageKind::B, 0}}}};
  EXPECT_EQ(to_text(split), "-\n0F0 1F0 1B0\n");
  EXPECT_EQ(parse_table(to_text(split), "text"), split);
}

TEST(StageTable, EveryScheduleRoundTripsAsTextAndCsv) {
  for (const std::string& name : schedule_names()) {
    for (int pp_degree = 1; pp_degree <= 5; ++pp_degree) {
      for (int microbatches = 1; microbatches <= 11; ++microbatches) {
        const StageTable table = make_schedule(name, pp_degree, 0, microbatches).table;
        EXPECT_EQ(parse_table(to_text(table), "text"), table) << name;
        EXPECT_EQ(parse_table(test::csv_table(table), "csv"), table) << name;
      }
    }
  }
  EXPECT_EQ(to_text(gpipe(2, 1)), "0F0 0BW0\n1F0 1BW0\n");
  EXPECT_EQ(parse_table("0F0,,0BW0,\n,1F0,1BW0,\n", "csv"), gpipe(2, 1));  // empty cells are idle time
}

TEST(StageTable, FilesAreRead) {
  const std::string path = testing::TempDir() + "/orthant_stage_table_test.csv";
  std::ofstream(path) << test::csv_table(zbh1(3, 4));
  EXPECT_EQ(read_table(path), zbh1(3, 4));
  std::ofstream(path) << "0F0 0X0\n";
  EXPECT_EQ(thrown_text([&] { read_table(path); }), path +
                                                        " line 1, word 2: \"0X0\" is no stage action\n"
                                                        "write stage, kind (F, B, W or BW) and microbatch, as in 2BW5");
  std::filesystem::remove(path);
  const std::vector<std::pair<std::string, std::string>> unreadable = {
      {path, "No such file or directory"},
      {testing::TempDir(), "it is a folder"},
      {"/dev/zero", "it is a device, not a regular file"}};
  for (const auto& [name, why] : unreadable) {
    EXPECT_EQ(thrown_text([&] { read_table(name); }),
              "schedule file " + name + " cannot be read: " + why +
                  "\nname a file that exists and may be read, one line of actions per pp coordinate");
  }
}

TEST(StageTable, TellsWhereItsStagesLie) {
  EXPECT_EQ(stage_pp_coordinates(zbv(2, 1)), (std::vector<int>{0, 1, 1, 0}));
  EXPECT_EQ(
      thrown_text([] { stage_pp_coordinates(parse_table("0F0 0BW0\n2F0 2BW0", "text")); }),
      "no pp coordinate runs stage 1 of 3\nnumber the stages from 0 without gaps, and give each to a pp coordinate");
}

TEST(StageTable, ParsingTakesCommasCommentsAndEmptyLines) {
  const StageTable table =
      parse_table("# two pp coordinates\r\n\n 0F0,0F1,\t0BW0 , 0BW1 # first\n\n1F0 1BW0,1F1 1BW1", "text");
  EXPECT_EQ(to_text(table), "0F0 0F1 0BW0 0BW1\n1F0 1BW0 1F1 1BW1\n");
  EXPECT_EQ(table.num_stages, 2);
  EXPECT_EQ(table.num_microbatches, 2);
}

TEST(StageTable, ParsingNamesLineAndWord) {
  EXPECT_EQ(thrown_text([] { parse_table("0F0 0BW0\n\n1F0, 1X0 1BW0\n", "my.schedule"); }),
            "my.schedule line 3, word 2: \"1X0\" is no stage action\n"
            "write stage, kind (F, B, W or BW) and microbatch, as in 2BW5");
  EXPECT_EQ(thrown_text([] { parse_table("0F0 -\n", "my.schedule"); }),
            "my.schedule line 1, word 2: \"-\" is no stage action\n"
            "write stage, kind (F, B, W or BW) and microbatch, as in 2BW5");
}

TEST(StageTable, ParsingRefusesATextWithoutActions) {
  for (const char* text : {"", "\n \n", "# nothing\n", "-\n-\n"}) {
    EXPECT_EQ(thrown_text([&] { parse_table(text, "my.schedule"); }),
              "my.schedule holds no stage action\nwrite one line per pp coordinate, as in \"0F0 0BW0\"");
  }
}

TEST(StageTable, ForwardOnlyMeansNoBackwardAnywhere) {
  EXPECT_TRUE(is_forward_only(parse_table("0F0\n1F0", "text")));
  EXPECT_FALSE(is_forward_only(parse_table("0F0\n1F0 1W0", "text")));
}

}  // namespace stage_table_test
}  // namespace orthant
