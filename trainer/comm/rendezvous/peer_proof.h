// PeerProof: how two ranks of one generation convince each other that both know its token, which is
// never sent: HMAC-SHA256 (RFC 2104) over what the proof is for, who proves it to whom, and what
// the other one has drawn at random for this one time.
//
// Nothing is encrypted by it, and nothing that follows is protected against a party that can change
// what is on the way: docs/security.md says against whom it helps. Pure functions but for Nonce;
// any thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace muster {

inline constexpr std::size_t kNonceBytes = 32;
inline constexpr std::size_t kProofBytes = 32;

// Drawn anew for each connection, from the kernel.
std::string Nonce();

std::string HmacSha256(std::string_view key, std::string_view message);

// That `from` knows the token, for `to`. `nonces` has the one that `to` has drawn. Proofs for
// different purposes, directions and ranks are different, so none can be sent back or elsewhere.
std::string PeerProof(std::string_view token, std::string_view purpose, int from, int to,
                      std::string_view nonces);

// Takes the same time wherever the proofs differ.
bool SameProof(std::string_view a, std::string_view b);

}  // namespace muster
