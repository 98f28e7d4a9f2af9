// What a node or a person sends to be let in, before anything is known of them. The first byte says
// which call: 'j' Join, 'r' Renew, 'l' Login, 'i' Issuers, 'p' the Ping between supervisors.
#include "common/security/certificate_request.h"
#include "common/security/identity.h"
#include "muster/v1/allocation_api.pb.h"
#include "muster/v1/enrol_api.pb.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/wire.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace muster;
  fuzz::Input input(fuzz::TextOf(data, size));
  switch (input.Byte()) {
    case 'j':
      if (const auto join = fuzz::Decoded<v1::JoinRequest>(input.rest())) {
        (void)CheckName("node name", join->node());
        (void)KeyOfRequest(join->request_pem());
      }
      break;
    case 'r':
      if (const auto renew = fuzz::Decoded<v1::RenewRequest>(input.rest()))
        (void)CheckCertificateRequest(renew->request_pem());
      break;
    case 'l':
      if (const auto login = fuzz::Decoded<v1::LoginRequest>(input.rest()))
        (void)KeyOfRequest(login->request_pem());
      break;
    case 'p': (void)fuzz::Decoded<v1::PeerView>(input.rest()); break;
    default: (void)fuzz::Decoded<v1::IssuersRequest>(input.rest());
  }
  return 0;
}
