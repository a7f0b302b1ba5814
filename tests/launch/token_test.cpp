#include "orthant/launch/token.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "launch/job_token.h"
#include "launch/launch_fixture.h"
#include "launch/message_of.h"
#include "orthant/base/error.h"
#include "orthant/launch/environment.h"

namespace orthant::launch {
namespace token_test {

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

class TokenFile : public LauncherTest {
 protected:
  std::string file(const std::string& text, mode_t mode = 0600) {
    const std::string path = folder_ / "token";
    std::ofstream(path) << text;
    chmod(path.c_str(), mode);
    return path;
  }

  static void expect_refusal(const std::string& path, const std::string& part) {
    const auto message = message_of<ConfigError>([&] { Token::read(path); });
    EXPECT_NE(message.find(part), std::string::npos) << message;
    EXPECT_EQ(message.find(kTestDigits.substr(0, 16)), std::string::npos) << message;
  }
};

TEST(Token, SignsWithItsBytes) {
  const auto token = Token::parse(kTestDigits, "test");
  std::string key;
  for (int i = 0; i < 16; ++i) key += static_cast<char>(0x11 * i);
  for (const int byte : {0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef}) key += static_cast<char>(byte);
  for (const int byte : {0xfe, 0xdc, 0xba, 0x98, 0x76, 0x54, 0x32, 0x10}) key += static_cast<char>(byte);
  HmacSha256 expected(bytes_of(key));
  expected.update(bytes_of("message"));
  EXPECT_EQ(digest_text(token.sign(bytes_of("message"))), digest_text(expected.digest()));
}

TEST(Token, MayHaveALineBreakAtItsEnd) {
  const auto plain = Token::parse(kTestDigits, "test").sign(bytes_of("x"));
  EXPECT_EQ(Token::parse(kTestDigits + " \r\n", "test").sign(bytes_of("x")), plain);
}

TEST(Token, IsRefusedByTheNameOfItsSourceWithoutShowingIt) {
  for (const std::string& text : {std::string(), kTestDigits.substr(1), kTestDigits + "0", "x" + kTestDigits.substr(1),
                                  " " + kTestDigits.substr(1), std::string("secret words")}) {
    const auto message = message_of<ConfigError>([&] { Token::parse(text, "ORTHANT_TOKEN"); });
    EXPECT_NE(message.find("ORTHANT_TOKEN holds no job token: 64 hexadecimal digits are expected"), std::string::npos);
    EXPECT_TRUE(text.empty() || message.find(text.substr(0, 12)) == std::string::npos) << message;
  }
}

TEST(Token, IsAnotherOneEveryTime) {
  EXPECT_NE(Token::random().sign(bytes_of("x")), Token::random().sign(bytes_of("x")));
}

TEST(Token, IsGoneInAForkedProcess) {
  const auto token = Token::random();
  const pid_t child = fork();
  if (child == 0) {
    try {
      token.sign({});
    } catch (const InternalError&) {
      _exit(0);
    }
    _exit(1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST(Token, IsTakenOutOfTheEnvironment) {
  setenv(kTokenVariable, kTestDigits.c_str(), 1);
  const char* where = getenv(kTokenVariable);
  const auto secret = take_variable(kTokenVariable);
  ASSERT_TRUE(secret);
  EXPECT_EQ(secret->text(), kTestDigits);
  EXPECT_EQ(getenv(kTokenVariable), nullptr);
  EXPECT_EQ(*where, '\0') << "a copy is left where the variable was";
  EXPECT_FALSE(take_variable(kTokenVariable));
}

TEST(Token, IsInNoSnapshotOfTheEnvironment) {
  setenv(kTokenVariable, kTestDigits.c_str(), 1);
  EXPECT_FALSE(process_environment().contains(kTokenVariable));
  unsetenv(kTokenVariable);
}

TEST_F(TokenFile, IsWrittenAndReadBack) {
  const auto token = Token::random();
  const std::string path = folder_ / "new";
  token.write(path);
  struct stat status{};
  ASSERT_EQ(stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0600U);
  EXPECT_EQ(read_file(path).size(), Token::kDigits + 1);
  EXPECT_EQ(Token::read(path).sign(bytes_of("x")), token.sign(bytes_of("x")));
  const auto message = message_of<ConfigError>([&] { token.write(path); });
  EXPECT_NE(message.find("cannot make the token file"), std::string::npos) << message;
  EXPECT_NE(message.find("remove the old token first"), std::string::npos) << message;
}

TEST_F(TokenFile, MustBeOnesOwnAndNobodyElses) {
  expect_refusal(file(kTestDigits, 0640), "can be used by others (mode 0640)");
  expect_refusal(file(kTestDigits, 0602), "chmod 600 " + (folder_ / "token").string());
  EXPECT_NO_THROW(Token::read(file(kTestDigits, 0400)));
  if (geteuid() == 0) {
    const auto path = file(kTestDigits);
    ASSERT_EQ(chown(path.c_str(), 12345, 12345), 0);
    expect_refusal(path, "belongs to user 12345, not to this one (0)");
  }
}

TEST_F(TokenFile, MustBeAPlainSmallFile) {
  expect_refusal(folder_ / "none", "cannot be read: No such file or directory");
  const std::string link = folder_ / "link";
  ASSERT_EQ(symlink(file(kTestDigits).c_str(), link.c_str()), 0);
  expect_refusal(link, "is a symbolic link");
  const std::string fifo = folder_ / "fifo";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  expect_refusal(fifo, "is not a regular file");
  expect_refusal(folder_, "is not a regular file");
  expect_refusal(file(kTestDigits + std::string(1 << 20, ' ') + "x"), "holds no job token");
  expect_refusal(file(kTestDigits.substr(0, 63) + "\n"), "holds no job token");
}

TEST_F(TokenFile, WinsOverTheVariable) {
  auto variable = std::make_shared<Secret>(5);
  TokenSource source{variable, file(kTestDigits), false};
  EXPECT_TRUE(find_membership(source, "2 hosts").token);
  source.file.clear();
  const auto message = message_of<ConfigError>([&] { find_membership(source, "2 hosts"); });
  EXPECT_NE(message.find("ORTHANT_TOKEN holds no job token"), std::string::npos) << message;
}

TEST_F(TokenFile, BesideNoTokenIsRefused) {
  const auto message = message_of<ConfigError>([&] { find_membership({nullptr, "f", true}, "2 hosts"); });
  EXPECT_NE(message.find("--token-file beside --no-token"), std::string::npos) << message;
  EXPECT_TRUE(find_membership({nullptr, "", true}, "2 hosts").open);
  const auto beside = message_of<ConfigError>([&] { find_membership({std::make_shared<Secret>(5), "", true}, "2"); });
  EXPECT_NE(beside.find("--no-token although ORTHANT_TOKEN is set"), std::string::npos) << beside;
  EXPECT_NE(beside.find("unset ORTHANT_TOKEN"), std::string::npos) << beside;
}

TEST_F(TokenFile, IsAskedForWithTheWayToMakeOne) {
  const auto message = message_of<ConfigError>([&] { find_membership({}, "2 hosts"); });
  for (const char* part : {"2 hosts without a job token", "orthant launch --make-token FILE", "--token-file FILE",
                           "ORTHANT_TOKEN", "--no-token"}) {
    EXPECT_NE(message.find(part), std::string::npos) << part << " in " << message;
  }
}

}  // namespace token_test
}  // namespace orthant::launch
