#include "orthant/plan/report/plan_html.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

namespace orthant {
namespace plan_html_test {

using Json = nlohmann::ordered_json;

constexpr std::string_view kDataBegin = "<script type=\"application/json\" id=\"report-data\">";

Json data_of(const std::string& page) {
  const std::size_t begin = page.find(kDataBegin) + kDataBegin.size();
  return Json::parse(page.substr(begin, page.find("</script>", begin) - begin));
}

PlanSettings settings(std::int64_t microbatches) {
  PlanSettings settings;
  settings.mesh = Mesh::parse("pp=2,tp=2");
  settings.micro_batch = 1;
  settings.global_batch = microbatches;
  settings.sequence = 512;
  return settings;
}

struct Case {
  PlanModel model = find_plan_model("llama-1b");
  Hardware hardware = find_hardware("h100-80gb");
  Plan plan;

  explicit Case(std::int64_t microbatches) {
    plan = estimate(model, settings(microbatches), hardware, find_stack("orthant"));
  }
};

TEST(PlanHtml, OnePlanIsAPageWithItsFigures) {
  const Case one(8);
  const std::string page = plan_html(one.plan, one.model, one.hardware, {.tokens = 1e9, .command = "orthant estimate"});
  const Json data = data_of(page);
  EXPECT_EQ(data["kind"], "estimate");
  EXPECT_EQ(data["plans"].size(), 1u);
  EXPECT_EQ(data["plans"][0], Json::parse(to_json(one.plan)));
  EXPECT_EQ(data["request"]["cards"], 4);
  EXPECT_EQ(data["hardware"]["name"], "h100-80gb");
  EXPECT_DOUBLE_EQ(data["budget"]["days"], budget_of(one.plan, one.hardware, 1e9).days);
  EXPECT_EQ(data["links"]["pp"], one.hardware.local.name);
  EXPECT_FALSE(data.contains("points"));
}

TEST(PlanHtml, LoadsNothingAndLeavesNoPlaceEmpty) {
  const Case one(8);
  const std::string page = plan_html(one.plan, one.model, one.hardware, {});
  for (const std::string_view load : {" src=", "@import", "url(http", "href=\"http", "<link rel=\"stylesheet\""}) {
    EXPECT_EQ(page.find(load), std::string::npos) << load;
  }
  for (const std::string_view mark : {"{{style}}", "{{script}}", "{{data}}"}) {
    EXPECT_EQ(page.find(mark), std::string::npos) << mark;
  }
}

TEST(PlanHtml, NamesCannotEndTheScriptThatHoldsThem) {
  Case one(8);
  one.model.name = "</script><script>alert(1)</script><!--";
  const std::string page = plan_html(one.plan, one.model, one.hardware, {.warnings = {"a \xff that is no text"}});
  EXPECT_EQ(page.find("alert(1)</script>"), std::string::npos);
  EXPECT_EQ(data_of(page)["model"]["name"], one.model.name);
}

TEST(PlanHtml, AShortScheduleIsWhole) {
  const Case one(8);
  const Json line = data_of(plan_html(one.plan, one.model, one.hardware, {}))["timeline"];
  const Simulation simulation = simulate_plan(one.plan);
  EXPECT_FALSE(line.contains("omitted"));
  ASSERT_EQ(line["ranks"].size(), simulation.actions.size());
  for (std::size_t r = 0; r < simulation.actions.size(); ++r) {
    ASSERT_EQ(line["ranks"][r].size(), simulation.actions[r].size());
    const TimedAction& last = simulation.actions[r].back();
    const Json& drawn = line["ranks"][r].back();
    EXPECT_EQ(drawn[0], last.action.stage);
    EXPECT_EQ(drawn[1], stage_kind_name(last.action.kind));
    EXPECT_NEAR(drawn[4].get<double>() * line["tick_seconds"].get<double>(), last.end, 1e-6 * simulation.makespan);
  }
}

TEST(PlanHtml, OfALongScheduleBeginAndEndAreDrawn) {
  const Case one(512);
  const Json line = data_of(plan_html(one.plan, one.model, one.hardware, {}))["timeline"];
  ASSERT_TRUE(line.contains("omitted"));
  const double tick = line["tick_seconds"];
  for (const Json& rank : line["ranks"]) {
    EXPECT_LE(rank.size(), 390u);
    std::set<int> microbatches;
    for (const Json& action : rank) {
      microbatches.insert(action[2].get<int>());
      const bool begins = action[3].get<double>() * tick <= line["omitted"][0].get<double>() + tick;
      const bool ends = action[4].get<double>() * tick >= line["omitted"][1].get<double>() - tick;
      EXPECT_TRUE(begins || ends) << action;
    }
    EXPECT_TRUE(microbatches.contains(0));
    EXPECT_TRUE(microbatches.contains(511));
  }
}

TEST(PlanHtml, ASearchShowsItsPointsAndWhatTheJsonSays) {
  SearchRequest request;
  request.model = find_plan_model("llama-1b");
  request.hardware = find_hardware("h100-80gb");
  request.cards = 8;
  request.global_batch = 32;
  request.sequence = 512;
  const SearchResult result = search(request);
  const Json data = data_of(plan_html(result, request, {}));
  Json document = Json::parse(to_json(result));
  for (const char* key : {"plans", "rejected", "evaluated", "search_seconds", "advice", "simple"}) {
    EXPECT_EQ(data[key], document[key]) << key;
  }
  ASSERT_EQ(data["points"]["rows"].size(), result.points.size());
  EXPECT_EQ(data["points"]["rows"][0].size(), data["points"]["columns"].size());
}

}  // namespace plan_html_test
}  // namespace orthant
