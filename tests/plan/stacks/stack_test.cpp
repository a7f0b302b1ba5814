#include "orthant/plan/stacks/stack.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/error_text.h"
#include "files/temporary_folder.h"

namespace orthant {
namespace stack_test {

using test::TemporaryFolder;

Stack stack_of(const std::string& text) {
  const TemporaryFolder folder;
  std::ofstream(folder / "own.json") << text;
  return find_stack((folder / "own.json").string());
}

std::string refusal_of(const std::string& text) {
  const std::string found = error_text<ConfigError>([&] { stack_of(text); });
  return found.substr(found.find("own.json"));
}

TEST(Stack, AllPresetsAreRead) {
  EXPECT_EQ(stack_names(), (std::vector<std::string>{"deepspeed", "megatron", "nanotron", "orthant", "torchtitan"}));
  for (const auto& name : stack_names()) {
    const Stack stack = find_stack(name);
    EXPECT_EQ(stack.name, name);
    EXPECT_FALSE(stack.description.empty()) << name;
    EXPECT_EQ(stack.runs_here, name == "orthant");
  }
}

TEST(Stack, SayWhatPublishedProgramsKeep) {
  EXPECT_EQ(find_stack("megatron").parameter_bytes + find_stack("megatron").optimizer_bytes, 14);
  EXPECT_EQ(find_stack("torchtitan").parameter_bytes + find_stack("torchtitan").optimizer_bytes, 12);
  EXPECT_EQ(find_stack("torchtitan").logit + find_stack("torchtitan").logit_working, 14);
  EXPECT_EQ(find_stack("nanotron").logit + find_stack("nanotron").logit_working, 10);
  EXPECT_TRUE(find_stack("torchtitan").recomputes_ops);
}

TEST(Stack, FilesGiveWhatDiffersFromAPreset) {
  const Stack stack = stack_of(R"({"preset": "nanotron", "description": "mine", "regathers": false, "logit": 2.5})");
  Stack expected = find_stack("nanotron");
  expected.name = "own";
  expected.description = "mine";
  expected.regathers = false;
  expected.logit = 2.5;
  EXPECT_EQ(stack, expected);
  Stack plain;
  plain.name = "own";
  EXPECT_EQ(stack_of("{}"), plain);
}

TEST(Stack, RefusesUnknownNamesAndKeys) {
  EXPECT_EQ(error_text<ConfigError>([] { find_stack("megatrom"); }),
            "unknown stack \"megatrom\"\n  fix: did you mean \"megatron\"? (one of deepspeed, megatron, nanotron, "
            "orthant, torchtitan); a file of one's own is named by a path that ends in .json");
  EXPECT_EQ(refusal_of(R"({"regather": true})"), "own.json:1:2: unknown key regather\n  fix: use \"regathers\"");
  EXPECT_EQ(refusal_of(R"({"logit": -1})"),
            "own.json:1:11: logit: -1 is below 0\n  fix: give what is kept or moved, or 0");
  EXPECT_EQ(refusal_of(R"({"preset": "titan"})"),
            "own.json:1:12: preset: unknown stack \"titan\"\n  fix: one of deepspeed, megatron, nanotron, orthant, "
            "torchtitan");
}

}  // namespace stack_test
}  // namespace orthant
