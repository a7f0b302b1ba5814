// The main of every test program: a program holds the tests of a layer, and its words name the files to run.
//   build/tests/test_mesh                  all
//   build/tests/test_mesh axis device      those of axis_test.cpp and device_test.cpp
// Options of GoogleTest work as ever, and --gtest_filter takes the place of words.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <map>
#include <set>

#include "self_program.h"

namespace {

std::string topic_of(const testing::TestInfo& test) {
  const std::string path = test.file();
  const auto name = path.substr(path.rfind('/') + 1);
  return name.substr(0, name.rfind("_test.cpp"));
}

using Topics = std::map<std::string, std::vector<std::string>>;  // full names of the tests of each file

// A name that stands in two files would run in the place of the other: such programs are refused.
Topics topics_of(const testing::UnitTest& all) {
  Topics topics;
  std::set<std::string> names;
  for (int s = 0; s < all.total_test_suite_count(); ++s) {
    const auto& suite = *all.GetTestSuite(s);
    for (int t = 0; t < suite.total_test_count(); ++t) {
      const auto& test = *suite.GetTestInfo(t);
      const auto name = fmt::format("{}.{}", suite.name(), test.name());
      if (!names.insert(name).second) throw std::runtime_error(fmt::format("two tests are called {}", name));
      topics[topic_of(test)].push_back(name);
    }
  }
  return topics;
}

}  // namespace

int main(int argc, char** argv) {
  const auto& programs = orthant::test::self_programs();
  if (argc > 1 && programs.contains(argv[1])) return programs.at(argv[1])({argv + 2, argv + argc});
  testing::InitGoogleTest(&argc, argv);
  try {
    const auto topics = topics_of(*testing::UnitTest::GetInstance());
    std::string filter;
    for (int i = 1; i < argc; ++i) {
      const auto found = topics.find(argv[i]);
      if (found == topics.end())
        throw std::runtime_error(fmt::format("no tests of {}_test.cpp in this program", argv[i]));
      for (const auto& name : found->second) filter += name + ":";
    }
    if (argc > 1) testing::GTEST_FLAG(filter) = filter;
  } catch (const std::exception& error) {
    std::fputs(fmt::format("{}: {}\n", argv[0], error.what()).c_str(), stderr);
    return 2;
  }
  return RUN_ALL_TESTS();
}
