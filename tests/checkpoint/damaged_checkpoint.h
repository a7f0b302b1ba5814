// Damages a checkpoint in one way after another, by a seeded choice, and repairs it: what disks, copies and people do
// to files.
#pragma once

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/forked_saves.h"
#include "orthant/checkpoint/reader.h"
#include "orthant/files/whole_file.h"

namespace orthant::test {

inline void put_file(const std::filesystem::path& path, const std::string& text) {
  std::error_code ignored;
  std::filesystem::remove_all(path, ignored);
  std::ofstream(path, std::ios::binary) << text;
}

// What was done to a checkpoint; a refusal names one of the files.
struct Damage {
  std::string what;
  std::set<std::string> files;
};

// Damages one checkpoint in one way after another, and repairs it.
class Vandal {
 public:
  Vandal(std::filesystem::path checkpoint, std::filesystem::path other_step, std::uint64_t seed)
      : folder_(std::move(checkpoint)), other_(std::move(other_step)), random_(seed), whole_(contents_of(folder_)) {
    for (const auto& [name, text] : whole_) {
      names_.push_back(name);
      if (name.ends_with(".safetensors")) shards_.push_back(name);
    }
  }

  const std::vector<std::string>& shards() const { return shards_; }

  Damage damage() {
    static constexpr std::array kWays = {
        &Vandal::flip_bits,   &Vandal::flip_bits,       &Vandal::flip_bits,     &Vandal::cut_short, &Vandal::extend,
        &Vandal::swap_shards, &Vandal::take_away,       &Vandal::foreign_shard, &Vandal::edit_json, &Vandal::edit_json,
        &Vandal::edit_digit,  &Vandal::empty_file,      &Vandal::folder_for_it, &Vandal::link_away, &Vandal::zero_block,
        &Vandal::move_block,  &Vandal::foreign_manifest};
    return (this->*kWays.at(below(kWays.size())))();
  }

  void repair() {
    for (const auto& name : touched_) put_file(folder_ / name, whole_.at(name));
    touched_.clear();
  }

 private:
  std::size_t below(std::size_t count) { return std::uniform_int_distribution<std::size_t>(0, count - 1)(random_); }
  const std::string& any(const std::vector<std::string>& names) { return names[below(names.size())]; }

  Damage write(const std::string& what, const std::string& name, const std::string& text) {
    touched_.insert(name);
    put_file(folder_ / name, text);
    return {what, {name}};
  }

  Damage flip_bits() {
    const auto name = any(names_);
    auto text = whole_.at(name);
    const auto bits = below(3) == 0 ? 1 + below(16) : 1;
    // Headers are small, so every second flip in a file of tensors goes there.
    const auto end =
        name.ends_with(".safetensors") && below(2) == 0 ? std::min<std::size_t>(text.size(), 2048) : text.size();
    for (std::size_t i = 0; i < bits; ++i) {
      auto& byte = text[below(end)];
      byte = static_cast<char>(byte ^ (1 << below(8)));
    }
    if (text == whole_.at(name)) text.back() = static_cast<char>(text.back() ^ 1);
    return write("flipped bits", name, text);
  }

  Damage cut_short() {
    const auto name = any(names_);
    return write("cut short", name, whole_.at(name).substr(0, below(whole_.at(name).size())));
  }

  Damage extend() {
    const auto name = any(names_);
    const auto more = below(2) == 0 ? std::string(1 + below(600), '\0') : whole_.at(name).substr(0, 1 + below(600));
    return write("extended", name, whole_.at(name) + more);
  }

  Damage swap_shards() {
    const auto first = any(shards_);
    auto second = any(shards_);
    while (second == first) second = any(shards_);
    write("", first, whole_.at(second));
    write("", second, whole_.at(first));
    return {"swapped shards", {first, second}};
  }

  Damage take_away() {
    const auto name = any(names_);
    touched_.insert(name);
    std::filesystem::remove(folder_ / name);
    return {"taken away", {name}};
  }

  Damage foreign_shard() {
    const auto name = any(shards_);
    return write("a shard of another step", name, read_file(other_ / name));
  }

