// The words of c10d's TCPStore that our client and our server speak: a query is one byte, then its
// arguments in the host's byte order; texts and lists have their length before them.
//
// Source: LibTorch 2.11, torch/csrc/distributed/c10d/TCPStoreBackend.hpp. Private to
// trainer/comm/rendezvous; any thread.
#pragma once

#include <cstdint>
#include <string>

namespace muster {

enum class StoreQuery : std::uint8_t {
  kValidate = 0,
  kSet = 1,
  kGet = 3,
  kCheck = 5,
  kWait = 6,
  kMultiGet = 10,
  kCancelWait = 12
};
inline constexpr std::uint32_t kStoreValidateWord = 0x3C85F7CE;

// Answers to kCheck.
inline constexpr std::uint8_t kStoreReady = 0;
inline constexpr std::uint8_t kStoreNotReady = 1;
// Answers to kWait.
inline constexpr std::uint8_t kStoreStopWaiting = 0;
inline constexpr std::uint8_t kStoreWaitCancelled = 1;

inline void AppendStoreText(std::string& to, const std::string& text) {
  const std::uint64_t bytes = text.size();
  to.append(reinterpret_cast<const char*>(&bytes), sizeof(bytes));
  to.append(text);
}

}  // namespace muster
