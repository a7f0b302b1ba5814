#include "orthant/watch/live_page.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "orthant/watch/run_watch.h"
#include "watch/small_run.h"

namespace orthant {
namespace live_page_test {

using test::SmallRun;
using watch::LivePage;
using watch::RunWatch;

std::vector<std::string> ids_in(const std::string& event) {
  const auto data = event.find("data: ");
  std::vector<std::string> ids;
  if (data == std::string::npos) return ids;
  const auto document = nlohmann::json::parse(event.substr(data + 6));
  for (const auto& piece : document["pieces"]) ids.push_back(piece["id"]);
  return ids;
}

TEST(LivePage, SendsWhatIsNewToEachReader) {
  SmallRun folder;
  folder.step(1, "2.5");
  RunWatch run(folder.path);
  LivePage page;
  page.update(run.runs());
  const auto first = page.revision();
  EXPECT_NE(page.html().find("data-since=\"" + first + "\""), std::string::npos);
  EXPECT_EQ(page.event_since(first), "");
  page.update(run.runs());
  EXPECT_EQ(page.revision(), first) << "nothing has changed";

  folder.step(2, "2.25");
  run.look_now();
  page.update(run.runs());
  const auto event = page.event_since(first);
  EXPECT_TRUE(event.starts_with("id: " + page.revision() + "\nevent: pieces\ndata: {")) << event.substr(0, 60);
  EXPECT_TRUE(event.ends_with("}\n\n"));
  EXPECT_EQ(std::ranges::count(event, '\n'), 4) << "data of an event is one line";
  const auto ids = ids_in(event);
  EXPECT_NE(std::ranges::find(ids, "curves"), ids.end());
  EXPECT_EQ(std::ranges::find(ids, "settings"), ids.end()) << "the configuration is the same";
  EXPECT_EQ(page.event_since(page.revision()), "");
  const auto all = ids_in(page.event_since(""));
  EXPECT_NE(std::ranges::find(all, "settings"), all.end());
  for (const char* foreign : {"00000000-1", "x", "-", "99"}) {
    EXPECT_EQ(page.event_since(foreign), page.event_since("")) << foreign;
  }
}

TEST(RunWatch, ShowsARunThatHasNotBegun) {
  RunWatch run("/nowhere/of/a/run");
  EXPECT_EQ(run.runs().front().findings.front().answer, "the run has not begun");
  LivePage page;
  page.update(run.runs());
  EXPECT_NE(page.html().find("the run has not begun"), std::string::npos);
  EXPECT_FALSE(run.has_ended());
}

TEST(RunWatch, LooksNoMoreOftenThanItMay) {
  SmallRun folder;
  RunWatch run(folder.path);
  const auto next = run.next_look();
  EXPECT_FALSE(run.look(next - std::chrono::nanoseconds(1)));
  EXPECT_TRUE(run.look(next));
  EXPECT_GT(run.next_look(), next);
}

}  // namespace live_page_test
}  // namespace orthant
