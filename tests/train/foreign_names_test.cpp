// Names of other programs: each leads to a key that exists here, wherever the name stands.
#include "orthant/train/foreign_names.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "base/error_text.h"
#include "orthant/train/run_config.h"

namespace orthant {
namespace foreign_names_test {

std::string refusal(const std::vector<std::string>& overrides) {
  return error_text<ConfigError>([&] { read_run_config(load_run_document("", overrides)); });
}

TEST(ForeignNames, AreManyAndEachIsThereOnce) {
  std::set<std::string_view> names;
  for (const auto& known : foreign_names()) EXPECT_TRUE(names.insert(known.name).second) << known.name;
  EXPECT_GE(names.size(), 80U);
}

// "| `learning_rate` | Hugging Face | `optimizer.lr` |": the line of docs/other_programs.md.
std::string page_line(const ForeignName& known) {
  std::string here;
  if (!known.key.empty()) here = fmt::format("`{}{}{}`", known.key, known.value.empty() ? "" : "=", known.value);
  if (!known.note.empty()) here += fmt::format("{}{}", here.empty() ? "" : "; ", known.note);
  return fmt::format("| `{}` | {} | {} |", known.name, known.owner, here);
}

TEST(ForeignNames, AreThoseOfThePage) {
  std::ifstream page(ORTHANT_SOURCE_DIR "/docs/other_programs.md");
  std::vector<std::string> found;
  for (std::string line; std::getline(page, line);) {
    if (line.starts_with("| `")) found.push_back(line);
  }
  std::vector<std::string> expected;
  for (const auto& known : foreign_names()) expected.push_back(page_line(known));
  EXPECT_EQ(found, expected);
}

// An object is of the wrong type for every key: a key that exists says so, another one is unknown.
TEST(ForeignNames, LeadToKeysThatExist) {
  for (const auto& known : foreign_names()) {
    if (known.key.empty()) {
      EXPECT_FALSE(known.note.empty()) << known.name;
      continue;
    }
    SCOPED_TRACE(std::string(known.name));
    std::vector<std::string> overrides;
    if (known.key.starts_with("model."))
      overrides = {"model.kind=llama", "model.preset=llama-tiny", "data.kind=tokens"};
    if (known.key.starts_with("data.")) overrides = {"data.kind=text", "data.path=nowhere.txt"};
    overrides.push_back(std::string(known.key) + R"(={"no such value":0})");
    const auto found = refusal(overrides);
    EXPECT_EQ(found.find("unknown key " + std::string(known.key) + "\n"), std::string::npos) << found;
    EXPECT_NE(found.find(known.key), std::string::npos) << found;
  }
}

TEST(ForeignNames, AreAnsweredInEverySection) {
  const std::string expected = "learning_rate is Hugging Face's name: set optimizer.lr=0.001";
  for (const std::string place : {"", "train.", "optimizer.", "parallel.", "lr_schedule."}) {
    const auto found = refusal({place + "learning_rate=0.001"});
    EXPECT_NE(found.find("unknown key " + place + "learning_rate"), std::string::npos) << found;
    EXPECT_NE(found.find(expected), std::string::npos) << found;
  }
}

TEST(ForeignNames, InsideAnObjectAreAnsweredToo) {
  EXPECT_NE(
      refusal({"zero_optimization.stage=2"}).find("zero_optimization.stage is DeepSpeed's name: set parallel.zero=2"),
      std::string::npos);
  EXPECT_NE(refusal({R"(zero_optimization={"contiguous_gradients":true})"}).find("set parallel.zero=STAGE"),
            std::string::npos);
  EXPECT_NE(refusal({"fp16.enabled=true"}).find("set precision.compute=float16"), std::string::npos);
}

TEST(ForeignNames, DoNotHideTheNearestOne) {
  EXPECT_NE(refusal({"train.step=3"}).find("use \"steps\""), std::string::npos);
}

// A key of ours in the wrong place.
TEST(ForeignNames, KeysOfOtherSectionsAreFound) {
  EXPECT_NE(refusal({"lr=3"}).find("it belongs elsewhere: use optimizer.lr"), std::string::npos);
  EXPECT_NE(refusal({"train.warmup_steps=3"}).find("it belongs elsewhere: use lr_schedule.warmup_steps"),
            std::string::npos);
}

TEST(ForeignNames, AsOptionsNameTheirKey) {
  EXPECT_EQ(hint_of_option("--learning-rate", "3"),
            "learning_rate is Hugging Face's name: use --set optimizer.lr=VALUE");
  EXPECT_EQ(hint_of_option("--tensor_model_parallel_size", "3"),
            "tensor_model_parallel_size is Megatron's name: use --set mesh.tp=VALUE");
  EXPECT_EQ(hint_of_option("--nobody-has-this", "3"), "");
  EXPECT_EQ(hint_of_option("--fp16", ""), "fp16 is Hugging Face's name: use --set precision.compute=float16");
}

// A switch that is off asks for nothing, and so does any name without a value.
TEST(ForeignNames, ThatAreOffAreToBeLeftOut) {
  const std::string fp16 = "fp16 is Hugging Face's name: leave it out";
  for (const std::string off : {"false", "null", "0", "False"}) {
    EXPECT_NE(refusal({"fp16=" + off}).find(fp16), std::string::npos) << off;
  }
  for (const auto& known : foreign_names()) {
    SCOPED_TRACE(std::string(known.name));
    const auto leave_out = fmt::format("{} is {}'s name: leave it out", known.name, known.owner);
    EXPECT_EQ(hint_of_key(known.name, nullptr), leave_out);
    EXPECT_EQ(hint_of_key(known.name, true).find("leave it out"), std::string::npos);
    if (known.name == "reshard_after_forward") continue;
    EXPECT_EQ(hint_of_key(known.name, false), leave_out);
    EXPECT_EQ(hint_of_option(fmt::format("--{}", known.name), "false"), leave_out);
    EXPECT_EQ(hint_of_key(known.name, 0) == leave_out, !known.off.empty());
  }
}

TEST(ForeignNames, OneSwitchThatIsOffIsAnotherValueHere) {
  const std::string expected =
      "reshard_after_forward is PyTorch FSDP's name: parallel.zero=2 keeps parameters whole until backward";
  EXPECT_EQ(hint_of_key("reshard_after_forward", false), expected);
  EXPECT_EQ(hint_of_option("--reshard_after_forward", "false"), expected);
}

// A name with a fixed value of ours is on or off there, unless it chooses among several or is an object.
TEST(ForeignNames, WithAFixedValueAreSwitches) {
  const std::set<std::string_view> others = {"sharding_strategy", "auto_wrap_policy",
                                             "fsdp_transformer_layer_cls_to_wrap",
                                             "zero_optimization.offload_optimizer", "zero_optimization.offload_param"};
  const auto is_capital = [](char letter) { return letter >= 'A' && letter <= 'Z'; };
  for (const auto& known : foreign_names()) {
    if (known.value.empty() || std::ranges::any_of(known.value, is_capital)) continue;
    EXPECT_EQ(known.off.empty(), others.contains(known.name)) << known.name;
  }
}

TEST(ForeignNames, ObjectsThatAreOffAreToBeLeftOut) {
  EXPECT_NE(refusal({R"(fp16={"enabled":false,"loss_scale":0})"}).find("fp16 is Hugging Face's name: leave it out"),
            std::string::npos);
  EXPECT_NE(refusal({R"(zero_optimization={"offload_param":{"device":"none"}})"})
                .find("zero_optimization.offload_param is DeepSpeed's name: leave it out"),
            std::string::npos);
  EXPECT_NE(refusal({R"(zero_optimization={"offload_param":{"device":"cpu"}})"}).find("set parallel.offload=params"),
            std::string::npos);
}

}  // namespace foreign_names_test
}  // namespace orthant
