// Compiles the worst variants of every kernel for three generations of cards, and holds registers and spills to what
// the first lines of each source allow: "// variant ELEMENT=0 VECTORS=8: at most 96 registers". With ORTHANT_EXHAUSTIVE
// set, every variant there is. A source with the line "// from sm_89" is for cards from that generation on. Needs
// NVRTC, no card.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>
#include <thread>
#include <vector>

#include "orthant/cuda/nvrtc.h"

namespace orthant::cuda::compile_test {

const std::vector<std::string> kArchitectures = {"sm_80", "sm_90a", "sm_100a"};

struct Variant {
  std::string file;
  std::vector<std::string> options;
  int registers = 0;
  std::string text;  // as the source has it
};

std::string read(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// With the parts that it includes, as the program carries it: beside it, or by their path in src/orthant.
std::string whole_source(const std::string& path) {
  static const std::regex kInclude("#include \"([a-z_/]+\\.inc)\"");
  const std::string root = path.substr(0, path.rfind("/src/orthant/")) + "/src/orthant/";
  std::string text = read(path);
  for (std::smatch match; std::regex_search(text, match, kInclude);) {
    const std::string by_root = root + match[1].str();
    const auto beside = std::filesystem::path(path).parent_path() / match[1].str();
    const auto part = read(std::filesystem::exists(by_root) ? by_root : beside.string());
    text = match.prefix().str() + part + match.suffix().str();
  }
  return text;
}

std::vector<std::string> source_files() {
  std::vector<std::string> files;
  std::istringstream list(ORTHANT_KERNEL_SOURCES);
  for (std::string file; std::getline(list, file, ':');) files.push_back(file);
  return files;
}

bool is_prelude(const std::string& file) {
  return file.ends_with("/prelude.cu");
}

std::vector<Variant> variants_of(const std::string& file) {
  static const std::regex kLine("// variant ([A-Z0-9_= ]+): at most ([0-9]+) registers\n");
  const std::string text = read(file);
  std::vector<Variant> found;
  for (std::sregex_iterator match(text.begin(), text.end(), kLine), end; match != end; ++match) {
    Variant variant{.file = file, .options = {}, .registers = std::stoi((*match)[2]), .text = (*match)[1]};
    std::istringstream words(variant.text);
    for (std::string word; words >> word;) variant.options.push_back("-D" + word);
    found.push_back(variant);
  }
  return found;
}

// Whether cards of that architecture run the kernels of a source.
bool is_for(const std::string& file, const std::string& architecture) {
  static const std::regex kLine("// from sm_([0-9]+)\n");
  const std::string text = read(file);
  std::smatch match;
  return !std::regex_search(text, match, kLine) || std::stoi(architecture.substr(3)) >= std::stoi(match[1]);
}

// Every variant that "ELEMENT=0,1 ALIGNED=0,1" stands for.
std::vector<Variant> expanded(const std::string& file, const std::string& macros, int registers) {
  std::vector<Variant> found = {{.file = file, .options = {}, .registers = registers, .text = {}}};
  std::istringstream words(macros);
  for (std::string macro; words >> macro;) {
    const auto equals = macro.find('=');
    std::vector<Variant> longer;
    std::istringstream choices(macro.substr(equals + 1));
    for (std::string value; std::getline(choices, value, ',');) {
      for (auto variant : found) {
        const auto word = macro.substr(0, equals + 1) + value;
        variant.options.push_back("-D" + word);
        variant.text += (variant.text.empty() ? "" : " ") + word;
        longer.push_back(variant);
      }
    }
    found = longer;
  }
  return found;
}

// Those of each line "// all ELEMENT=0,1 ALIGNED=0,1" of a source, within the largest budget of its worst ones.
std::vector<Variant> all_variants_of(const std::string& file) {
  static const std::regex kLine("// all ([A-Z0-9_=, ]+)\n");
  const std::string text = read(file);
  int registers = 0;
  for (const auto& worst : variants_of(file)) registers = std::max(registers, worst.registers);
  std::vector<Variant> found;
  for (std::sregex_iterator match(text.begin(), text.end(), kLine), end; match != end; ++match) {
    for (auto& variant : expanded(file, (*match)[1], registers)) found.push_back(std::move(variant));
  }
  return found;
}

// What is wrong with one variant on one architecture; empty: nothing.
std::string problem(const Nvrtc& compiler, const std::string& prelude, const Variant& variant,
                    const std::string& architecture) {
  auto options = variant.options;
  options.push_back("--ptxas-options=--verbose");
  options.push_back("--ptxas-options=--warn-on-spills");
  const auto where = fmt::format("{} {} for {}", variant.file, variant.text, architecture);
  try {
    const auto made =
        compiler.compile(prelude + "\n" + whole_source(variant.file), variant.file, architecture, options);
    static const std::regex kUsed("Used ([0-9]+) registers"), kSpilled("([0-9]+) bytes spill stores");
    bool any = false;
    for (std::sregex_iterator match(made.log.begin(), made.log.end(), kUsed), end; match != end; ++match) {
      any = true;
      const int used = std::stoi((*match)[1]);
      if (used > variant.registers)
        return fmt::format("{}: {} registers, at most {}\n", where, used, variant.registers);
    }
    if (!any) return fmt::format("{}: the compiler does not say how many registers it used:\n{}\n", where, made.log);
    for (std::sregex_iterator match(made.log.begin(), made.log.end(), kSpilled), end; match != end; ++match) {
      if ((*match)[1] != "0") return fmt::format("{}: {}\n", where, match->str());
    }
  } catch (const std::exception& error) {
    return fmt::format("{}: {}\n", where, error.what());
  }
  return {};
}

TEST(Kernels, WorstVariantsCompileWithinTheirRegistersAndDoNotSpill) {
  const char* const path = std::getenv("ORTHANT_NVRTC");
  ASSERT_NE(path, nullptr) << "ORTHANT_NVRTC must name libnvrtc.so";
  const Nvrtc compiler(path);
  std::string prelude;
  for (const auto& file : source_files()) {
    if (is_prelude(file)) prelude = read(file);
  }
  ASSERT_FALSE(prelude.empty());
  std::vector<std::pair<Variant, std::string>> work;
  for (const auto& file : source_files()) {
    if (is_prelude(file)) continue;
    const auto variants = std::getenv("ORTHANT_EXHAUSTIVE") == nullptr ? variants_of(file) : all_variants_of(file);
    EXPECT_FALSE(variants.empty()) << file << " names no variant";
    for (const auto& variant : variants) {
      for (const auto& architecture : kArchitectures) {
        if (is_for(file, architecture)) work.emplace_back(variant, architecture);
      }
    }
  }
  std::vector<std::string> problems(work.size());
  std::atomic<std::size_t> next = 0;
  {
    std::vector<std::jthread> threads;
    for (unsigned t = 0; t < std::max(1U, std::thread::hardware_concurrency()); ++t) {
      threads.emplace_back([&] {
        for (std::size_t i = next++; i < work.size(); i = next++) {
          problems[i] = problem(compiler, prelude, work[i].first, work[i].second);
        }
      });
    }
  }
  std::string all;
  for (const auto& one : problems) all += one;
  EXPECT_EQ(all, "");
}

}  // namespace orthant::cuda::compile_test
