// Our reader and writer as a program, for tests/system/test_safetensors.py to hold against the PyPI package.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "orthant/base/error.h"
#include "orthant/files/safetensors.h"
#include "orthant/files/tensor_folder.h"

namespace {

using namespace orthant;
using nlohmann::json;

std::vector<std::byte> bytes_of(const TensorFolder& folder, const TensorEntry& entry) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(tensor_bytes(entry)));
  folder.read(entry.name, bytes);
  return bytes;
}

// {name: [dtype, shape, hexadecimal bytes]}
json contents(const TensorFolder& folder) {
  json all = json::object();
  for (const FolderTensor& tensor : folder.tensors()) {
    std::string hex;
    for (const std::byte byte : bytes_of(folder, tensor.entry)) hex += fmt::format("{:02x}", static_cast<int>(byte));
    all[tensor.entry.name] = {tensor.entry.dtype, tensor.entry.shape, hex};
  }
  return all;
}

// For each file of a folder, in order of name: {name: [dtype, shape]}, or why it is refused.
json verdicts(const std::string& folder) {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  json all = json::array();
  for (const std::string& path : paths) {
    json verdict = json::object();
    try {
      const SafetensorsFile file = SafetensorsFile::open(path);
      for (const TensorEntry& entry : file.entries()) verdict[entry.name] = {entry.dtype, entry.shape};
    } catch (const DataError& error) {
      verdict = error.message().substr(path.size() + 2);
    }
    all.push_back(std::move(verdict));
  }
  return all;
}

void copy_folder(const std::string& from, const std::string& to, std::int64_t max_shard_bytes) {
  const TensorFolder folder = TensorFolder::open(from);
  std::vector<TensorEntry> entries;
  for (const FolderTensor& tensor : folder.tensors()) entries.push_back(tensor.entry);
  write_tensor_folder(to, entries, [&](const TensorEntry& entry, const PutBytes& put) { put(bytes_of(folder, entry)); },
                      {.max_shard_bytes = max_shard_bytes});
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  try {
    if (words.size() == 2 && words[0] == "contents") {
      fmt::print("{}\n", contents(TensorFolder::open(words[1])).dump());
    } else if (words.size() == 2 && words[0] == "metadata") {
      fmt::print("{}\n", json(SafetensorsFile::open(words[1]).metadata()).dump());
    } else if (words.size() == 2 && words[0] == "verdicts") {
      fmt::print("{}\n", verdicts(words[1]).dump());
    } else if (words.size() == 4 && words[0] == "copy") {
      copy_folder(words[1], words[2], std::stoll(words[3]));
    } else {
      fmt::print(stderr, "contents PATH | metadata FILE | verdicts FOLDER | copy FROM TO MAX_SHARD_BYTES\n");
      return 2;
    }
  } catch (const Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return error.exit_code();
  }
  return 0;
}
