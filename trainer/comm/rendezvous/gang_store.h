// GangStore: where the ranks of one generation leave each other words, behind a proof.
//
// It serves what StoreClient asks (c10d's queries), but only on connections that have shown the
// generation's token. c10d's own server accepts every client, so it serves where there is no token:
// under torchrun, and for programs that are not ours.
//
// Before anything else is read (integers in the host's byte order, as c10d's):
//   client   "MUSTERG1"  rank (u32)  nonce (32 bytes)
//   server   nonce (32 bytes)  proof (32)      that it knows the token, for this rank
//   client   proof (32)
// with peer_proof.h over both nonces, the client's first, between that rank and rank 0. A client
// that sends anything else, or nothing for kHandshakeLimit, is dropped, counted and noted on
// standard error. No rank waits for an unauthenticated peer: one thread serves all connections,
// none of which blocks.
//
// Owned by the rank that serves. Threads: one of its own; the functions may be called by any.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "common/base/clock.h"
#include "common/base/result.h"
#include "common/base/unique_fd.h"

namespace muster {

inline constexpr std::string_view kAuthenticatedGreeting = "MUSTERG1";
// They differ, or rank 0 could be given its own store's proof back.
inline constexpr std::string_view kStoreServes = "store serves";
inline constexpr std::string_view kStoreAsks = "store asks";

class GangStore {
 public:
  static constexpr Duration kHandshakeLimit = std::chrono::seconds(10);
  // Connections that have proved nothing yet, or as many as a quarter of the process's descriptors;
  // one more drops the oldest. A rank that is dropped in a crowd comes again.
  static constexpr std::size_t kMaxUnauthenticated = 1024;

  // Serves on `listener`, which listens, until it is destroyed.
  static Result<std::unique_ptr<GangStore>> Start(UniqueFd listener, std::string token,
                                                  Duration handshake_limit = kHandshakeLimit);
  ~GangStore();

  // Connections that were dropped before they had proved the token.
  std::uint64_t unauthenticated() const { return unauthenticated_; }

 private:
  class Service;
  GangStore() = default;

  UniqueFd stop_;
  std::atomic<std::uint64_t> unauthenticated_ = 0;
  std::thread thread_;
};

}  // namespace muster
