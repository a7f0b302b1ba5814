// CRC-32C (Castagnoli), the checksum of TensorBoard's records.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace orthant {

std::uint32_t crc32c(std::span<const std::byte> bytes);

// As records store it: rotated and offset, so that the checksum of bytes that hold checksums stays useful.
std::uint32_t masked_crc32c(std::span<const std::byte> bytes);

}  // namespace orthant
