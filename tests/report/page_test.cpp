#include "orthant/report/page.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "orthant/report/curve.h"
#include "orthant/report/page_parts.h"

namespace page_test {
namespace {

using namespace orthant::report;

TEST(Curve, KeepsWhatWouldBeSeen) {
  Curve curve{.name = "loss", .steps = {}, .values = {}};
  for (int i = 0; i < 100'000; ++i) {
    curve.steps.push_back(i);
    curve.values.push_back(i == 54'321 ? 99.0 : i == 77 ? -5.0 : 1.0);
  }
  const auto thin = thinned(curve, 450);
  EXPECT_LE(thin.values.size(), 4U * 451);
  EXPECT_NE(std::ranges::find(thin.values, 99.0), thin.values.end());
  EXPECT_NE(std::ranges::find(thin.values, -5.0), thin.values.end());
  EXPECT_TRUE(std::ranges::is_sorted(thin.steps));
  EXPECT_EQ(thin.steps.front(), 0);
  EXPECT_EQ(thin.steps.back(), 99'999);
}

TEST(Curve, LeavesShortOnesAsTheyAre) {
  const Curve curve{.name = "loss", .steps = {1, 2}, .values = {3, NAN}};
  EXPECT_EQ(thinned(curve, 450).steps, curve.steps);
}

TEST(Curve, DrawsGapsAndNothingWithoutNumbers) {
  const auto svg = curve_svg("x", "Loss", {{"a", {1, 2, 3, 4, 5}, {1, 2, NAN, 2, 1}, false}}, {{3, "bad step"}});
  const auto path = svg.substr(svg.find("d=\"M"));
  EXPECT_EQ(std::ranges::count(path.substr(0, path.find("\"/>")), 'M'), 2);
  EXPECT_NE(svg.find("bad step at step 3"), std::string::npos);
  EXPECT_EQ(curve_svg("x", "Loss", {{"a", {1}, {NAN}, false}}, {}), "");
}

TEST(Curve, WritesNumbersShort) {
  EXPECT_EQ(short_number(0.00031), "0.00031");
  EXPECT_EQ(short_number(12345), "12.3k");
  EXPECT_EQ(short_number(2.5e9), "2.5G");
  EXPECT_EQ(escaped("<a & \"b\">"), "&lt;a &amp; &quot;b&quot;&gt;");
}

TEST(Curve, HasRoundNumbersOnItsAxis) {
  const auto labels = [](double least, double most) {
    std::string text;
    double last = -INFINITY;
    for (const auto& [value, label] : ticks_between(least, most)) {
      EXPECT_GE(value, least - 1e-9 * std::fabs(least));
      EXPECT_LE(value, most + 1e-9 * std::fabs(most));
      EXPECT_GT(value, last);
      last = value;
      text += (text.empty() ? "" : " ") + label;
    }
    return text;
  };
  EXPECT_EQ(labels(0, 1), "0 0.2 0.4 0.6 0.8 1.0");
  EXPECT_EQ(labels(3.88, 5.55), "4.0 4.5 5.0 5.5");
  EXPECT_EQ(labels(-1.5, 1), "-1.5 -1.0 -0.5 0 0.5 1.0");
  EXPECT_EQ(labels(5'910, 40'400), "10k 20k 30k 40k");
  EXPECT_EQ(labels(2'200'100, 2'201'000), "2.2002M 2.2004M 2.2006M 2.2008M 2.2010M") << "no two alike";
  EXPECT_EQ(labels(0.0003, 0.003), "0.0005 0.0010 0.0015 0.0020 0.0025 0.0030");
  EXPECT_EQ(labels(1e-7, 3e-7), "1.0e-07 1.5e-07 2.0e-07 2.5e-07 3.0e-07");
  EXPECT_EQ(labels(59, 74), "60 65 70");
}

ReportedRun run_named(const std::string& path) {
  ReportedRun run;
  run.run.path = path;
  run.run.config = {{"train", {{"steps", 10}}}, {"name", "<x>"}};
  run.run.metrics.steps = {1, 2};
  run.run.metrics.columns["loss"] = {2, 1};
  run.findings = {
      {.cause = "nothing wrong", .confidence = 0.6, .answer = "nothing wrong was found", .evidence = {}, .fix = ""}};
  return run;
}

TEST(Page, TellsSettingsThatDiffer) {
  auto first = run_named("runs/a"), second = run_named("runs/b");
  second.run.config["train"]["steps"] = 20;
  const auto found = differences({first, second});
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].name, "train.steps");
  EXPECT_EQ(found[0].values, (std::vector<std::string>{"10", "20"}));
  const auto page = report_html({first, second});
  EXPECT_NE(page.find("2 runs side by side"), std::string::npos);
}

TEST(Page, EscapesWhatComesFromFiles) {
  auto run = run_named("runs/<script>");
  run.findings[0].answer = "<b>";
  const auto page = report_html({run});
  EXPECT_EQ(page.find("<b>\""), std::string::npos);
  EXPECT_EQ(page.find("runs/<script>"), std::string::npos);
  EXPECT_NE(page.find("&lt;x&gt;"), std::string::npos);
}

// What docs/profile.md says of a million lines; a tenth of them here.
TEST(Page, IsMadeOfManyLinesQuickly) {
  std::string folder = std::filesystem::temp_directory_path() / "orthant-page-XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  std::ofstream(folder + "/config.json") << "{}";
  {
    std::ofstream lines(folder + "/metrics.jsonl");
    for (int i = 1; i <= 100'000; ++i) {
      lines
          << fmt::format(
                 R"({{"step":{},"epoch":0,"loss":{:.6f},"grad_norm":1.5,"lr":0.001,"samples":16,"tokens":1024,"step_seconds":0.05,"samples_per_second":320.0,"tokens_per_second":20480.0,"peak_memory_bytes":123456}})",
                 i, 2.0 + std::sin(i * 0.001))
          << '\n';
    }
  }
  const auto run = read_run_folder(folder);
  std::filesystem::remove_all(folder);
  ASSERT_EQ(run.metrics.steps.size(), 100'000U);
  EXPECT_EQ(run.metrics.columns.at("samples").size(), 100'000U);
  const auto page = report_html({{run, diagnose(run, {})}});
  EXPECT_LT(page.size(), 2'000'000U);
  EXPECT_NE(page.find("100000 steps"), std::string::npos);
}

}  // namespace
}  // namespace page_test
