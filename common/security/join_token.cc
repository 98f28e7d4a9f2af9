#include "common/security/join_token.h"

#include <sstream>

#include "common/security/certificate.h"
#include "common/security/encoding.h"

namespace muster {
namespace {

constexpr std::size_t kIdBytes = 8;
constexpr std::size_t kSecretBytes = 32;
constexpr std::size_t kTimeBytes = 8;
constexpr std::size_t kChecksumBytes = 8;
constexpr std::size_t kFixedBytes = kIdBytes + kSecretBytes + kTimeBytes + kChecksumBytes;
// An authority's certificate has some 500 bytes.
constexpr std::size_t kMaxTextBytes = 8 << 10;

std::string BigEndian(std::int64_t value) {
  std::string bytes;
  for (int shift = 56; shift >= 0; shift -= 8)
    bytes += static_cast<char>(static_cast<std::uint64_t>(value) >> shift & 255);
  return bytes;
}

std::int64_t FromBigEndian(std::string_view bytes) {
  std::uint64_t value = 0;
  for (const char c : bytes) value = value << 8 | static_cast<unsigned char>(c);
  return static_cast<std::int64_t>(value);
}

Result<std::string> FromHex(std::string_view text, std::size_t bytes) {
  if (!IsHex(text, 2 * bytes))
    return InvalidArgument("the token's id is not 16 hexadecimal digits");
  const auto digit = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
  std::string result;
  for (std::size_t i = 0; i < text.size(); i += 2)
    result += static_cast<char>(digit(text[i]) << 4 | digit(text[i + 1]));
  return result;
}

std::string Checksum(std::string_view bytes) { return Sha256(bytes).substr(0, kChecksumBytes); }

std::string_view Trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n";
  const std::size_t begin = text.find_first_not_of(kBlanks);
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

}  // namespace

Result<std::string> EncodeJoinToken(const JoinToken& token) {
  if (token.secret.size() != kSecretBytes)
    return InvalidArgument("the token's secret is not 32 bytes");
  MUSTER_ASSIGN_OR_RETURN(const std::string id, FromHex(token.id, kIdBytes));
  MUSTER_ASSIGN_OR_RETURN(const std::string der, PemToDer(token.ca_pem));
  const std::string body = id + token.secret + BigEndian(token.expires_ms) + der;
  return kJoinTokenPrefix + ToBase64Url(body + Checksum(body));
}

Result<JoinToken> ParseJoinToken(std::string_view text) {
  const Status refused = InvalidArgument(
      "this is no whole join token (muster-join-v1....); copy it again from where muster certs "
      "join-token printed it");
  constexpr std::string_view kPrefix = kJoinTokenPrefix;
  const std::string_view token = Trimmed(text);
  if (!token.starts_with(kPrefix) || token.size() > kMaxTextBytes) return refused;
  const auto bytes = FromBase64Url(token.substr(kPrefix.size()));
  if (!bytes.ok() || bytes->size() <= kFixedBytes) return refused;
  const std::string_view body(bytes->data(), bytes->size() - kChecksumBytes);
  if (Checksum(body) != std::string_view(*bytes).substr(body.size())) return refused;
  const auto ca_pem = DerToPem(std::string(body.substr(kFixedBytes - kChecksumBytes)));
  if (!ca_pem.ok()) return refused;
  const auto authority = ReadAuthority(*ca_pem);
  if (!authority.ok()) return refused;
  JoinToken result;
  result.id = ToHex(body.substr(0, kIdBytes));
  result.secret = body.substr(kIdBytes, kSecretBytes);
  result.expires_ms = FromBigEndian(body.substr(kIdBytes + kSecretBytes, kTimeBytes));
  result.cluster = authority->cluster;
  result.ca_pem = *ca_pem;
  return result;
}

std::string InvitationText(const Invitation& invitation) {
  std::string text = invitation.token;
  if (!invitation.join_address.empty()) text += " join=" + invitation.join_address;
  if (!invitation.coordinator.empty()) text += " coordinator=" + invitation.coordinator;
  return text;
}

Result<Invitation> ParseInvitation(std::string_view text) {
  Invitation invitation;
  std::istringstream words{std::string(text)};
  words >> invitation.token;
  for (std::string word; words >> word;) {
    if (word.starts_with("join=")) {
      invitation.join_address = word.substr(5);
    } else if (word.starts_with("coordinator=")) {
      invitation.coordinator = word.substr(12);
    } else {
      return InvalidArgument("'" + word +
                             "' does not belong behind a join token; copy the line again from "
                             "where muster certs join-token printed it");
    }
  }
  return invitation;
}

}  // namespace muster
