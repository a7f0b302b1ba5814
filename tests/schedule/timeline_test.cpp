// The pictures of a simulated schedule: text and SVG.
#include "orthant/schedule/timeline.h"

#include <gtest/gtest.h>

#include <regex>

#include "orthant/schedule/generators.h"
#include "orthant/schedule/named_schedules.h"
#include "orthant/schedule/svg.h"

namespace orthant {
namespace timeline_test {

Simulation chain_of(const StageTable& table, const StageCost& cost = {}) {
  return simulate(table, chain_edges(table.num_stages), StageCosts(static_cast<std::size_t>(table.num_stages), cost));
}

TEST(Timeline, ShowsEqualStepsOfTime) {
  EXPECT_EQ(timeline_text(chain_of(one_forward_one_backward(2, 2))),
            "time | 0    1    2    3    4    5    6    7    8\n"
            "pp 0 | 0F0  0F1  .    .    0BW0 -    .    0BW1 -\n"
            "pp 1 | .    1F0  1BW0 -    1F1  1BW1 -    .    .\n");
}

TEST(Timeline, StepsAreAsLongAsTheTimesAllow) {
  EXPECT_EQ(timeline_text(chain_of(gpipe(1, 1), {0.5, 1, 0.5, 0})),
            "time | 0    0.5  1    1.5\n"
            "pp 0 | 0F0  0BW0 -    -\n");
  EXPECT_EQ(timeline_text(chain_of(gpipe(1, 2), {3, 1, 2, 0})),
            "time | 0    3    6    9\n"
            "pp 0 | 0F0  0F1  0BW0 0BW1\n");
}

TEST(Timeline, OtherwiseColumnsAreStarts) {
  EXPECT_EQ(timeline_text(chain_of(one_forward_one_backward(2, 1), {1, 1.2345678, 1, 1e-5})),
            "time | 0     1     2     4.235\n"
            "pp 0 | 0F0   .     .     0BW0\n"
            "pp 1 | .     1F0   1BW0  .\n");
}

TEST(Timeline, WhatTakesNoTimeSharesACell) {
  EXPECT_EQ(timeline_text(chain_of(zbh1(1, 1), {1, 1, 0, 0})),
            "time | 0       1\n"
            "pp 0 | 0F0     0B0,0W0\n");
  EXPECT_EQ(timeline_text(chain_of(gpipe(1, 1), {0, 0, 0, 0})),
            "time | 0\n"
            "pp 0 | 0F0,0BW0\n");
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

TEST(Svg, HasABoxForEveryActionWithKindAndMicrobatch) {
  const Schedule schedule = make_schedule("zbv", 2, 0, 3);
  const std::string svg = timeline_svg(chain_of(schedule.table), "zbv <2 & 3>");
  EXPECT_EQ(count(svg, "<g>"), 2U * 2 * 3 * 3);
  EXPECT_NE(svg.find("<title>3W2 from "), std::string::npos);
  EXPECT_NE(svg.find("zbv &lt;2 &amp; 3&gt;"), std::string::npos);
  EXPECT_EQ(svg.find("<2 &"), std::string::npos);
  EXPECT_EQ(count(svg, "class=\"later\""), 18U);  // the up-going stages
  EXPECT_EQ(count(svg, ">3B</text>"), 3U);
  EXPECT_EQ(count(svg, "url(#hatch)"), 12U + 1);  // every W and its legend
  EXPECT_TRUE(svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\""));
  EXPECT_TRUE(svg.ends_with("</svg>\n"));
}

// At 16 pp coordinates and 32 microbatches no box is too narrow for its numbers, none leaves the picture or meets
// another.
TEST(Svg, StaysLegibleWhenLarge) {
  for (const std::string& name : schedule_names()) {
    const Schedule schedule = make_schedule(name, 16, 0, 32);
    const std::string svg = timeline_svg(chain_of(schedule.table), name);
    std::smatch size;
    ASSERT_TRUE(std::regex_search(svg, size, std::regex("width=\"(\\d+)\" height=\"(\\d+)\"")));
    const double width = std::stod(size[1]);
    const double height = std::stod(size[2]);
    std::size_t boxes = 0;
    double last_end = 0;
    double last_y = 0;
    const std::regex box(
        "<rect class=\"box (\\w+)\" x=\"([0-9.]+)\" y=\"([0-9.]+)\" width=\"([0-9.]+)\" "
        "height=\"30.0\"/>");
    for (std::sregex_iterator it(svg.begin(), svg.end(), box), end; it != end; ++it, ++boxes) {
      const double x = std::stod((*it)[2]);
      const double y = std::stod((*it)[3]);
      EXPECT_GE(std::stod((*it)[4]), 22) << name;
      if (y == last_y) {
        EXPECT_GE(x, last_end - 0.11) << name;
      }
      last_y = y;
      last_end = x + std::stod((*it)[4]);
      EXPECT_LE(last_end, width);
      EXPECT_LE(y + 30, height);
    }
    std::size_t actions = 0;
    for (const auto& list : schedule.table.actions) actions += list.size();
    EXPECT_EQ(boxes, actions) << name;
    EXPECT_EQ(count(svg, "class=\"which\""), actions) << name;
    EXPECT_EQ(count(svg, "class=\"what\""), actions + 4) << name;  // and the legend
  }
}

}  // namespace timeline_test
}  // namespace orthant
