// Quantities as people read and write them: bytes, counts and durations.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace orthant {

// "512 B", "1.5 MiB": powers of 1024, at most one decimal.
std::string format_bytes(std::int64_t bytes);

// "999", "21.2M", "1.5B": powers of 1000 with the suffixes K, M, B, T.
std::string format_count(std::int64_t count);

// "850 ns", "3.2 ms", "45.3 s", "1 min 5 s", "2 h 3 min", "1 d 4 h".
std::string format_seconds(double seconds);

// Reads "4096", "64MiB" or "25 MB" (kB, MB, GB, TB are powers of 1000; KiB, MiB, GiB, TiB of 1024; case is ignored). A
// fraction of a unit is rounded to whole bytes. Throws a ConfigError that begins with `what`, the option or key read.
std::int64_t parse_bytes(std::string_view text, std::string_view what);

}  // namespace orthant
