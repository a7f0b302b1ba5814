#include "orthant/http/access.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "mesh/thrown_error.h"

namespace orthant::http {
namespace access_test {

TEST(ApiKeys, RefuseFilesThatProtectNothing) {
  const auto path =
      (std::filesystem::temp_directory_path() / ("orthant-bad-keys-" + std::to_string(getpid()))).string();
  const auto refusal = [&](const std::string& content, int mode) {
    std::filesystem::remove(path);
    std::ofstream(path) << content;
    std::filesystem::permissions(path, static_cast<std::filesystem::perms>(mode));
    return test::thrown_text([&] { ApiKeys::load(path); });
  };
  EXPECT_EQ(refusal("0123456789abcdef\n", 0644),
            "--api-key-file " + path + ": others can read it (mode 0644)\nchmod 600 " + path);
  EXPECT_EQ(refusal("short\n", 0600), "--api-key-file " + path +
                                          ": a key has fewer than 16 characters, or others than letters, digits and "
                                          "signs\nmake one with: openssl rand -hex 24");
  EXPECT_EQ(refusal("\n", 0600), "--api-key-file " + path + " holds no key\nwrite one on each line");
  std::filesystem::remove(path);
  EXPECT_EQ(test::thrown_text([&] { access_rules({.host = "0.0.0.0", .could = "use the model"}); }),
            "--host 0.0.0.0 without --api-key-file: whoever reaches this address could use the model\n"
            "add --api-key-file FILE, or leave --host out to serve this machine only");
}

TEST(AccessRules, TakeAKeyAsBearerOrAsPassword) {
  const auto path = (std::filesystem::temp_directory_path() / ("orthant-access-" + std::to_string(getpid()))).string();
  std::filesystem::remove(path);
  std::ofstream(path) << "0123456789abcdef\n";
  std::filesystem::permissions(path, std::filesystem::perms::owner_read);
  AccessRules rules{.keys = ApiKeys::load(path), .asks_no_key = [](const std::string& asked) { return asked == "/"; }};
  std::filesystem::remove(path);
  const auto status = [&](const std::string& asked, const std::string& authorization) {
    Request request{.method = "GET", .path = asked, .query = {}, .headers = {{"host", "localhost"}}, .body = {}};
    if (!authorization.empty()) request.headers.emplace_back("authorization", authorization);
    const auto refusal = refuse_access(rules, request);
    return refusal ? refusal->status : 200;
  };
  EXPECT_EQ(status("/", ""), 200);
  EXPECT_EQ(status("/metrics", ""), 401);
  EXPECT_EQ(status("/metrics", "Bearer 0123456789abcdef"), 200);
  EXPECT_EQ(status("/metrics", "Bearer 0123456789abcdeg"), 401);
  EXPECT_EQ(status("/metrics", "Basic b3J0aGFudDowMTIzNDU2Nzg5YWJjZGVm"), 200);  // orthant:0123456789abcdef
  EXPECT_EQ(status("/metrics", "Basic MDEyMzQ1Njc4OWFiY2RlZg=="), 401);          // no name, no colon
  EXPECT_EQ(status("/metrics", "Basic 0123456789abcdef"), 401);
}

}  // namespace access_test
}  // namespace orthant::http
