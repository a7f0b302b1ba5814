#include "orthant/checkpoint/room.h"

#include <gtest/gtest.h>

#include <fstream>
#include <limits>
#include <set>

#include "orthant/files/path_facts.h"
#include "orthant/layout/manifest.h"
#include "train/training_ranks.h"

namespace orthant {
namespace room_test {

namespace fs = std::filesystem;

constexpr std::int64_t kBytes = 64 << 10;

void make_checkpoint(const fs::path& folder, std::optional<double> eval_loss = {}) {
  fs::create_directories(folder);
  Manifest manifest;
  const auto name = folder.filename().string();
  manifest.step = step_in_name(name.substr(0, name.find('.'))).value();
  manifest.eval_loss = eval_loss;
  std::ofstream(folder / "manifest.json") << to_json(manifest);
  std::ofstream(folder / "rank-0.safetensors") << std::string(kBytes, 'x');
}

// With the quota spent only what is removed counts, whatever the disk has.
RoomMade room_for(const TestFolder& folder, std::int64_t step, double checkpoints, const KeepRules& keep) {
  const auto bytes = static_cast<std::int64_t>(checkpoints * static_cast<double>(kBytes));
  return make_room({folder.path.string(), step, bytes, keep, /*quota=*/true});
}

using Names = std::vector<std::string>;

TEST(Room, IsNotMadeWhereThereIsSome) {
  const TestFolder folder("orthant-room");
  make_checkpoint(folder.path / "step-2");
  const auto made = make_room({folder.path.string(), 4, 1, {.last = 1}});
  EXPECT_TRUE(made.enough);
  EXPECT_EQ(made.removed, Names());
  EXPECT_TRUE(make_room({(folder.path / "none").string(), 4, 1, {}}).enough);
}

TEST(Room, TheOldestOfTheLastGoAndTheNewestStays) {
  const TestFolder folder("orthant-room");
  for (const int step : {2, 4, 6}) make_checkpoint(folder.path / ("step-" + std::to_string(step)));
  const auto made = room_for(folder, 8, 2, {.last = 4});
  EXPECT_TRUE(made.enough);
  EXPECT_EQ(made.removed, (Names{"step-2", "step-4"}));
  EXPECT_EQ(names_in_folder(folder.path), Names{"step-6"});
  EXPECT_FALSE(room_for(folder, 8, 1, {.last = 4}).enough);
  EXPECT_EQ(names_in_folder(folder.path), Names{"step-6"});
}

TEST(Room, NothingGoesWhereAllOfItWouldNotDo) {
  const TestFolder folder("orthant-room");
  for (const int step : {2, 4, 6}) make_checkpoint(folder.path / ("step-" + std::to_string(step)));
  EXPECT_FALSE(room_for(folder, 8, 3, {.last = 4}).enough);
  EXPECT_EQ(names_in_folder(folder.path).size(), 3U);
}

TEST(Room, WhatIsAskedForByNameStays) {
  const TestFolder folder("orthant-room");
  for (const int step : {2, 3, 4, 5, 6, 7}) {
    make_checkpoint(folder.path / ("step-" + std::to_string(step)), step == 3 ? 0.1 : 1.0);
  }
  for (const int step : {9, 10}) make_checkpoint(folder.path / ("step-" + std::to_string(step) + ".superseded"));
  const KeepRules keep{.last = 3, .every = 4, .best = 1};
  EXPECT_EQ(room_for(folder, 8, 0.5, keep).removed, Names{"step-2"});  // the rules would remove it afterwards
  EXPECT_EQ(room_for(folder, 8, 2, keep).removed, (Names{"step-5", "step-9.superseded"}));
  EXPECT_EQ(room_for(folder, 8, 1, keep).removed, Names{"step-6"});  // keep_last alone keeps it
  EXPECT_FALSE(room_for(folder, 8, 1, keep).enough);
  EXPECT_EQ(names_in_folder(folder.path), (Names{"step-10.superseded", "step-3", "step-4", "step-7"}));
}

TEST(Room, TheNewestSupersededOneStaysUntilANewerOneIsThere) {
  const TestFolder folder("orthant-room");
  make_checkpoint(folder.path / "step-2");
  make_checkpoint(folder.path / "step-8.superseded");
  EXPECT_FALSE(room_for(folder, 4, 0.5, {.last = 1}).enough);
  EXPECT_EQ(names_in_folder(folder.path), (Names{"step-2", "step-8.superseded"}));
  make_checkpoint(folder.path / "step-8");
  EXPECT_EQ(room_for(folder, 10, 1.5, {.last = 1}).removed, (Names{"step-2", "step-8.superseded"}));
}

TEST(Room, TheOneThatTheRunBeganWithStays) {
  const TestFolder folder("orthant-room");
  make_checkpoint(folder.path / "step-2");
  for (const int step : {4, 8}) make_checkpoint(folder.path / ("step-" + std::to_string(step) + ".superseded"));
  RoomRequest request{folder.path.string(), 6, kBytes / 2, {.last = 1}, /*quota=*/true};
  request.resumed_from = (folder.path / "." / "step-4.superseded").string();
  EXPECT_FALSE(make_room(request).enough);
  EXPECT_EQ(names_in_folder(folder.path).size(), 3U);
}

TEST(Room, WhatNobodyNeedsGoesFirst) {
  const TestFolder folder("orthant-room");
  make_checkpoint(folder.path / "step-2");
  make_checkpoint(folder.path / "step-4");
  make_checkpoint(folder.path / "step-1.removed");
  const auto made = make_room({folder.path.string(), 6, std::numeric_limits<std::int64_t>::max(), {.last = 3}});
  EXPECT_FALSE(made.enough);
  EXPECT_EQ(names_in_folder(folder.path), (Names{"step-2", "step-4"}));
}

TEST(Room, SupersededOnesStayWhereTheyAreAllThereIs) {
  const TestFolder folder("orthant-room");
  make_checkpoint(folder.path / "step-4.superseded");
  EXPECT_FALSE(room_for(folder, 2, 0.5, {.last = 1}).enough);
  EXPECT_EQ(names_in_folder(folder.path), Names{"step-4.superseded"});
}

TEST(Room, IsSaidInOneLine) {
  RoomMade made{.enough = true, .removed = {"step-2", "step-4"}, .free_bytes = 2048};
  EXPECT_EQ(room_note({"", 8, 4096, {}, false}, made),
            "made room for the checkpoint of step 8, which takes 4 KiB where 2 KiB were free: removed step-2, step-4");
  EXPECT_EQ(room_note({"", 8, 4096, {}, true}, made),
            "made room for the checkpoint of step 8, which takes 4 KiB where the quota was spent: removed step-2, "
            "step-4");
}

}  // namespace room_test
}  // namespace orthant
