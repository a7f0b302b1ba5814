#include "orthant/shm/copy.h"

#include <emmintrin.h>

#include <cstdint>
#include <cstring>

namespace orthant::shm {

void copy_bytes(std::byte* output, const std::byte* input, std::size_t bytes, bool streaming) {
  if (bytes == 0 || output == input) return;
  constexpr std::size_t kLine = 64;
  if (!streaming || bytes < 16 * kLine) {
    std::memcpy(output, input, bytes);
    return;
  }
  const std::size_t head = (kLine - reinterpret_cast<std::uintptr_t>(output) % kLine) % kLine;
  std::memcpy(output, input, head);
  std::size_t done = head;
  for (; done + kLine <= bytes; done += kLine) {
    const auto* from = reinterpret_cast<const __m128i*>(input + done);
    auto* to = reinterpret_cast<__m128i*>(output + done);
    const auto a = _mm_loadu_si128(from);
    const auto b = _mm_loadu_si128(from + 1);
    const auto c = _mm_loadu_si128(from + 2);
    const auto d = _mm_loadu_si128(from + 3);
    _mm_stream_si128(to, a);
    _mm_stream_si128(to + 1, b);
    _mm_stream_si128(to + 2, c);
    _mm_stream_si128(to + 3, d);
  }
  _mm_sfence();  // before anybody is told that the data is there
  std::memcpy(output + done, input + done, bytes - done);
}

}  // namespace orthant::shm
