#include "orthant/plan/estimate/hardware.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "base/error_text.h"
#include "files/temporary_folder.h"

namespace orthant {
namespace hardware_test {

// A file of that text, and the hardware it says.
class HardwareFile {
 public:
  explicit HardwareFile(const std::string& text, const std::string& name = "mine.json") : path_(folder_ / name) {
    std::ofstream(path_) << text;
  }
  Hardware read() const { return find_hardware(path_.string()); }
  std::string error() const {
    return error_text<ConfigError>([&] { read(); });
  }

 private:
  test::TemporaryFolder folder_;
  std::filesystem::path path_;
};

TEST(Hardware, PresetsAreTheseAndComplete) {
  const std::vector<std::string> expected = {"a100-40gb", "a100-80gb", "b200",      "cpu",
                                             "derecho",   "h100-80gb", "h100-96gb", "h200-141gb"};
  EXPECT_EQ(hardware_names(), expected);
  for (const auto& name : hardware_names()) {
    const Hardware hardware = find_hardware(name);
    EXPECT_EQ(hardware.name, name);
    EXPECT_FALSE(hardware.description.empty()) << name;
    EXPECT_FALSE(hardware.local.name.empty()) << name;
    EXPECT_FALSE(hardware.network.name.empty()) << name;
    EXPECT_FALSE(hardware.products.points.empty()) << name;
    EXPECT_GT(hardware.local.rate(), hardware.network.rate()) << name;
  }
}

TEST(Hardware, CardsHaveTheFiguresOfTheirDataSheets) {
  struct Row {
    const char* name;
    double gib, peak, bandwidth, local, network;
    int cards;
  };
  constexpr double kGiB = 1 << 30;
  for (const auto& row :
       {Row{"a100-40gb", 40, 312e12, 1.555e12, 300e9, 25e9, 8}, Row{"a100-80gb", 80, 312e12, 2.039e12, 300e9, 25e9, 8},
        Row{"h100-80gb", 80, 989e12, 3.35e12, 450e9, 50e9, 8}, Row{"h100-96gb", 96, 989e12, 2.4e12, 450e9, 50e9, 8},
        Row{"h200-141gb", 141, 989e12, 4.8e12, 450e9, 50e9, 8}, Row{"b200", 180, 2250e12, 8e12, 900e9, 50e9, 8},
        Row{"derecho", 40, 312e12, 1.555e12, 300e9, 25e9, 4}}) {
    const Hardware hardware = find_hardware(row.name);
    EXPECT_LT(static_cast<double>(hardware.memory_bytes), row.gib * kGiB) << row.name;
    EXPECT_GT(static_cast<double>(hardware.memory_bytes), 0.98 * row.gib * kGiB) << row.name;
    EXPECT_EQ(hardware.peak_flops, row.peak) << row.name;
    EXPECT_EQ(hardware.memory_bandwidth, row.bandwidth) << row.name;
    EXPECT_EQ(hardware.local.bandwidth, row.local) << row.name;
    EXPECT_EQ(hardware.network.bandwidth, row.network) << row.name;
    EXPECT_EQ(hardware.cards_per_node, row.cards) << row.name;
  }
}

TEST(Hardware, WrittenAndReadIsTheSame) {
  for (const auto& name : hardware_names()) {
    const Hardware hardware = find_hardware(name);
    EXPECT_EQ(HardwareFile(to_json(hardware), name + ".json").read(), hardware);
  }
}

TEST(Hardware, AFileGivesOnlyWhatDiffersFromItsPreset) {
  const Hardware mine =
      HardwareFile(R"({"preset": "h100-80gb", "network": {"bandwidth": 12.5e9}, "dollars_per_hour": 4})").read();
  Hardware expected = find_hardware("h100-80gb");
  expected.name = "mine";
  expected.network.bandwidth = 12.5e9;
  expected.dollars_per_hour = 4;
  EXPECT_EQ(mine, expected);
}

TEST(Hardware, AFileWithoutPresetSaysWhatHasNoDefault) {
  const Hardware mine = HardwareFile(R"({"memory_bytes": 1000, "peak_flops": 1e12, "memory_bandwidth": 1e11,
                                         "local": {"bandwidth": 1e10}, "network": {"bandwidth": 1e9}})")
                            .read();
  EXPECT_EQ(mine.products.at(1e9), 1);
  EXPECT_EQ(mine.local.rate(), 1e10);
  EXPECT_NE(HardwareFile("{}").error().find("memory_bytes"), std::string::npos);
}

TEST(Hardware, ErrorsNameTheNearest) {
  const std::string unknown = error_text<ConfigError>([] { find_hardware("a100-80"); });
  EXPECT_NE(unknown.find("unknown hardware \"a100-80\""), std::string::npos) << unknown;
  EXPECT_NE(unknown.find("did you mean \"a100-80gb\"? (one of a100-40gb, "), std::string::npos) << unknown;
  EXPECT_NE(HardwareFile(R"({"preset": "h100-80g"})").error().find("did you mean \"h100-80gb\"?"), std::string::npos);
  EXPECT_NE(HardwareFile(R"({"preset": "cpu", "peak_flop": 1})").error().find("peak_flops"), std::string::npos);
  EXPECT_NE(HardwareFile(R"({"preset": "cpu", "local": {"latencies": 1}})").error().find("latency"), std::string::npos);
}

TEST(Hardware, ErrorsNameTheRule) {
  const auto says = [](const std::string& text, const std::string& words) {
    const std::string error = HardwareFile(text).error();
    EXPECT_NE(error.find(words), std::string::npos) << error;
  };
  says(R"({"preset": "cpu", "peak_flops": 0})", "0 is not above 0");
  says(R"({"preset": "cpu", "memory_efficiency": 1.5})", "1.5 is not above 0 and at most 1");
  says(R"({"preset": "cpu", "reserve_share": 1})", "1 is not at least 0 and below 1");
  says(R"({"preset": "h200-141gb", "dropped_attention_share": 2})", "2 is not at least 0 and at most 1");
  says(R"({"preset": "cpu", "network": {"latency": -1}})", "-1 is not at least 0");
  says(R"({"preset": "cpu", "products": {"flops": [1, 2], "shares": [0.5]}})", "1 shares for 2 sizes");
  says(R"({"preset": "cpu", "products": {"flops": [2, 1], "shares": [0.5, 0.6]}})", "1 after 2");
  says(R"({"preset": "cpu", "products": {"flops": [1], "shares": [0]}})", "0 is not above 0 and at most 1");
}

TEST(Curve, IsStraightOverTheLogarithmAndFlatOutside) {
  const Curve curve{{{1e9, 0.25}, {1e11, 0.75}}};
  EXPECT_DOUBLE_EQ(curve.at(1), 0.25);
  EXPECT_DOUBLE_EQ(curve.at(1e9), 0.25);
  EXPECT_DOUBLE_EQ(curve.at(1e10), 0.5);
  EXPECT_DOUBLE_EQ(curve.at(1e11), 0.75);
  EXPECT_DOUBLE_EQ(curve.at(1e15), 0.75);
  EXPECT_DOUBLE_EQ(Curve{}.at(5), 1);
}

}  // namespace hardware_test
}  // namespace orthant
