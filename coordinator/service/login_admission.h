// Maps a verified identity, or a verified account, to a user of the cluster. Pure; any thread.
#pragma once

#include <string>

#include "common/base/result.h"
#include "coordinator/access/user_file.h"

namespace muster {

// An identity at an issuer, and the client that the token was for.
struct VerifiedLogin {
  UserIdentity identity;
  std::string client_id;
};

// "248289761001 of https://login.example.org", for messages and the audit trail.
std::string IdentityText(const UserIdentity& identity);

// The refusal of a login at an issuer that the user file does not list, or does not any more; `url`
// may be a stranger's text. Empty: the file lists none.
Status NoSuchIssuer(const std::string& url);

// The user's name. kPermissionDenied: no user has the identity, or the user may do nothing; also if
// the file has changed since the login began.
Result<std::string> AdmitLogin(const UserDirectory& users, const VerifiedLogin& login);

// The same of an account of the coordinator's machine, whose process it is; of several users with
// that account none is meant.
Result<std::string> AdmitAccount(const UserDirectory& users, const std::string& account);

}  // namespace muster
