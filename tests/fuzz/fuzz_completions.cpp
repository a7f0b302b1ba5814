// Bodies of completion requests from any bytes: a request within its limits, or the API's own error. The first byte
// chooses between chats and texts.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "orthant/serve/api/completion_request.h"
#include "orthant/serve/carried_files.h"
#include "text/small_bpe.h"

namespace {

using namespace orthant;

const ServedModel& served() {
  static const ServedModel kModel{
      "tiny", tokenizer_of(small_bpe()),
      ChatTemplate::parse(carried_file("templates/llama3.jinja"), "llama3").with_tokens({{"bos_token", "<s>"}}), 4096,
      266};
  return kModel;
}

void check(const CompletionRequest& request) {
  if (request.prompts.empty() || request.num_answers < 1 || request.sampling.max_tokens < 1) std::abort();
  for (const auto& prompt : request.prompts) {
    if (prompt.empty() || static_cast<std::int64_t>(prompt.size()) >= served().most_tokens) std::abort();
    for (const auto token : prompt) {
      if (token < 0 || token >= served().vocabulary) std::abort();
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string body(reinterpret_cast<const char*>(data) + 1, size - 1);
  try {
    check(data[0] % 2 == 0 ? read_chat(body, served()) : read_completion(body, served()));
  } catch (const ApiError& error) {
    if (error.status < 400 || error.status > 499 || std::string(error.what()).empty()) std::abort();
  }
  return 0;
}
