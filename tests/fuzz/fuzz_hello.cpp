// What launchers of other hosts say first, from any bytes: answers to the challenge, lines of their conversation,
// frames for the store. The first byte chooses. Nobody proves a token that he does not have; a line that is understood
// comes back equal from its own text; no frame is read beyond its end.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "orthant/base/error.h"
#include "orthant/launch/handshake.h"
#include "orthant/launch/node_protocol.h"
#include "orthant/launch/store_protocol.h"

namespace {

using namespace orthant;
using namespace orthant::launch;

constexpr std::array<Purpose, 2> kPurposes = {Purpose::kNode, Purpose::kStore};

void answer(std::string_view bytes, std::size_t piece) {
  static const Membership kMembers{
      .token = std::make_shared<const Token>(Token::parse(std::string(Token::kDigits, '7'), "fuzz")), .open = false};
  ServerHandshake handshake(kMembers, kPurposes);
  const auto all = std::as_bytes(std::span(bytes));
  for (std::size_t at = 0; at < all.size() && handshake.state() == ServerHandshake::State::kWaiting;) {
    const auto count = std::min({piece, handshake.wanted(), all.size() - at});
    handshake.take(all.subspan(at, count));
    at += count;
  }
  if (handshake.state() == ServerHandshake::State::kProved) std::abort();
  if (handshake.state() == ServerHandshake::State::kRefused && handshake.reason().empty()) std::abort();
}

void line(std::string_view bytes) {
  try {
    const auto text = to_line(parse_line(bytes));
    if (text.find('\n') != std::string::npos || to_line(parse_line(text)) != text) std::abort();
  } catch (const ConfigError&) {
  }
}

void frames(std::string_view bytes) {
  try {
    while (const auto body = first_frame(bytes, 4096)) {
      bytes.remove_prefix(kFrameLengthBytes + body->size());
      launch::FrameReader reader(*body);
      if (reader.code() % 2 == 0) reader.number();
      while (!reader.at_end()) {
        if (reader.text(1024).size() > 1024) std::abort();
      }
      reader.expect_end();
    }
  } catch (const BadFrame&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 3) {
    case 0:
      answer(bytes, 1 + data[0] / 3);
      break;
    case 1:
      line(bytes);
      break;
    default:
      frames(bytes);
  }
  return 0;
}