  // Whole in itself, but the folder has another name.
  Damage foreign_manifest() {
    write("", kManifestFile, read_file(other_ / kManifestFile));
    return {"the manifest of another step", {kManifestFile}};
  }

  Damage empty_file() { return write("empty", any(names_), ""); }

  Damage folder_for_it() {
    const auto name = any(names_);
    touched_.insert(name);
    std::filesystem::remove(folder_ / name);
    std::filesystem::create_directory(folder_ / name);
    if (below(2) == 0) put_file(folder_ / name / name, whole_.at(name));
    return {"a folder in its place", {name}};
  }

  // Of the same size.
  Damage link_away() {
    const auto name = any(shards_);
    touched_.insert(name);
    std::filesystem::remove(folder_ / name);
    std::filesystem::create_symlink(other_ / name, folder_ / name);
    return {"a link to another step's shard", {name}};
  }

  Damage zero_block() {
    const auto name = any(names_);
    auto text = whole_.at(name);
    const auto begin = below(text.size()) / 512 * 512;
    for (auto i = begin; i < std::min(text.size(), begin + 512); ++i) text[i] = '\0';
    if (text == whole_.at(name)) text.pop_back();
    return write("a block of zeros", name, text);
  }

  Damage move_block() {
    const auto name = any(shards_);
    auto text = whole_.at(name);
    const auto length = 1 + below(std::min<std::size_t>(64, text.size() / 4));
    const auto from = below(text.size() - length);
    text.replace(below(text.size() - length), length, whole_.at(name).substr(from, length));
    if (text == whole_.at(name)) text.pop_back();
    return write("a moved block", name, text);
  }

  // One digit of the manifest: most often it is valid JSON still.
  Damage edit_digit() {
    auto text = whole_.at(kManifestFile);
    std::size_t place = below(text.size());
    while (std::isdigit(static_cast<unsigned char>(text[place])) == 0) place = below(text.size());
    text[place] = static_cast<char>('0' + (text[place] - '0' + 1 + static_cast<int>(below(9))) % 10);
    return write("an edited digit", kManifestFile, text);
  }

  Damage edit_json() {
    auto manifest = nlohmann::json::parse(whole_.at(kManifestFile));
    const auto way = below(8);
    edit(manifest, way);
    return write("edited JSON, way " + std::to_string(way), kManifestFile, manifest.dump(below(2) == 0 ? 1 : -1));
  }

  nlohmann::json& any_member(nlohmann::json& object) {
    return std::next(object.begin(), static_cast<std::ptrdiff_t>(below(object.size()))).value();
  }

  void edit(nlohmann::json& manifest, std::size_t way) {
    auto& tensor = any_member(manifest["tensors"]);
    auto& piece = tensor["pieces"][below(tensor["pieces"].size())];
    const std::vector<std::string> numbers = {"step", "epoch", "position", "samples_seen", "seed", "updates"};
    switch (way) {
      case 0:
        manifest[any(numbers)] = static_cast<std::int64_t>(below(1U << 20)) - (1 << 10);
        break;
      case 1:
        manifest.erase(std::next(manifest.begin(), static_cast<std::ptrdiff_t>(below(manifest.size()))).key());
        break;
      case 2:
        (below(2) == 0 ? manifest : piece)["another_key"] = below(100);
        break;
      case 3:
        piece["file"] = any(shards_);
        break;
      case 4:
        piece["tensor"] = any_member(manifest["tensors"])["pieces"][0]["tensor"];
        break;
      case 5:
        tensor["shape"][0] = std::int64_t{1} << below(63);
        break;
      case 6:
        any_member(manifest["files"])["bytes"] = below(1U << 16);
        break;
      default:
        std::swap(tensor, any_member(manifest["tensors"]));
    }
  }

  std::filesystem::path folder_;
  std::filesystem::path other_;
  std::mt19937_64 random_;
  std::map<std::string, std::string> whole_;
  std::vector<std::string> names_;
  std::vector<std::string> shards_;
  std::set<std::string> touched_;
};

}  // namespace orthant::test
