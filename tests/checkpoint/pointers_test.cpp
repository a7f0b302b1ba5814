#include "orthant/checkpoint/pointers.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <optional>

#include "base/error_text.h"
#include "orthant/files/path_facts.h"
#include "orthant/files/whole_file.h"
#include "orthant/layout/manifest.h"
#include "train/training_ranks.h"

namespace orthant {
namespace pointers_test {

namespace fs = std::filesystem;

class CheckpointPointers : public testing::Test {
 protected:
  void make(std::int64_t step, std::optional<double> eval_loss = std::nullopt) const {
    const auto place = folder_.path / ("step-" + std::to_string(step));
    fs::create_directories(place);
    Manifest manifest;
    manifest.step = step;
    manifest.eval_loss = eval_loss;
    std::ofstream(place / "manifest.json") << to_json(manifest);
  }
  std::string parent() const { return folder_.path.string(); }
  std::string pointed(const char* name) const {
    return fs::path(pointed_checkpoint((folder_.path / name).string())).filename();
  }

  const TestFolder folder_{"orthant-pointers"};
};

TEST_F(CheckpointPointers, NameTheNewestAndTheBestOfThoseThatStay) {
  make(2, 0.1);
  make(4, 0.5);
  make(6, 0.3);
  make(8, 0.9);
  write_pointers(parent(), {.last = 9}, true);
  EXPECT_EQ(read_file(folder_.path / "latest"), "step-8\n");
  EXPECT_EQ(pointed("latest"), "step-8");
  EXPECT_EQ(pointed("best"), "step-2");
  write_pointers(parent(), {.last = 3}, true);  // step-2 will go
  EXPECT_EQ(pointed("best"), "step-6");
  write_pointers(parent(), {.last = 1, .best = 1}, true);  // it stays
  EXPECT_EQ(pointed("best"), "step-2");
}

TEST_F(CheckpointPointers, WithoutAnEvaluationNoneIsTheBest) {
  make(2, 0.1);
  write_pointers(parent(), {.last = 1}, true);
  EXPECT_TRUE(fs::exists(folder_.path / "best"));
  make(4);
  write_pointers(parent(), {.last = 1}, true);
  EXPECT_EQ(pointed("latest"), "step-4");
  EXPECT_FALSE(fs::exists(folder_.path / "best"));
}

TEST_F(CheckpointPointers, OtherPathsMeanThemselves) {
  make(2);
  EXPECT_EQ(pointed("step-2"), "step-2");
  EXPECT_EQ(pointed("latest"), "latest");  // there is none
  std::ofstream(folder_.path / "other") << "step-2\n";
  EXPECT_EQ(pointed("other"), "other");
}

// Somebody else may have written it.
TEST_F(CheckpointPointers, OnlyACheckpointBesideThemIsBelieved) {
  make(2);
  fs::create_directories(folder_.path / "elsewhere" / "step-2");
  for (const char* text : {"", "..", "/", "step-2/..", "elsewhere/step-2", "step-9", "step-2\nstep-2", "step--1"}) {
    SCOPED_TRACE(text);
    std::ofstream(folder_.path / "latest") << text;
    const auto found = error_text<DataError>([&] { pointed("latest"); });
    EXPECT_NE(found.find("and there is no such checkpoint beside it"), std::string::npos) << found;
  }
  std::ofstream(folder_.path / "latest") << std::string(1000, 's');
  EXPECT_THROW(pointed("latest"), DataError);
}

TEST_F(CheckpointPointers, ALinkOfSomebodyElseIsReplacedAndNotFollowed) {
  make(2);
  std::ofstream(folder_.path / "precious") << "mine";
  fs::create_symlink(folder_.path / "precious", folder_.path / "latest");
  write_pointers(parent(), {}, false);
  EXPECT_EQ(read_file(folder_.path / "precious"), "mine");
  EXPECT_FALSE(fs::is_symlink(folder_.path / "latest"));
  EXPECT_EQ(pointed("latest"), "step-2");
}

}  // namespace pointers_test
}  // namespace orthant
