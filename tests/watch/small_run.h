// A folder with what a small run leaves, to which steps can be added.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace orthant::test {

class SmallRun {
 public:
  SmallRun() {
    EXPECT_NE(mkdtemp(path.data()), nullptr);
    std::ofstream(path + "/config.json") << R"({"name":"small <b>","train":{"steps":100}})";
    std::filesystem::create_directory(path + "/log");
    log("rank 0 of 2 started: host a");
  }
  ~SmallRun() { std::filesystem::remove_all(path); }
  SmallRun(const SmallRun&) = delete;
  SmallRun& operator=(const SmallRun&) = delete;

  void step(int number, const std::string& loss) const {
    std::ofstream(path + "/metrics.jsonl", std::ios::app)
        << fmt::format(R"({{"step":{},"loss":{},"lr":0.001,"tokens_per_second":1500}})", number, loss) << '\n';
  }
  void log(const std::string& text) const {
    std::ofstream(path + "/log/rank-0.log", std::ios::app) << "2026-01-31T12:00:00Z " << text << '\n';
  }

  std::string path = std::filesystem::temp_directory_path() / "orthant-watched-XXXXXX";
};

}  // namespace orthant::test
