// A join token and the invitation around it. An input that begins with '#' is the content of a
// token, whose checksum this target makes right, as a forger would.
#include <string>

#include "common/security/encoding.h"
#include "common/security/join_token.h"
#include "tests/fuzz/fuzz.h"

namespace {

using namespace muster;

void TryToken(std::string_view text) {
  const Result<JoinToken> token = ParseJoinToken(text);
  if (!token.ok()) {
    fuzz::Require(token.status().code() == StatusCode::kInvalidArgument,
                  "a bad token is so called");
    return;
  }
  const Result<std::string> again = EncodeJoinToken(*token);
  fuzz::Require(again.ok(), "a token that was read can be written");
  fuzz::RequireSame(ParseJoinToken(*again), *token, "a token that is written is the same");
}

void TryInvitation(std::string_view text) {
  const Result<Invitation> invitation = ParseInvitation(text);
  if (invitation.ok())
    fuzz::RequireSame(ParseInvitation(InvitationText(*invitation)), *invitation,
                      "an invitation that is written is the same");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string text(fuzz::TextOf(data, size));
  if (text.starts_with('#')) {
    const std::string content = text.substr(1);
    text = kJoinTokenPrefix + ToBase64Url(content + Sha256(content).substr(0, 8));
  }
  TryToken(text);
  TryInvitation(text);
  return 0;
}
