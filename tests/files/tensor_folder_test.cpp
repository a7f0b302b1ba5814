#include "orthant/files/tensor_folder.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <map>
#include <nlohmann/json.hpp>

#include "base/error_text.h"
#include "files/safetensors_bytes.h"
#include "files/temporary_folder.h"
#include "orthant/files/whole_file.h"

namespace orthant {
namespace tensor_folder_test {

using test::put_file;
using test::TemporaryFolder;
namespace fs = std::filesystem;

constexpr const char* kIndex = "model.safetensors.index.json";
constexpr const char* kPickles =
    "pickle files are never read; turn them into safetensors with tools/state_dict_to_safetensors.py";

std::string text_of(const TensorFolder& folder, std::string_view name) {
  std::string text(static_cast<std::size_t>(tensor_bytes(folder.tensor(name).entry)), '-');
  folder.read(name, std::as_writable_bytes(std::span(text)));
  return text;
}

// A file of U8 tensors with these contents.
void put_tensors(const fs::path& path, const std::map<std::string, std::string>& tensors) {
  std::vector<TensorEntry> entries;
  for (const auto& [name, bytes] : tensors) entries.push_back({name, "U8", {static_cast<std::int64_t>(bytes.size())}});
  SafetensorsWriter writer(path, entries);
  for (const auto& [name, bytes] : tensors) writer.write(name, std::as_bytes(std::span(bytes)));
  writer.finish();
}

void put_index(const fs::path& folder, const std::string& weight_map) {
  put_file(folder / kIndex, "{\"metadata\": {\"total_size\": 6}, \"weight_map\": " + weight_map + "}");
}

std::string refusal(const fs::path& path) {
  return error_text<DataError>([&] { TensorFolder::open(path); });
}

TEST(TensorFolder, OneFileIsAFolderOrIsGivenDirectly) {
  const TemporaryFolder folder;
  put_tensors(folder / "model.safetensors", {{"b", "bbb"}, {"a", "aa"}});
  put_file(folder / "pytorch_model.bin", "never looked at");
  for (const fs::path& path : {folder.path(), folder / "model.safetensors"}) {
    const TensorFolder tensors = TensorFolder::open(path);
    EXPECT_EQ(tensors.path(), path);
    EXPECT_EQ(tensors.files(), (std::vector<std::string>{"model.safetensors"}));
    ASSERT_EQ(tensors.tensors().size(), 2U);
    EXPECT_EQ(tensors.tensors()[0].entry, (TensorEntry{"a", "U8", {2}}));
    EXPECT_EQ(tensors.tensor("b").file, "model.safetensors");
    EXPECT_TRUE(tensors.contains("a"));
    EXPECT_FALSE(tensors.contains("c"));
    EXPECT_EQ(text_of(tensors, "b"), "bbb");
    EXPECT_EQ(tensors.bytes_read(), 3);
  }
}

TEST(TensorFolder, ShardsAreOneSetOfTensors) {
  const TemporaryFolder folder;
  put_tensors(folder / "model-00001-of-00002.safetensors", {{"a", "aa"}, {"b", "bbb"}});
  put_tensors(folder / "model-00002-of-00002.safetensors", {{"c", "0123456789"}, {"besides", "x"}});
  put_index(folder.path(), R"({"a": "model-00001-of-00002.safetensors", "b": "model-00001-of-00002.safetensors",
                               "c": "model-00002-of-00002.safetensors"})");
  const TensorFolder tensors = TensorFolder::open(folder.path());
  EXPECT_EQ(tensors.files().size(), 2U);
  EXPECT_EQ(tensors.tensor("b").file, "model-00001-of-00002.safetensors");
  EXPECT_EQ(text_of(tensors, "a"), "aa");
  EXPECT_EQ(text_of(tensors, "besides"), "x");
  std::string part(4, '-');
  const std::vector<std::int64_t> offsets = {3};
  const std::vector<std::int64_t> lengths = {4};
  tensors.read_slice("c", offsets, lengths, std::as_writable_bytes(std::span(part)));
  EXPECT_EQ(part, "3456");
  tensors.read("c", 6, std::as_writable_bytes(std::span(part)));
  EXPECT_EQ(part, "6789");
  EXPECT_EQ(tensors.bytes_read(), 2 + 1 + 4 + 4);
}

TEST(TensorFolder, LinksLeadToTheFilesOfACache) {
  const TemporaryFolder folder;
  fs::create_directory(folder / "blobs");
  fs::create_directory(folder / "snapshot");
  put_tensors(folder / "blobs" / "0123", {{"a", "aa"}});
  fs::create_symlink("../blobs/0123", folder / "snapshot" / "model.safetensors");
  EXPECT_EQ(text_of(TensorFolder::open(folder / "snapshot"), "a"), "aa");
  fs::remove(folder / "blobs" / "0123");
  EXPECT_TRUE(
      refusal(folder / "snapshot")
          .starts_with((folder / "snapshot/model.safetensors").string() + ": open failed: No such file or directory"));
}

TEST(TensorFolder, AMissingTensorNamesTheNearest) {
  const TemporaryFolder folder;
  put_tensors(folder / "model.safetensors", {{"layers.0.weight", "aa"}});
  const TensorFolder tensors = TensorFolder::open(folder.path());
  EXPECT_EQ(
      error_text<DataError>([&] { tensors.tensor("layers.0.wieght"); }),
      folder.path().string() + ": no tensor \"layers.0.wieght\" among its 1\n  fix: did you mean \"layers.0.weight\"?");
  EXPECT_EQ(error_text<InternalError>([&] { tensors.read("layers.0.weight", {}); }),
            folder.path().string() + ": tensor \"layers.0.weight\" of 2 bytes was to be read into 0");
}

TEST(TensorFolder, PicklesAreNeverRead) {
  for (const std::string name : {"pytorch_model.bin", "a.pt", "a.ckpt", "a.pth", "a.pkl"}) {
    const TemporaryFolder folder;
    put_file(folder / name, "x");
    EXPECT_EQ(refusal(folder.path()),
              fmt::format("{}: has no safetensors, only {}\n  fix: {}", folder.path().string(), name, kPickles));
    EXPECT_EQ(refusal(folder / name),
              fmt::format("{}: is a pickle file\n  fix: {}", (folder / name).string(), kPickles));
  }
  const TemporaryFolder folder;
  put_index(folder.path(), R"({"a": "pytorch_model-00001-of-00002.bin"})");
  EXPECT_EQ(refusal(folder.path()),
            fmt::format("{}:1:47: weight_map: tensor \"a\" is in the pickle file \"pytorch_model-00001-of-00002.bin\"\n"
                        "  fix: {}",
                        (folder / kIndex).string(), kPickles));
}

TEST(TensorFolder, WhatHoldsNoModelIsRefused) {
  const TemporaryFolder folder;
  const std::string path = folder.path().string();
  EXPECT_EQ(refusal(folder / "nothing"), (folder / "nothing").string() +
                                             ": no such file or folder\n"
                                             "  fix: give the folder of a model, or a .safetensors file");
  EXPECT_EQ(refusal(path), path +
                               ": has neither model.safetensors nor model.safetensors.index.json\n"
                               "  fix: give the folder of a model, or a .safetensors file");
  put_tensors(folder / "adapter.safetensors", {{"a", "a"}});
  EXPECT_EQ(refusal(path), path +
                               ": has neither model.safetensors nor model.safetensors.index.json, but "
                               "adapter.safetensors\n  fix: give the path of that file");
  EXPECT_EQ(text_of(TensorFolder::open(folder / "adapter.safetensors"), "a"), "a");
  put_tensors(folder / "model-00001-of-00001.safetensors", {{"a", "a"}});
  EXPECT_EQ(refusal(path), path +
                               ": has neither model.safetensors nor model.safetensors.index.json, but "
                               "adapter.safetensors and 1 more\n  fix: download model.safetensors.index.json too");
  put_index(folder.path(), "{}");
  EXPECT_EQ(refusal(folder / kIndex),
            (folder / kIndex).string() + ": is no file of tensors\n  fix: give the folder that it lies in");
}

TEST(TensorFolder, AnIndexOfAnotherFormIsRefused) {
  const TemporaryFolder folder;
  const std::string index = (folder / kIndex).string();
  const auto of_text = [&](const std::string& text) {
    put_file(index, text);
    const std::string error = refusal(folder.path());
    EXPECT_TRUE(error.starts_with(index + ":")) << error;
    return error.substr(index.size() + 1, error.find('\n') - index.size() - 1);
  };
  EXPECT_EQ(of_text(R"({"weight_map": []})"),
            "1:16: weight_map: expected an object of tensor names with the file of each");
  EXPECT_EQ(of_text(R"({"weight_map": {}})"),
            "1:16: weight_map: expected an object of tensor names with the file of each");
  EXPECT_EQ(of_text(R"({"weight_map": {"a": 3}})"),
            "1:16: weight_map: tensor \"a\" has the number 3; expected the name of a file");
  EXPECT_NE(of_text(R"({"metadata": {}})").find("weight_map"), std::string::npos);
  EXPECT_NE(of_text(R"({"metadata": 3, "weight_map": {"a": "b"}})").find("metadata"), std::string::npos);
  EXPECT_NE(of_text(R"([])").find("object"), std::string::npos);
  EXPECT_NE(of_text(R"({"weight_map": {"a": "x.safetensors", "a": "y.safetensors"}})").find("weight_map.a"),
            std::string::npos);
  EXPECT_NE(of_text(R"({"weight_map": )" + std::string(100'000, '[')).find("nest"), std::string::npos);
}

TEST(TensorFolder, AnIndexStaysWithinItsFolder) {
  const TemporaryFolder folder;
  fs::create_directory(folder / "model");
  put_tensors(folder / "secret.safetensors", {{"a", "aa"}});
  for (const std::string name : {"a\\nb.safetensors", "../secret.safetensors", "x/../../secret.safetensors",
                                 "/etc/passwd", "", "..", "./x", "x/", "model.safetensors\\u0000"}) {
    put_index(folder / "model", "{\"a\": \"" + name + "\"}");
    EXPECT_EQ(refusal(folder / "model"),
              fmt::format("{}:1:47: weight_map: tensor \"a\" is in \"{}\", which is not within the folder\n"
                          "  fix: name files of the folder itself",
                          (folder / "model" / kIndex).string(), name));
  }
}

TEST(TensorFolder, IndexAndFilesMustAgree) {
  const TemporaryFolder folder;
  const std::string index = (folder / kIndex).string();
  put_tensors(folder / "1.safetensors", {{"a", "aa"}});
  put_index(folder.path(), R"({"a": "1.safetensors", "b": "2.safetensors", "c": "3.safetensors"})");
  EXPECT_EQ(refusal(folder.path()), index +
                                        ": names \"2.safetensors\", which the folder lacks (2 of its 3 files are "
                                        "missing)\n  fix: download the missing files");
  put_tensors(folder / "2.safetensors", {{"c", "cc"}});
  put_index(folder.path(), R"({"a": "1.safetensors", "b": "2.safetensors"})");
  EXPECT_EQ(refusal(folder.path()), index +
                                        ": promises tensor \"b\" in 2.safetensors, which lacks it\n"
                                        "  fix: index and files are of two models: download both again");
  put_index(folder.path(), R"({"a": "2.safetensors", "c": "1.safetensors"})");
  EXPECT_TRUE(refusal(folder.path())
                  .starts_with(index + ": promises tensor \"a\" in 2.safetensors, which lacks it; it lies in 1.safe"));
  put_tensors(folder / "2.safetensors", {{"a", "aa"}, {"c", "cc"}});
  put_index(folder.path(), R"({"a": "1.safetensors", "c": "2.safetensors"})");
  EXPECT_EQ(refusal(folder.path()), folder.path().string() +
                                        ": tensor \"a\" lies in 1.safetensors and in 2.safetensors\n"
                                        "  fix: the files are of two models: download them again into an empty folder");
}

TEST(TensorFolder, HundredsOfShardsNeedFewDescriptors) {
  const TemporaryFolder folder;
  constexpr int kShards = 200;
  nlohmann::json map;
  for (int i = 0; i < kShards; ++i) {
    const std::string file = fmt::format("{}.safetensors", i);
    put_file(folder / file,
             test::safetensors_bytes(fmt::format(R"({{"t{}":{{"dtype":"U8","shape":[3],"data_offsets":[0,3]}}}})", i),
                                     fmt::format("{:03}", i)));
    map[fmt::format("t{}", i)] = file;
  }
  put_index(folder.path(), map.dump());
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit few = before;
  few.rlim_cur = 40;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  int right = 0;
  const TensorFolder tensors = TensorFolder::open(folder.path());
  for (int round = 0; round < 2; ++round) {
    for (int i = 0; i < kShards; ++i) right += text_of(tensors, fmt::format("t{}", i)) == fmt::format("{:03}", i);
  }
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(right, 2 * kShards);
  EXPECT_EQ(tensors.bytes_read(), 2 * kShards * 3);

  put_tensors(folder / "0.safetensors", {{"t0", "longer"}});
  EXPECT_EQ(error_text<DataError>([&] { text_of(tensors, "t0"); }),
            (folder / "0.safetensors").string() +
                ": tensor \"t0\" is not what it was when the file was opened first\n"
                "  fix: do not write to a file that is being read");
}

// Every byte of a tensor is the first letter of its name; in chunks of 3 bytes.
void put_letters(const TensorEntry& entry, const PutBytes& put) {
  std::int64_t left = tensor_bytes(entry);
  while (left > 0) {
    const std::string chunk(static_cast<std::size_t>(std::min<std::int64_t>(left, 3)), entry.name[0]);
    put(std::as_bytes(std::span(chunk)));
    left -= static_cast<std::int64_t>(chunk.size());
  }
}

TEST(WriteTensorFolder, SmallModelsAreOneFile) {
  const TemporaryFolder folder;
  const std::vector<TensorEntry> entries = {{"a", "U8", {3}}, {"b", "F32", {2}}, {"e", "F32", {0}}};
  EXPECT_EQ(write_tensor_folder(folder / "out", entries, put_letters), (std::vector<std::string>{"model.safetensors"}));
  EXPECT_EQ(folder.names(), (std::vector<std::string>{"out"}));
  const SafetensorsFile file = SafetensorsFile::open(folder / "out" / "model.safetensors");
  EXPECT_EQ(file.metadata(), (SafetensorsMetadata{{"format", "pt"}}));
  EXPECT_EQ(file.entries().front().name, "b") << "wide elements come first";
  EXPECT_EQ(text_of(TensorFolder::open(folder / "out"), "b"), "bbbbbbbb");
  EXPECT_EQ(
      error_text<DataError>([&] { write_tensor_folder(folder / "out", entries, put_letters); }),
      (folder / "out").string() + ": exists already and is not replaced\n  fix: remove it, or choose another name");
}

TEST(WriteTensorFolder, LargeModelsAreShardsWithAnIndex) {
  const TemporaryFolder folder;
  const std::vector<TensorEntry> entries = {
      {"a", "U8", {4}}, {"b", "U8", {6}}, {"c", "U8", {1}}, {"d", "U8", {50}}, {"e", "U8", {2}}};
  const auto files = write_tensor_folder(folder / "out", entries, put_letters, {.max_shard_bytes = 10});
  EXPECT_EQ(files,
            (std::vector<std::string>{"model-00001-of-00004.safetensors", "model-00002-of-00004.safetensors",
                                      "model-00003-of-00004.safetensors", "model-00004-of-00004.safetensors", kIndex}));
  const auto index = nlohmann::json::parse(read_file(folder / "out" / kIndex));
  EXPECT_EQ(index["metadata"]["total_size"], 63);
  EXPECT_EQ(index["weight_map"]["b"], "model-00001-of-00004.safetensors");
  EXPECT_EQ(index["weight_map"]["c"], "model-00002-of-00004.safetensors");
  const TensorFolder tensors = TensorFolder::open(folder / "out");
  ASSERT_EQ(tensors.tensors().size(), entries.size());
  for (const TensorEntry& entry : entries) {
    EXPECT_EQ(tensors.tensor(entry.name).entry, entry);
    EXPECT_EQ(text_of(tensors, entry.name), std::string(entry.shape[0], entry.name[0]));
  }
}

TEST(WriteTensorFolder, AFailureLeavesNothing) {
  const TemporaryFolder folder;
  const auto failing = [](const TensorEntry& entry, const PutBytes& put) {
    if (entry.name == "b") throw ConfigError("the model went away");
    put_letters(entry, put);
  };
  EXPECT_THROW(
      write_tensor_folder(folder / "out", {{"a", "U8", {4}}, {"b", "U8", {6}}}, failing, {.max_shard_bytes = 5}),
      ConfigError);
  EXPECT_TRUE(folder.names().empty());
  const auto short_of_bytes = [](const TensorEntry&, const PutBytes&) {};
  EXPECT_THROW(write_tensor_folder(folder / "out", {{"a", "U8", {4}}}, short_of_bytes), InternalError);
  EXPECT_TRUE(folder.names().empty());
}

TEST(WriteTensorFolder, RefusesWhatCannotBeWritten) {
  const TemporaryFolder folder;
  const std::string path = folder.path().string();
  const auto error_of = [&](const std::vector<TensorEntry>& entries) {
    return error_text<DataError>([&] { write_tensor_files(path, entries, put_letters, {.max_shard_bytes = 1}); });
  };
  EXPECT_EQ(error_of({{"a", "U8", {4}}, {"b", "U8", {4}}, {"a", "U8", {4}}}),
            path + ": tensor name \"a\" is given twice\n  fix: give each tensor a name of its own");
  EXPECT_EQ(error_of({{"a", "U8", {-4}}}),
            path + ": tensor \"a\": shape [-4] has a negative dimension\n  fix: give sizes of 0 or more");
  EXPECT_EQ(error_text<ConfigError>([&] { write_tensor_files(path, {}, put_letters, {.max_shard_bytes = 0}); }),
            "shards of 0 bytes hold nothing\n  fix: set the largest size of a shard to 1 byte or more");
  EXPECT_TRUE(folder.names().empty());
}

}  // namespace tensor_folder_test
}  // namespace orthant
