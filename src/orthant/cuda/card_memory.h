// Free memory of a card, as the driver's management library tells it: no context is made, so that asking takes none of
// it and a process that asks may still start others. Local.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace orthant::cuda {

// `card`: a number, or a name that begins with "GPU-", as in CUDA_VISIBLE_DEVICES. Nothing when the library or the card
// is not there.
std::optional<std::int64_t> free_card_bytes(const std::string& card,
                                            const std::vector<std::string>& libraries = {"libnvidia-ml.so.1"});

// The name of the i-th card that a program sees: what CUDA_VISIBLE_DEVICES says there, else the number itself.
std::string visible_card(const std::string& visible_devices, int index);

}  // namespace orthant::cuda
