#include "orthant/cuda/cubin_cache.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include "files/temporary_folder.h"

namespace orthant::cuda::cubin_cache_test {

std::filesystem::path only_file(const std::filesystem::path& folder) {
  std::filesystem::path found;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".cubin") found = entry.path();
  }
  return found;
}

TEST(CubinCache, KeepsWhatWasMadeAndMakesItOnce) {
  const test::TemporaryFolder folder;
  const CubinCache cache(folder.path() / "kernels");
  int made = 0;
  const auto make = [&] { return std::string("code ") + std::to_string(++made); };
  EXPECT_EQ(cache.get("a", make), "code 1");
  EXPECT_EQ(cache.get("a", make), "code 1");
  EXPECT_EQ(CubinCache(folder.path() / "kernels").get("a", make), "code 1");
  EXPECT_EQ(cache.get("b", make), "code 2");
  struct stat facts{};
  ASSERT_EQ(stat((folder.path() / "kernels").c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0700U);
}

TEST(CubinCache, MakesDamagedShortAndForeignFilesAgain) {
  const test::TemporaryFolder folder;
  const CubinCache cache(folder.path());
  const std::string code(1000, 'x');
  const auto other = [] { return std::string("other"); };
  const auto damage = [&](auto change) {
    std::filesystem::remove_all(folder.path());
    std::filesystem::create_directories(folder.path());
    cache.get("key", [&] { return code; });
    change(only_file(folder.path()));
    EXPECT_EQ(cache.get("key", other), "other");
    EXPECT_EQ(cache.get("key", [&] { return code; }), "other");
  };
  damage([](const auto& file) { std::filesystem::resize_file(file, 500); });
  damage([](const auto& file) { std::filesystem::resize_file(file, 0); });
  damage([](const auto& file) {
    std::fstream stream(file, std::ios::in | std::ios::out);
    stream.seekp(600);
    stream.put('y');
  });
  damage([](const auto& file) {
    std::filesystem::remove(file);
    std::filesystem::create_symlink("/etc/hostname", file);
  });
  // A file of another key under this one's name.
  std::filesystem::remove_all(folder.path());
  std::filesystem::create_directories(folder.path());
  cache.get("first", [&] { return code; });
  const auto first = only_file(folder.path());
  const auto text = folder.path() / "kept";
  std::filesystem::rename(first, text);
  cache.get("second", other);
  const auto second = only_file(folder.path());
  std::filesystem::rename(text, second);
  EXPECT_EQ(cache.get("second", other), "other");
}

TEST(CubinCache, AFolderThatCannotBeWrittenCostsTimeAlone) {
  const test::TemporaryFolder folder;
  std::ofstream(folder.path() / "file") << "no folder";
  const CubinCache cache(folder.path() / "file" / "kernels");
  int made = 0;
  const auto make = [&] { return std::string("code ") + std::to_string(++made); };
  EXPECT_EQ(cache.get("a", make), "code 1");
  EXPECT_EQ(cache.get("a", make), "code 2");
  EXPECT_EQ(CubinCache().get("a", make), "code 3");
}

TEST(CubinCache, EightProcessesAtOnceMakeItOnce) {
  const test::TemporaryFolder folder;
  const auto log = folder.path() / "made";
  std::vector<pid_t> children;
  for (int i = 0; i < 8; ++i) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      const CubinCache cache(folder.path() / "kernels");
      const auto code = cache.get("a", [&] {
        std::ofstream(log, std::ios::app) << "x";
        usleep(50000);
        return std::string("code");
      });
      _exit(code == "code" ? 0 : 1);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(std::filesystem::file_size(log), 1U);
}

}  // namespace orthant::cuda::cubin_cache_test
