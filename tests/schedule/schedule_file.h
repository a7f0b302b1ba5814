// A schedule file that is gone with the test.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace orthant::test {

class ScheduleFile {
 public:
  // Of several in one test, each has a name.
  explicit ScheduleFile(const std::string& text, const std::string& name = "")
      : path_(testing::TempDir() + "schedule_" + testing::UnitTest::GetInstance()->current_test_info()->name() + name +
              ".txt") {
    std::ofstream(path_) << text;
  }
  ScheduleFile(const ScheduleFile&) = delete;
  ScheduleFile& operator=(const ScheduleFile&) = delete;
  ~ScheduleFile() { std::filesystem::remove(path_); }

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace orthant::test
