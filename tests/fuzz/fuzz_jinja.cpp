// Chat templates from any bytes, run over a conversation: they end soon, in bounded memory, with a text or the
// library's own error.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string_view>

#include "orthant/base/error.h"
#include "orthant/serve/chat_template.h"

namespace {

const nlohmann::ordered_json kMessages = nlohmann::ordered_json::parse(R"([
  {"role": "system", "content": "Be <short>\n"}, {"role": "user", "content": "H\u00e9llo  world </think> a"},
  {"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f", "arguments": {"x": [1, 2.5, null]}}}]},
  {"role": "tool", "content": "42"}])");
const nlohmann::ordered_json kMore = nlohmann::ordered_json::parse(
    R"({"most": 9223372036854775807, "least": -9223372036854775808, "bos_token": "<s>", "items": [3, 1, 2]})");

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace orthant;
  try {
    const auto read = ChatTemplate::parse({reinterpret_cast<const char*>(data), size}, "t");
    const ChatInput input{.messages = &kMessages, .tools = &kMessages, .more = &kMore};
    if (read.render(input).size() > (std::size_t{64} << 20)) std::abort();
  } catch (const DataError&) {
  }
  return 0;
}
