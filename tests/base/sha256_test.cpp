#include "orthant/base/sha256.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>

namespace orthant {
namespace sha256_test {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

std::string sha256_of(std::string_view text) {
  Sha256 hash;
  hash.update(bytes_of(text));
  return digest_text(hash.digest());
}

std::string hmac_of(std::string_view key, std::string_view text) {
  HmacSha256 hash(bytes_of(key));
  hash.update(bytes_of(text));
  return digest_text(hash.digest());
}

// FIPS 180-4's examples.
TEST(Sha256, HasTheStandardsExamples) {
  EXPECT_EQ(sha256_of(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_of("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256_of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sha256_of(std::string(1'000'000, 'a')), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, DoesNotDependOnHowBytesArrive) {
  const std::string text(1000, 'x');
  for (const std::size_t chunk : {1UL, 7UL, 63UL, 64UL, 65UL, 128UL}) {
    Sha256 hash;
    for (std::size_t begin = 0; begin < text.size(); begin += chunk) {
      hash.update(bytes_of(text).subspan(begin, std::min(chunk, text.size() - begin)));
    }
    EXPECT_EQ(digest_text(hash.digest()), sha256_of(text)) << chunk;
  }
}

// RFC 4231, test cases 1, 2 and 6.
TEST(HmacSha256, HasTheStandardsExamples) {
  EXPECT_EQ(hmac_of(std::string(20, '\x0b'), "Hi There"),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(hmac_of("Jefe", "what do ya want for nothing?"),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(hmac_of(std::string(131, '\xaa'), "Test Using Larger Than Block-Size Key - Hash Key First"),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST(HmacSha256, DigestsDifferInAnyByte) {
  Sha256Digest digest = {};
  auto other = digest;
  EXPECT_TRUE(equal_digests(digest, other));
  for (std::size_t i = 0; i < digest.size(); ++i) {
    other = digest;
    other[i] = std::byte{1};
    EXPECT_FALSE(equal_digests(digest, other)) << i;
  }
}

}  // namespace sha256_test
}  // namespace orthant
