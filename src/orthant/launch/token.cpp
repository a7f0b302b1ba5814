#include "orthant/launch/token.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "orthant/base/error.h"
#include "orthant/launch/sockets.h"

namespace orthant::launch {
namespace {

constexpr const char* kDigitsOf = "0123456789abcdef";

int digit_value(char digit) {
  if (digit >= '0' && digit <= '9') return digit - '0';
  if (digit >= 'a' && digit <= 'f') return digit - 'a' + 10;
  if (digit >= 'A' && digit <= 'F') return digit - 'A' + 10;
  return -1;
}

std::string_view without_trailing_space(std::string_view text) {
  const auto last = text.find_last_not_of(" \t\r\n");
  return text.substr(0, last == std::string_view::npos ? 0 : last + 1);
}

[[noreturn]] void throw_file_error(const std::filesystem::path& path, const std::string& problem,
                                   const std::string& remedy) {
  throw ConfigError(fmt::format("token file {} {}", path.string(), problem), {.remedy = remedy});
}

Fd open_token_file(const std::filesystem::path& path) {
  Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY));
  if (!file && errno == ELOOP) throw_file_error(path, "is a symbolic link", "name the file itself");
  if (!file) {
    throw_file_error(path, fmt::format("cannot be read: {}", std::strerror(errno)),
                     fmt::format("make it with orthant launch --make-token {}", path.string()));
  }
  struct stat status{};
  if (fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode)) {
    throw_file_error(path, "is not a regular file", "name a file made by orthant launch --make-token FILE");
  }
  if (status.st_uid != geteuid()) {
    throw_file_error(path, fmt::format("belongs to user {}, not to this one ({})", status.st_uid, geteuid()),
                     "use a copy of your own with mode 0600");
  }
  if ((status.st_mode & 077) != 0) {
    throw_file_error(path, fmt::format("can be used by others (mode {:04o})", status.st_mode & 07777),
                     fmt::format("make a new one if others may have read it, else: chmod 600 {}", path.string()));
  }
  if (status.st_size > static_cast<off_t>(Secret::kMostBytes)) {
    throw_file_error(path, fmt::format("has {} bytes: it holds no job token", status.st_size),
                     "name a file made by orthant launch --make-token FILE");
  }
  return file;
}

// What the functions above this one have left on the stack of the secret they worked with.
__attribute__((noinline)) void wipe_stack_below() {
  std::array<std::byte, 4096> below;
  explicit_bzero(below.data(), below.size());
}

__attribute__((noinline)) Sha256Digest hmac(std::span<const std::byte> key, std::span<const std::byte> message) {
  HmacSha256 state(key);
  state.update(message);
  const auto digest = state.digest();
  explicit_bzero(&state, sizeof state);
  return digest;
}

}  // namespace

Token Token::random() {
  Token token;
  fill_random(token.secret_->bytes());
  return token;
}

Token Token::parse(std::string_view text, const std::string& source) {
  const auto digits = without_trailing_space(text);
  Token token;
  const auto bytes = token.secret_->bytes();
  bool good = digits.size() == kDigits;
  for (std::size_t i = 0; good && i < kBytes; ++i) {
    const int high = digit_value(digits[2 * i]);
    const int low = digit_value(digits[2 * i + 1]);
    good = high >= 0 && low >= 0;
    bytes[i] = static_cast<std::byte>(high * 16 + low);
  }
  if (!good) {
    throw ConfigError(fmt::format("{} holds no job token: {} hexadecimal digits are expected", source, kDigits),
                      {.remedy = "make one with orthant launch --make-token FILE"});
  }
  return token;
}

Token Token::read(const std::filesystem::path& path) {
  const Fd file = open_token_file(path);
  Secret text(Secret::kMostBytes);
  std::size_t size = 0;
  for (ssize_t got = 1; got != 0 && size < text.bytes().size();) {
    got = ::read(file.get(), text.bytes().data() + size, text.bytes().size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw_file_error(path, fmt::format("cannot be read: {}", std::strerror(errno)), "read it with cat");
    size += static_cast<std::size_t>(got);
  }
  text.shorten(size);
  return parse(text.text(), "token file " + path.string());
}

void Token::write(const std::filesystem::path& path) const {
  Fd file(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file) {
    const int error = errno;
    std::error_code unknown;
    if (std::filesystem::is_directory(path, unknown)) {
      throw ConfigError(fmt::format("cannot make the token file {}: it is a folder", path.string()),
                        {.remedy = "name a new file in it"});
    }
    throw ConfigError(fmt::format("cannot make the token file {}: {}", path.string(), std::strerror(error)),
                      {.remedy = error == EEXIST ? "choose another name, or remove the old token first"
                                                 : "name a file in a folder that can be written"});
  }
  Secret text(kDigits + 1);
  const auto bytes = secret_->bytes();
  const auto out = text.bytes();
  for (std::size_t i = 0; i < kBytes; ++i) {
    out[2 * i] = static_cast<std::byte>(kDigitsOf[std::to_integer<int>(bytes[i]) >> 4]);
    out[2 * i + 1] = static_cast<std::byte>(kDigitsOf[std::to_integer<int>(bytes[i]) & 15]);
  }
  out[kDigits] = static_cast<std::byte>('\n');
  if (::write(file.get(), out.data(), out.size()) != static_cast<ssize_t>(out.size()) || fsync(file.get()) != 0) {
    const int error = errno;
    unlink(path.c_str());
    throw ConfigError(fmt::format("cannot write the token file {}: {}", path.string(), std::strerror(error)),
                      {.remedy = "see whether the disk is full"});
  }
}

Sha256Digest Token::sign(std::span<const std::byte> message) const {
  const auto digest = hmac(std::as_const(*secret_).bytes(), message);
  wipe_stack_below();
  return digest;
}

void check_token_source(const TokenSource& source) {
  if (source.none && !source.file.empty()) {
    throw ConfigError("--token-file beside --no-token", {.remedy = "leave out --no-token, or --token-file"});
  }
  if (source.none && source.variable) {
    throw ConfigError(fmt::format("--no-token although {} is set", kTokenVariable),
                      {.remedy = fmt::format("leave out --no-token, or unset {}", kTokenVariable)});
  }
}

std::string open_job_text(const std::string& where) {
  return fmt::format("--no-token: whoever reaches {} can take part in this job", where);
}

Membership find_membership(const TokenSource& source, const std::string& what) {
  check_token_source(source);
  if (source.none) return {.token = nullptr, .open = true};
  if (!source.file.empty()) return {std::make_shared<const Token>(Token::read(source.file))};
  if (source.variable) return {std::make_shared<const Token>(Token::parse(source.variable->text(), kTokenVariable))};
  throw ConfigError(
      fmt::format("{} without a job token: whoever reaches the port could take part in the job", what),
      {.remedy =
           "make one with orthant launch --make-token FILE, copy the file to every host with mode 0600 and give "
           "--token-file FILE there (or set ORTHANT_TOKEN to its text); --no-token where everybody on the network "
           "is trusted"});
}

}  // namespace orthant::launch
