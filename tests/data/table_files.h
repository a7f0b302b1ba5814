// A folder with small tables and a vocabulary, for the tests of what reads them.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace orthant::test {

class TableFiles : public testing::Test {
 protected:
  TableFiles() {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::path(testing::TempDir()) /
              fmt::format("orthant_{}_{}_{}", info->test_suite_name(), info->name(), getpid());
    std::filesystem::create_directories(folder_);
  }
  ~TableFiles() override { std::filesystem::remove_all(folder_); }

  // Its path.
  std::string write(const std::string& name, const std::string& text) const {
    const auto path = folder_ / name;
    std::ofstream(path, std::ios::binary) << text;
    return path.string();
  }

  // Ids: 5 good, 6 bad, 7 film, 8 ##s, 9 a, 10 b.
  std::string write_vocabulary() const {
    return write("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\ngood\nbad\nfilm\n##s\na\nb\n");
  }

  std::filesystem::path folder_;
};

}  // namespace orthant::test
