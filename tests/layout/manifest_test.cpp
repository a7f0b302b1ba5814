#include "orthant/layout/manifest.h"

#include <gtest/gtest.h>

#include "mesh/thrown_error.h"
#include "orthant/base/error.h"
#include "orthant/files/xxhash.h"

namespace orthant {
namespace manifest_test {

using test::thrown_text;

Manifest small_manifest() {
  Manifest manifest;
  manifest.step = 12;
  manifest.mesh = "pp=2,fsdp=2";
  manifest.epoch = 1;
  manifest.position = 96;
  manifest.samples_seen = 1096;
  manifest.seed = 0xffffffffffffffff;
  manifest.updates = 11;
  manifest.tensors = {{"embed.table",
                       {4, 2},
                       DType::float32,
                       {{{0, 0}, {4, 2}, Range{0, 4}, "rank-0.safetensors", "embed.table"},
                        {{0, 0}, {4, 2}, Range{4, 8}, "rank-1.safetensors", "embed.table"}}},
                      {"norm \"x\"", {3}, DType::bfloat16, {{{0}, {3}, std::nullopt, "rank-1.safetensors", "norm"}}}};
  manifest.files = {{"rank-0.safetensors", 128, {"00000000000000ff"}},
                    {"rank-1.safetensors", 160, {"a1b2c3d4e5f60718"}}};
  manifest.tied = {{"head.weight", "embed.table"}};
  return manifest;
}

std::string refusal(const Manifest& manifest) {
  return thrown_text<DataError>([&] { parse_manifest(to_json(manifest), "m.json"); });
}

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  const auto place = text.find(from);
  EXPECT_NE(place, std::string::npos) << from;
  return text.replace(place, from.size(), to);
}

std::string refusal_of_text(std::string_view from, std::string_view to) {
  return thrown_text<DataError>([&] { parse_manifest(replaced(to_json(small_manifest()), from, to), "m.json"); });
}

constexpr const char* kDamaged = "\nthe checkpoint is damaged or incomplete: use another one";

TEST(Manifest, ComesBackFromItsText) {
  const Manifest manifest = small_manifest();
  EXPECT_EQ(parse_manifest(to_json(manifest), "m.json"), manifest);
  Manifest empty;
  EXPECT_EQ(parse_manifest(to_json(empty), "m.json"), empty);
}

TEST(Manifest, TextDoesNotDependOnTheOrderOfTensorsAndFiles) {
  Manifest manifest = small_manifest();
  const std::string text = to_json(manifest);
  std::swap(manifest.tensors[0], manifest.tensors[1]);
  std::swap(manifest.files[0], manifest.files[1]);
  EXPECT_EQ(to_json(manifest), text);
}

TEST(Manifest, HasALinePerTensorAndFile) {
  Manifest manifest = small_manifest();
  manifest.tensors.pop_back();
  EXPECT_EQ(to_json(manifest),
            "{\n"
            " \"version\": 2,\n"
            " \"step\": 12,\n"
            " \"mesh\": \"pp=2,fsdp=2\",\n"
            " \"epoch\": 1,\n"
            " \"position\": 96,\n"
            " \"samples_seen\": 1096,\n"
            " \"seed\": 18446744073709551615,\n"
            " \"updates\": 11,\n"
            " \"loss_scale\": 0,\n"
            " \"good_steps\": 0,\n"
            " \"tied\": {\"head.weight\":\"embed.table\"},\n"
            " \"tensors\": {\n"
            "  \"embed.table\": {\"dtype\":\"float32\",\"pieces\":["
            "{\"file\":\"rank-0.safetensors\",\"lengths\":[4,2],\"offsets\":[0,0],\"range\":[0,4],"
            "\"tensor\":\"embed.table\"},"
            "{\"file\":\"rank-1.safetensors\",\"lengths\":[4,2],\"offsets\":[0,0],\"range\":[4,8],"
            "\"tensor\":\"embed.table\"}],\"shape\":[4,2]}\n"
            " },\n"
            " \"files\": {\n"
            "  \"rank-0.safetensors\": {\"bytes\":128,\"xxh64\":[\"00000000000000ff\"]},\n"
            "  \"rank-1.safetensors\": {\"bytes\":160,\"xxh64\":[\"a1b2c3d4e5f60718\"]}\n"
            " },\n"
            " \"xxh64\": \"6836ab6260f73ae9\"\n"
            "}\n");
}

TEST(Manifest, RefusesAnotherVersion) {
  Manifest manifest = small_manifest();
  manifest.version = 1;
  EXPECT_EQ(refusal(manifest),
            "m.json: version: this program reads version 2, found 1\n"
            "read the checkpoint with the release of orthant that wrote it");
}

TEST(Manifest, RefusesAnyEditedText) {
  const auto text = to_json(small_manifest());
  const std::string refusal =
      "m.json: its hash is not that of its contents: it was damaged or edited\n"
      "copy the checkpoint again, or use another one of the run";
  EXPECT_EQ(refusal_of_text("\"step\": 12", "\"step\": 13"), refusal);
  EXPECT_EQ(refusal_of_text("\"step\": 12", "\"step\":  12"), refusal);
  EXPECT_EQ(refusal_of_text("\"mesh\": \"pp=2,fsdp=2\"", "\"mesh\": \"pp=2\""), refusal);
  EXPECT_EQ(thrown_text<DataError>([&] { parse_manifest(text + "\n", "m.json"); }), refusal);
  for (std::size_t i = 0; i < text.size(); ++i) {
    for (const int bit : {0, 3, 6}) {
      auto damaged = text;
      damaged[i] = static_cast<char>(damaged[i] ^ (1 << bit));
      EXPECT_THROW(parse_manifest(damaged, "m.json"), DataError) << "byte " << i << ", bit " << bit;
    }
  }
}

TEST(Manifest, CarriesTheLossOfAnEvaluation) {
  auto manifest = small_manifest();
  manifest.eval_loss = 0.1 + 0.2;
  EXPECT_EQ(parse_manifest(to_json(manifest), "m.json"), manifest);
}

TEST(Manifest, RefusesMissingUnknownAndWrongKeys) {
  EXPECT_EQ(refusal_of_text("\"seed\": 18446744073709551615,", ""),
            "m.json:1:1: missing key seed (a non-negative integer)\nadd \"seed\"");
  EXPECT_EQ(refusal_of_text("\"epoch\"", "\"epochs\""),
            "m.json:1:1: missing key epoch (an integer)\nrename \"epochs\" to \"epoch\"");
  EXPECT_NE(
      refusal_of_text("\"bytes\":128", "\"bytes\":128,\"crc\":1").find("unknown key files.rank-0.safetensors.crc"),
      std::string::npos);
  EXPECT_NE(refusal_of_text("\"dtype\":\"float32\"", "\"dtype\":\"float31\"").find("unknown dtype \"float31\""),
            std::string::npos);
  EXPECT_NE(refusal_of_text("\"pieces\"", "\"parts\"").find("missing key tensors.embed.table.pieces"),
            std::string::npos);
  EXPECT_THROW(parse_manifest("{", "m.json"), DataError);
  EXPECT_THROW(parse_manifest("[]", "m.json"), DataError);
}

TEST(Manifest, RefusesPiecesItCannotRead) {
  const auto contains = [](const std::string& text, const std::string& part) {
    EXPECT_NE(text.find("tensors.embed.table.pieces: " + part), std::string::npos) << text;
  };
  contains(refusal_of_text("\"range\":[0,4]", "\"range\":[0]"), "piece 0: a range is [begin, end), found 1 numbers");
  contains(refusal_of_text("\"file\":\"rank-0.safetensors\",", ""), "piece 0: missing key \"file\"\nadd \"file\"");
  contains(refusal_of_text("\"range\":[4,8]", "\"rang\":[4,8]"),
           "piece 1: unknown key \"rang\"\ndid you mean \"range\"?");
  contains(refusal_of_text("\"offsets\":[0,0]", "\"offsets\":[0,-1]"),
           "piece 0: offsets: expected an array of non-negative integers, found an array of 2 elements");
  contains(refusal_of_text("\"tensor\":\"embed.table\"", "\"tensor\":3"),
           "piece 0: tensor: expected a string, found the number 3");
  contains(refusal_of_text("\"pieces\":[{", "\"pieces\":[7,{"), "piece 0: expected an object, found the number 7");
  EXPECT_NE(refusal_of_text("\"shape\":[4,2]}", "\"shape\":[4,2],\"more\":1}").find("tensors.embed.table.more"),
            std::string::npos);
}

TEST(Manifest, RefusesTensorsThatAreNotWhole) {
  Manifest manifest = small_manifest();
  manifest.tensors[0].pieces.pop_back();
  EXPECT_EQ(refusal(manifest),
            std::string("m.json: tensor embed.table of shape [4, 2]: its 1 pieces hold 4 of 8 elements") + kDamaged);
}

TEST(Manifest, RefusesPiecesInFilesThatAreNotListed) {
  Manifest manifest = small_manifest();
  manifest.files.pop_back();
  EXPECT_EQ(refusal(manifest),
            std::string("m.json: tensor embed.table: a piece lies in rank-1.safetensors, which is not "
                        "among the manifest's 1 files") +
                kDamaged);
}

TEST(Manifest, RefusesFilesOutsideTheFolderAndWithoutAHash) {
  for (const char* name : {"../x", "/etc/passwd", "a\\b", "..", "."}) {
    Manifest manifest = small_manifest();
    manifest.files.push_back({name, 0, {"0000000000000000"}});
    EXPECT_EQ(refusal(manifest),
              std::string("m.json: file \"") + name + "\": a file of a checkpoint lies in its folder" + kDamaged);
  }
  for (const char* hash : {"", "00000000000000F0", "0x00000000000000", "00000000000000000"}) {
    Manifest manifest = small_manifest();
    manifest.files[0].xxh64 = {hash};
    EXPECT_EQ(refusal(manifest),
              std::string("m.json: file rank-0.safetensors: expected a size and for each 8 MiB an xxh64 of 16 "
                          "hexadecimal digits, found 128 bytes and [") +
                  hash + "]" + kDamaged);
  }
  Manifest manifest = small_manifest();
  manifest.files[0].bytes = kHashedBlockBytes + 1;
  EXPECT_NE(refusal(manifest).find("found 8388609 bytes and [00000000000000ff]"), std::string::npos);
  manifest.files[0].xxh64.emplace_back("00000000000000fe");
  EXPECT_EQ(parse_manifest(to_json(manifest), "m.json"), manifest);
}

TEST(Manifest, RefusesTiedNamesWithoutTensorOrWithTwo) {
  Manifest manifest = small_manifest();
  manifest.tied["head.weight"] = "embed.tabel";
  EXPECT_EQ(refusal(manifest), std::string("m.json: tied head.weight: its owner embed.tabel is no tensor") + kDamaged);
  manifest.tied = {{"embed.table", "norm \"x\""}};
  EXPECT_EQ(refusal(manifest), std::string("m.json: tied embed.table: it is also a tensor of its own") + kDamaged);
}

TEST(Manifest, RefusesNegativeCounts) {
  Manifest manifest = small_manifest();
  manifest.position = -1;
  EXPECT_EQ(refusal(manifest),
            std::string("m.json: step 12, epoch 1, position -1 and samples_seen 1096 must not be negative") + kDamaged);
}

TEST(Manifest, CheckNamesWhatIsListedTwice) {
  Manifest manifest = small_manifest();
  manifest.tensors.push_back(manifest.tensors[1]);
  EXPECT_EQ(thrown_text<DataError>([&] { check_manifest(manifest, "m.json"); }),
            std::string("m.json: tensor norm \"x\" is listed twice") + kDamaged);
  manifest = small_manifest();
  manifest.files.push_back(manifest.files[1]);
  EXPECT_EQ(thrown_text<DataError>([&] { check_manifest(manifest, "m.json"); }),
            std::string("m.json: file rank-1.safetensors is listed twice") + kDamaged);
}

TEST(Manifest, NamesCannotMoveACursorOrFakeALine) {
  Manifest manifest = small_manifest();
  manifest.tensors[0].name = "\x1b[2J\nfine";
  EXPECT_EQ(refusal(manifest),
            std::string("m.json: tensor \\x1b[2J\\x0afine: a name without control characters was expected") + kDamaged);
}

TEST(Manifest, ALargeTextIsProvedWholeBeforeItIsParsed) {
  const std::string text = "{\"x\": [" + std::string(std::size_t{2} << 20, '1') + "]}";
  EXPECT_TRUE(thrown_text<DataError>([&] {
                parse_manifest(text, "m.json");
              }).starts_with("m.json: its hash is not that of its contents"));
}

TEST(Manifest, ReadsManyPieces) {
  Manifest manifest = small_manifest();
  for (int t = 0; t < 300; ++t) {
    ManifestTensor tensor{
        .name = "layers." + std::to_string(t), .shape = {4096}, .dtype = DType::float32, .pieces = {}};
    for (std::int64_t p = 0; p < 64; ++p) {
      tensor.pieces.push_back({{0}, {4096}, Range{p * 64, p * 64 + 64}, "rank-0.safetensors", tensor.name});
    }
    manifest.tensors.push_back(std::move(tensor));
  }
  EXPECT_EQ(parse_manifest(to_json(manifest), "m.json").tensors.size(), 302U);
}

}  // namespace manifest_test
}  // namespace orthant
